# SPDX-License-Identifier: Apache-2.0
"""Mistakes around streams and threads: an exception that says what to do, never a crash."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import queue
import threading
import time
from collections.abc import AsyncIterator, Iterator

import numpy as np
import pytest
from conftest import PATIENCE, Rig, echo, own_uri
from test_aio import connect, echo_later, run
from test_aio_streams import acount
from test_processes import run as run_script
from test_streams import both, count, joined

import accel_transport as at


def test_closed_stream(uri: str, rig: Rig) -> None:
    stream = rig.pair(uri, count).stream(b"10", timeout=PATIENCE)
    part = next(stream)
    stream.close()
    stream.close()
    stream.cancel()
    with pytest.raises(at.InvalidState, match="begin another"):
        next(stream)
    assert bytes(part) == b"0"


def test_stream_of_a_closed_channel(uri: str, rig: Rig) -> None:
    channel = rig.pair(uri, count)
    stream = channel.stream(b"1000", timeout=PATIENCE)
    first = next(stream)
    channel.close()
    with pytest.raises(at.Closed):
        for _ in stream:
            pass
    assert list(stream) == []
    with pytest.raises(at.Closed):
        channel.stream(b"1")
    assert bytes(first) == b"0"


def test_read_to_the_end_twice(uri: str, rig: Rig) -> None:
    stream = rig.pair(uri, count).stream(b"2")
    assert [bytes(part) for part in stream] == [b"0", b"1"]
    assert [bytes(part) for part in stream] == []
    stream.close()
    assert list(stream) == []


def test_parts_after_the_end(uri: str, rig: Rig) -> None:
    channel = rig.pair(uri, both)
    stream = channel.stream(b"x", continues=True, timeout=PATIENCE)
    stream.finish()
    with pytest.raises(at.InvalidState, match="finished"):
        stream.send(b"y")
    with pytest.raises(at.InvalidState, match="finished"):
        stream.finish()
    with pytest.raises(at.InvalidState, match="continues=True"):
        channel.stream(b"x").send(b"y")
    with pytest.raises(at.InvalidState, match="iterator"):
        channel.stream(iter([b"x"])).send(b"y")


def test_part_after_the_answer_says_so(uri: str, rig: Rig) -> None:
    def handler(request: at.Exchange) -> object:
        next(request.parts())
        raise ValueError("enough")

    stream = rig.pair(uri, handler).stream(b"x", continues=True, timeout=PATIENCE)
    with pytest.raises(at.ApplicationError, match="enough"):  # noqa: PT012
        while True:
            stream.send(b"y", timeout=PATIENCE)


def test_what_is_no_part(uri: str, rig: Rig) -> None:
    channel = rig.pair(uri, joined)
    for part in (3, object(), [np.arange(3), np.arange(2)], bytes(channel.max_request_bytes + 1)):
        with pytest.raises((at.InvalidArgument, at.MessageTooLarge)):
            channel.call(iter([b"a", part]), timeout=PATIENCE)
    assert bytes(channel.call(iter([b"goes on"]))) == b"goes on"


@pytest.mark.parametrize("part", [3, None, object(), [np.arange(3), np.arange(2)], bytes(1 << 26)])
def test_what_a_generator_cannot_send(part: object, rig: Rig) -> None:
    def handler(request: at.Exchange) -> Iterator[object]:
        yield part

    with pytest.raises(at.ApplicationError, match=r"InvalidArgument|MessageTooLarge"):
        next(rig.pair(own_uri("shm"), handler).stream(timeout=PATIENCE))


def test_too_many_parts_for_the_slots(uri: str, rig: Rig) -> None:
    channel = rig.pair(uri, count, slots=4)
    with pytest.raises(at.InvalidArgument):
        channel.stream(b"1", parts=4)
    held = channel.stream(b"1", parts=3, timeout=PATIENCE)
    with pytest.raises(at.TimedOut, match="slot"):
        channel.stream(b"1", parts=3, timeout=0.05)
    held.close()


def test_channel_is_looked_at_while_another_thread_waits(uri: str, rig: Rig) -> None:
    kept: queue.Queue[at.Exchange] = queue.Queue()
    server = rig.serve(uri, kept.put)
    channel = rig.connect(server)
    thread = threading.Thread(target=channel.call, args=(b"x",))
    thread.start()
    request = kept.get(timeout=PATIENCE)
    assert channel.connected
    assert channel.endpoint == server.endpoints[0]
    assert channel.slots > 0
    request.reply(b"")
    thread.join(PATIENCE)
    channel.close()
    assert not channel.connected


def test_stream_belongs_to_the_thread_in_its_channel(uri: str, rig: Rig) -> None:
    entered, leave = threading.Event(), threading.Event()

    def handler(request: at.Exchange) -> Iterator[object]:
        entered.set()
        assert leave.wait(PATIENCE)
        yield b"part"

    stream = rig.pair(uri, handler).stream(timeout=PATIENCE)
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.extend(bytes(part) for part in stream))
    thread.start()
    assert entered.wait(PATIENCE)
    try:
        failed: BaseException | None = None
        deadline = time.monotonic() + PATIENCE
        while failed is None and time.monotonic() < deadline:  # until the thread waits
            try:
                stream._core._look()
            except at.InvalidState as told:
                failed = told
        assert "another thread" in str(failed)
    finally:
        leave.set()
        thread.join(PATIENCE)
    assert got == [b"part"]


def test_sending_on_the_workers_thread_says_what_to_do(uri: str, rig: Rig) -> None:
    def handler(request: at.Exchange) -> object:
        for _ in range(100):
            request.send(b"x")
        return b""

    stream = rig.pair(uri, handler).stream(parts=2, timeout=PATIENCE)
    with pytest.raises(at.ApplicationError, match="generator"):
        for _ in stream:
            pass


def test_two_threads_answer_one_exchange(rig: Rig) -> None:
    kept: queue.Queue[at.Exchange] = queue.Queue()
    channel = rig.pair(own_uri("shm"), kept.put, response_bytes=1 << 23)
    for _ in range(20):
        call = channel.submit(b"x")
        request = kept.get(timeout=PATIENCE)
        answers = [np.zeros(1 << 20, dtype=np.float32), np.ones(1 << 20, dtype=np.float32)]

        def answer(data: object, to: at.Exchange = request) -> None:
            with contextlib.suppress(at.InvalidState):
                to.reply(data)

        threads = [threading.Thread(target=answer, args=(one,)) for one in answers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        response = call.wait()
        assert np.ptp(np.from_dlpack(response)) == 0  # one of them, whole
        del response


def test_call_is_given_up_while_a_thread_waits_for_it(uri: str, rig: Rig) -> None:
    kept: queue.Queue[at.Exchange] = queue.Queue()
    channel = rig.pair(uri, kept.put)
    caught: queue.Queue[object] = queue.Queue()
    with channel.begin() as call:
        call.buffer[:1] = b"a"
        call.submit(1)

        def wait() -> None:
            try:
                caught.put(call.wait())
            except at.Error as failed:
                caught.put(failed)

        thread = threading.Thread(target=wait)
        thread.start()
        request = kept.get(timeout=PATIENCE)
        time.sleep(0.05)  # usually the thread waits by now
    request.reply(b"late")
    thread.join(PATIENCE)
    assert isinstance(caught.get_nowait(), at.Error)


def test_exceptions_that_cause_each_other(uri: str, rig: Rig) -> None:
    def handler(request: at.Exchange) -> object:
        try:
            raise ValueError("round")
        except ValueError as failed:
            raise failed from failed

    with pytest.raises(at.ApplicationError, match="round"):
        rig.pair(uri, handler).call(b"x", timeout=PATIENCE)


def test_exception_with_text_that_is_not_utf8(uri: str, rig: Rig) -> None:
    def handler(request: at.Exchange) -> object:
        raise OSError("file \udcff")

    with pytest.raises(at.ApplicationError, match=r"file .udcff"):
        rig.pair(uri, handler).call(b"x")


@pytest.mark.parametrize("result", [42, True])
def test_number_is_no_answer(result: object, rig: Rig) -> None:
    with pytest.raises(at.ApplicationError, match="bytes or tensors"):
        rig.pair(own_uri("shm"), lambda request: result).call(b"x")


def test_length_of_a_room_that_was_not_written_is_no_answer(uri: str, rig: Rig) -> None:
    def handler(request: at.Exchange) -> None:
        if request.target == "empty":
            return request.reply(0)
        for length in (5, True, -1):
            with pytest.raises(at.InvalidArgument):
                request.reply(length)
        request.response[:5] = b"hello"
        return request.reply(5)

    channel = rig.connect(rig.serve(uri, {None: handler, "empty": handler}))
    assert bytes(channel.call(b"x")) == b"hello"
    assert bytes(channel.call(b"x", target="empty")) == b""


def test_description_of_an_answer_that_failed_is_not_sent_with_another(uri: str, rig: Rig) -> None:
    def handler(request: at.Exchange) -> None:
        with pytest.raises(at.InvalidArgument):
            request.reply(np.arange(3), metadata={"Upper": "x"})
        with pytest.raises(at.InvalidState, match="answer with tensors"):
            request.reply(b"x" * 100)
        request.reply(np.arange(4))

    assert np.from_dlpack(rig.pair(uri, handler).call(b"x").tensor(0)).tolist() == [0, 1, 2, 3]


def test_answer_is_a_part_of_its_own_room(uri: str, rig: Rig) -> None:
    def handler(request: at.Exchange) -> object:
        request.response[:16] = bytes(range(16))
        return request.response[8:16]

    assert bytes(rig.pair(uri, handler).call(b"x")) == bytes(range(8, 16))


def test_waiting_for_a_slot_counts_for_the_deadline(uri: str, rig: Rig) -> None:
    kept: queue.Queue[at.Exchange] = queue.Queue()
    left: queue.Queue[float] = queue.Queue()

    def handler(request: at.Exchange) -> object:
        if bytes(request.data) == b"first":
            kept.put(request)
            return None
        left.put(request.time_left)
        return b""

    channel = rig.pair(uri, handler, slots=1)
    first = channel.submit(b"first", timeout=PATIENCE)
    request = kept.get(timeout=PATIENCE)
    del first  # cancels; the slot is free after the late answer
    threading.Timer(0.2, request.reply, (b"",)).start()
    channel.call(b"second", timeout=PATIENCE)
    assert left.get(timeout=PATIENCE) < PATIENCE - 0.1


def test_statistics_are_read_while_servers_stop() -> None:
    for _ in range(30):
        server = at.Server(own_uri("local"), echo, drain_timeout=0.0)
        ended = threading.Event()

        def read(of: at.Server = server, until: threading.Event = ended) -> None:
            while not until.is_set():
                _ = of.statistics

        thread = threading.Thread(target=read)
        thread.start()
        server.stop()
        ended.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()


@run
async def test_cancelled_aclose_leaves_nobody_waiting(uri: str) -> None:
    kept: asyncio.Queue[at.Exchange] = asyncio.Queue()
    async with at.Server(uri, kept.put, drain_timeout=0.0) as server:
        channel = await connect(server)
        call = asyncio.create_task(channel.call(b"x", timeout=PATIENCE))
        request = await kept.get()
        closing = asyncio.create_task(channel.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(at.Closed):
            await call
        await channel.aclose()
        request.reply(b"")


@run
async def test_calls_end_although_an_exception_could_not_be_made(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from accel_transport import _errors

    kept: asyncio.Queue[at.Exchange] = asyncio.Queue()
    make = _errors.exception_of
    left = [MemoryError(), MemoryError()]

    def make_later(status: int, message: str, code: int, native: int) -> at.Error:
        if left:
            raise left.pop()
        return make(status, message, code, native)

    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    async with at.Server(uri, kept.put) as server, connect(server) as channel:
        calls = [asyncio.create_task(channel.call(b"x", timeout=PATIENCE)) for _ in range(3)]
        requests = [await kept.get() for _ in calls]
        monkeypatch.setattr(_errors, "exception_of", make_later)
        for request in requests:
            request.fail("broken")
        for call in calls:
            with pytest.raises(at.ApplicationError, match="broken"):
                await call
    assert not left


@pytest.mark.parametrize("in_batch", [False, True])
@run
async def test_handler_that_waited_for_a_cancelled_task_has_failed(uri: str, in_batch: bool) -> None:
    async def handler(request: object) -> object:
        task = asyncio.ensure_future(asyncio.sleep(PATIENCE, b""))
        task.cancel()
        return await task

    async with at.Server(uri, at.batched(handler) if in_batch else handler) as server, connect(server) as channel:
        with pytest.raises(at.ApplicationError, match="CancelledError"):
            await channel.call(b"x", timeout=PATIENCE)


@run
async def test_two_slots_come_free_at_once(uri: str) -> None:
    async def call(channel: at.aio.Channel) -> bytes:
        return bytes(await channel(b"x", timeout=PATIENCE))

    async with at.Server(uri, echo_later) as server, connect(server, slots=2) as channel:
        held = [await channel(b"a"), await channel(b"b")]
        waiting = [asyncio.create_task(call(channel))]
        await asyncio.sleep(0)
        held.clear()
        waiting.append(asyncio.create_task(call(channel)))
        assert await asyncio.gather(*waiting) == [b"x", b"x"]


@run
async def test_stream_that_is_closed_before_it_begins(uri: str) -> None:
    async with at.Server(uri, acount) as server, connect(server) as channel:
        stream = channel.stream(b"3")
        await stream.aclose()
        with pytest.raises(at.InvalidState, match="begin another"):
            await anext(stream)
        stream = channel.stream(b"3")
        stream.cancel()
        assert [bytes(part) async for part in stream] == [b"0", b"1", b"2"]
        with pytest.raises(at.InvalidState, match="continues=True"):
            await channel.stream(b"3").send(b"x")


@pytest.mark.parametrize("timeout", [-1.0, float("nan"), float("inf")])
@run
async def test_timeouts_of_streams(timeout: float) -> None:  # noqa: ASYNC109
    async with at.Server(own_uri("local"), acount) as server, connect(server) as channel:
        with pytest.raises(at.InvalidArgument, match="seconds"):
            channel.stream(b"1", timeout=timeout)
        with pytest.raises(at.InvalidArgument, match="seconds"):
            await channel.call(b"1", timeout=timeout)


END = """
import itertools
def forever(request):
    for i in itertools.count(): yield b"%d" % i
def joined(request): return b",".join(bytes(part) for part in request.parts())
server = at.Server("{scheme}://python-%d" % os.getpid(), dict(count=forever, join=joined), drain_timeout=0.0)
channel = connect(server, slots=32)
stream = channel.stream(target="count", timeout=50.0)
part = next(stream)
upload = channel.stream(b"x", continues=True, target="join", timeout=50.0)
upload.send(b"y")
abandoned = channel.stream(target="count", timeout=50.0)
view = memoryview(next(abandoned))
del abandoned
print("end")
"""


@pytest.mark.parametrize("scheme", ["local", "shm"] * 5)
def test_interpreter_ends_with_open_streams(scheme: str) -> None:
    assert run_script(END.format(scheme=scheme)) == "end\n"


END_IN_LOOP = """
async def count(request):
    for i in range(10**9): yield b"%d" % i
async def main():
    server = at.Server("{scheme}://python-%d" % os.getpid(), count, drain_timeout=0.0)
    channel = await at.connect(server.endpoints[0], slots=32)
    stream = channel.stream(timeout=50.0)
    part = await anext(stream)
    asyncio.create_task(anext(channel.stream(timeout=50.0)))
    other = channel.stream(timeout=50.0)
    await anext(other)
    del other
    await asyncio.sleep(0.01)
    print("end")
    return stream, channel, server
kept = asyncio.run(main())
"""


@pytest.mark.parametrize("scheme", ["local", "shm"] * 5)
def test_loop_ends_with_open_streams(scheme: str) -> None:
    assert run_script(END_IN_LOOP.format(scheme=scheme)) == "end\n"


def test_handler_ends_with_its_server(rig: Rig) -> None:
    ended = threading.Event()

    def handler(request: at.Exchange) -> Iterator[object]:
        try:
            for i in itertools.count():
                yield b"%d" % i
        finally:
            ended.set()

    server = rig.serve(own_uri("shm"), handler, drain_timeout=0.0)
    stream = rig.connect(server).stream(timeout=PATIENCE)
    next(stream)
    server.stop()
    assert ended.wait(PATIENCE)
    with pytest.raises(at.Error):
        for _ in stream:
            pass


@run
async def test_async_iterator_is_for_a_loop(uri: str, rig: Rig) -> None:
    async def source() -> AsyncIterator[bytes]:
        yield b"a"

    channel = rig.pair(uri, joined)
    with pytest.raises(at.InvalidArgument):
        channel.call(source())


@run
async def test_handler_stops_its_own_loops_server(uri: str) -> None:
    servers: list[at.Server] = []

    async def handler(request: at.Exchange) -> object:
        await servers[0].aclose()
        return b"last"

    servers.append(at.Server(uri, handler))
    async with connect(servers[0]) as channel:
        assert bytes(await channel.call(b"x", timeout=PATIENCE)) == b"last"
    await servers[0].aclose()


@run
async def test_loops_server_is_awaited(uri: str) -> None:
    server = at.Server(uri, echo_later)
    with pytest.raises(at.InvalidState, match="aclose"):
        server.stop()
    with pytest.raises(at.InvalidState, match="async with"), server:
        pass
    await server.aclose()
    await server.aclose()


@pytest.mark.parametrize("key", ["workers=2", "workers=0", "drain_timeout=1s"])
def test_options_that_the_module_has_to_know_are_keywords(key: str) -> None:
    with pytest.raises(at.InvalidArgument, match="keyword"):
        at.Server("local://python-keys?" + key, echo)


def test_interrupt_ends_connect() -> None:
    script = """
    import socket
    silent = socket.create_server(("127.0.0.1", 0))
    began = time.monotonic()
    try:
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        at.Channel("tcp://127.0.0.1:%d" % silent.getsockname()[1], insecure=True, connect_timeout=45.0)
    except KeyboardInterrupt: print("interrupted", time.monotonic() - began < 30, flush=True)
    os._exit(0)
    """
    assert run_script(script) == "interrupted True\n"


def test_interpreter_ends_after_an_interrupted_connect() -> None:
    script = """
    import socket
    silent = socket.create_server(("127.0.0.1", 0))
    try:
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        at.Channel("tcp://127.0.0.1:%d" % silent.getsockname()[1], insecure=True, connect_timeout=5.0)
    except KeyboardInterrupt: print("end")
    """
    assert run_script(script) == "end\n"


def test_call_is_cancelled_by_another_thread(uri: str, rig: Rig) -> None:
    kept: queue.Queue[at.Exchange] = queue.Queue()
    call = rig.pair(uri, kept.put).submit(b"x", timeout=PATIENCE)
    request = kept.get(timeout=PATIENCE)
    threading.Timer(0.05, call.cancel).start()
    with pytest.raises(at.Cancelled):
        call.wait()
    request.reply(b"late")


def test_response_is_passed_on_as_it_is(uri: str, rig: Rig) -> None:
    channel = rig.pair(uri, echo, slots=16)
    for data in (b"hello", np.arange(6, dtype=np.float32).reshape(2, 3), [np.arange(3), np.ones((2, 2))]):
        first = channel.call(data)
        second = channel.call(first)
        assert [(one.shape, one.dtype) for one in second.tensors] == [(one.shape, one.dtype) for one in first.tensors]
        if isinstance(data, bytes):
            assert bytes(second) == data
        else:
            for one, other in zip(first.tensors, second.tensors, strict=True):
                assert np.array_equal(np.from_dlpack(one), np.from_dlpack(other))


def test_child_of_fork_drops_and_answers_its_parents_exchange() -> None:
    script = """
    kept = queue.Queue()
    server = at.Server("local://fork", kept.put, drain_timeout=0.0)
    channel = connect(server)
    calls = [channel.submit(b"x") for _ in range(2)]
    requests = [kept.get(), kept.get()]
    view = requests[1].data
    requests[1].reply(b"waits")
    child = os.fork()
    if child == 0:
        code = 0
        for use in (lambda: requests[0].reply(b"x"), lambda: requests[0].data, lambda: requests[0].reply(b"x")):
            try: use()
            except at.InvalidState: code += 1
        del view
        gc.collect()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os._exit(0) if sys.stdout.flush() is None else None
    """
    assert run_script(script) == "3\n"
