# SPDX-License-Identifier: Apache-2.0
"""Requests and responses in parts, blocking."""

from __future__ import annotations

import contextlib
import gc
import itertools
import queue
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from conftest import PATIENCE, Rig, own_uri

import accel_transport as at


def count(request: at.Exchange) -> Iterator[object]:
    for i in range(int(bytes(request.data))):
        yield b"%d" % i


def joined(request: at.Exchange) -> object:
    return b",".join(bytes(part) for part in request.parts())


def both(request: at.Exchange) -> Iterator[object]:
    for part in request.parts():
        yield bytes(part).upper()


def drain(stream: at.Stream) -> None:
    for _ in stream:
        pass


def test_generator_answers_in_parts(uri: str, rig: Rig) -> None:
    channel = rig.pair(uri, count)
    assert [bytes(part) for part in channel.stream(b"20", timeout=PATIENCE)] == [b"%d" % i for i in range(20)]
    assert list(channel.stream(b"0")) == []
    assert [bytes(part) for part in channel.stream(b"3")] == [b"0", b"1", b"2"]


def test_parts_keep_their_slots(uri: str, rig: Rig) -> None:
    def handler(request: at.Exchange) -> Iterator[object]:
        for i in range(3):
            yield np.full(100, i, dtype=np.float32)

    channel = rig.pair(uri, handler, slots=16)
    arrays = [np.frombuffer(part.data, dtype=np.float32) for part in channel.stream()]
    assert [part.copies for part in channel.stream()] == [0, 0, 0]
    channel.close()
    assert [array.sum() for array in arrays] == [0, 100, 200]


def test_plain_handler_answers_a_stream_with_one_part(uri: str, rig: Rig) -> None:
    def handler(request: at.Exchange) -> None:
        request.reply(request.data, metadata={"k": "v"})

    stream = rig.pair(uri, handler).stream(b"whole")
    assert stream.metadata is None
    assert [bytes(part) for part in stream] == [b"whole"]
    assert stream.metadata == {"k": "v"}


def test_generator_sends_metadata_at_its_end(uri: str, rig: Rig) -> None:
    def handler(request: at.Exchange) -> Iterator[object]:
        yield b"part"
        request.reply(b"", metadata={"tokens": "1"})

    stream = rig.pair(uri, handler).stream()
    assert [bytes(part) for part in stream] == [b"part"]
    assert stream.metadata == {"tokens": "1"}


def test_call_of_a_generator_says_what_to_use(uri: str, rig: Rig) -> None:
    channel = rig.pair(uri, count)
    with pytest.raises(at.Unsupported, match="stream"):
        channel.call(b"3")


def test_exception_comes_after_the_parts(uri: str, rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    def handler(request: at.Exchange) -> Iterator[object]:
        yield b"one"
        raise ValueError("broken layer")

    stream = rig.pair(uri, handler).stream()
    assert bytes(next(stream)) == b"one"
    with pytest.raises(at.ApplicationError, match="ValueError: broken layer"):
        next(stream)
    assert list(stream) == []
    assert "Traceback" in caplog.text


def test_server_waits_for_its_client(uri: str, rig: Rig) -> None:
    sent: list[int] = []

    def handler(request: at.Exchange) -> Iterator[object]:
        for i in range(50):
            sent.append(i)
            yield b"%d" % i

    channel = rig.pair(uri, handler)
    stream = channel.stream(parts=2, timeout=PATIENCE)
    first = next(stream)
    assert len(sent) < 6  # two with the client, one that waits for room
    assert bytes(first) == b"0"
    del first
    assert [bytes(part) for part in stream] == [b"%d" % i for i in range(1, 50)]


def test_leaving_the_loop_ends_the_generator(uri: str, rig: Rig) -> None:
    ended = threading.Event()

    def handler(request: at.Exchange) -> Iterator[object]:
        try:
            for i in itertools.count():
                yield b"%d" % i
        finally:
            ended.set()

    channel = rig.pair(uri, handler)
    for part in channel.stream(timeout=PATIENCE):
        if bytes(part) == b"5":
            break
    assert ended.wait(PATIENCE)
    del part
    with channel.stream(timeout=PATIENCE) as stream:
        assert bytes(next(stream)) == b"0"


def test_dropped_stream_frees_its_slots(uri: str, rig: Rig) -> None:
    def handler(request: at.Exchange) -> Iterator[object]:
        for _ in range(100):
            yield b"x" * 1000

    channel = rig.pair(uri, handler, slots=4)
    for _ in range(20):
        stream = channel.stream(timeout=PATIENCE)
        next(stream)
        del stream
    gc.collect()
    assert sum(len(part) for part in channel.stream(timeout=PATIENCE)) == 100_000


def test_cancelled_stream_says_so(uri: str, rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    def handler(request: at.Exchange) -> Iterator[object]:
        for i in itertools.count():
            yield b"%d" % i

    stream = rig.pair(uri, handler).stream(timeout=PATIENCE)
    next(stream)
    stream.cancel()
    with pytest.raises(at.Cancelled):
        drain(stream)
    assert not caplog.records  # the handler did not fail


def test_deadline_of_a_stream(uri: str, rig: Rig) -> None:
    leave = threading.Event()

    def handler(request: at.Exchange) -> Iterator[object]:
        yield b"first"
        leave.wait(PATIENCE)

    channel = rig.pair(uri, handler)
    try:
        for timeout, part_timeout in ((0.05, None), (PATIENCE, 0.05)):
            stream = channel.stream(timeout=timeout, part_timeout=part_timeout)
            with pytest.raises(at.TimedOut):
                drain(stream)
    finally:
        leave.set()


def test_kept_parts_are_named(uri: str, rig: Rig) -> None:
    channel = rig.pair(uri, count)
    said = ""
    for timeout in (0.1, 1.0, 10.0):  # until both parts have come in time
        with pytest.raises(at.TimedOut) as failed:
            list(channel.stream(b"10", parts=2, timeout=timeout))
        said = str(failed.value)
        if "all 2 parts were kept" in said:
            break
    assert "all 2 parts were kept" in said


def test_request_in_parts_from_an_iterator(uri: str, rig: Rig) -> None:
    channel = rig.pair(uri, joined)
    assert bytes(channel.call(b"%d" % i for i in range(30))) == b",".join(b"%d" % i for i in range(30))
    assert bytes(channel.call(iter([]))) == b""
    assert bytes(channel.call(iter([b"", b"a", b"", b"b"]))) == b",a,,b"
    assert bytes(channel.call(b"whole")) == b"whole"
    assert bytes(channel(iter([np.array([65, 66], dtype=np.uint8)]))) == b"AB"


def test_both_ways_at_once(uri: str, rig: Rig) -> None:
    channel = rig.pair(uri, both)
    words = [b"word %d" % i for i in range(40)]
    assert [bytes(part) for part in channel.stream(iter(words), timeout=PATIENCE)] == [one.upper() for one in words]


def test_parts_are_sent_one_by_one(uri: str, rig: Rig) -> None:
    channel = rig.pair(uri, both)
    with channel.stream(b"head", continues=True, timeout=PATIENCE) as stream:
        assert bytes(next(stream)) == b"HEAD"
        for word in (b"a", b"b"):
            stream.send(word)
            assert bytes(next(stream)) == word.upper()
        stream.finish(b"end")
        assert [bytes(part) for part in stream] == [b"END"]


def test_parts_of_a_request_stay_in_place(uri: str, rig: Rig) -> None:
    kept: queue.Queue[memoryview] = queue.Queue()

    def handler(request: at.Exchange) -> object:
        for part in request.parts():
            kept.put(part)
        return b"done"

    channel = rig.pair(uri, handler, slots=8)
    assert bytes(channel.call(iter([b"a" * 100, b"b" * 100]), timeout=PATIENCE)) == b"done"
    assert [bytes(kept.get_nowait()[:1]) for _ in range(2)] == [b"a", b"b"]


def test_client_waits_for_its_server(uri: str, rig: Rig) -> None:
    leave = threading.Event()

    def handler(request: at.Exchange) -> object:
        leave.wait(PATIENCE)
        return b"%d" % sum(len(part) for part in request.parts())

    channel = rig.pair(uri, handler, slots=4)
    stream = channel.stream(b"", continues=True, timeout=PATIENCE)
    for _ in range(3):  # the call and three parts have all slots
        with contextlib.suppress(at.TimedOut):
            stream.send(b"x", timeout=0.02)
    with pytest.raises(at.TimedOut, match="nothing was sent"):
        stream.send(b"x", timeout=0.02)
    leave.set()
    stream.finish(b"last", timeout=PATIENCE)
    assert int(bytes(next(stream))) < 10


def test_handler_that_does_not_read_parts_is_told(uri: str, rig: Rig) -> None:
    channel = rig.pair(uri, lambda request: b"all")
    with pytest.raises(at.Unsupported, match="parts"):
        channel.call(iter([b"a", b"b"]))


def test_handler_answers_before_the_requests_end(uri: str, rig: Rig) -> None:
    def handler(request: at.Exchange) -> object:
        request.parts()
        next(iter(request.parts()))
        return b"enough"

    channel = rig.pair(uri, handler)
    endless = (b"x" for _ in itertools.count())
    assert bytes(channel.call(endless, timeout=PATIENCE)) == b"enough"


def test_exception_of_the_iterator_cancels_the_call(uri: str, rig: Rig) -> None:
    seen: queue.Queue[BaseException] = queue.Queue()

    entered = threading.Event()

    def handler(request: at.Exchange) -> object:
        entered.set()
        try:
            return joined(request)
        except at.Error as failed:
            seen.put(failed)
            raise

    def source() -> Iterator[bytes]:
        yield b"a"
        assert entered.wait(PATIENCE)
        raise KeyError("microphone")

    channel = rig.pair(uri, handler)
    with pytest.raises(KeyError, match="microphone"):
        channel.call(source())
    assert isinstance(seen.get(timeout=PATIENCE), at.Cancelled)


def test_streams_run_beside_calls(uri: str, rig: Rig) -> None:
    server = rig.serve(uri, {"count": count, "echo": lambda request: request.data})
    channel = rig.connect(server, slots=32)
    streams = [channel.stream(b"20", target="count", parts=4, timeout=PATIENCE) for _ in range(3)]
    got: list[list[bytes]] = [[], [], []]
    for step in range(20):
        for i, stream in enumerate(streams):
            got[i].append(bytes(next(stream)))
        assert bytes(channel.call(b"%d" % step, target="echo")) == b"%d" % step
    assert got == [[b"%d" % i for i in range(20)]] * 3


def test_many_streams_on_few_threads(uri: str, rig: Rig) -> None:
    server = rig.serve(uri, count, stream_threads=2)
    lengths: queue.Queue[int] = queue.Queue()

    def client() -> None:
        stream = rig.connect(server).stream(b"30", parts=2, timeout=PATIENCE)
        lengths.put(sum(1 for _ in stream))

    threads = [threading.Thread(target=client) for _ in range(6)]
    for thread in threads:
        thread.start()
    assert [lengths.get(timeout=PATIENCE) for _ in threads] == [30] * 6
    for thread in threads:
        thread.join(PATIENCE)


def test_target_that_is_added_answers_in_parts(rig: Rig) -> None:
    server = rig.serve(own_uri("shm"), lambda request: b"")
    channel = rig.connect(server)
    server.add_target("count", count)
    server.add_target("join", joined)
    assert [bytes(part) for part in channel.stream(b"2", target="count")] == [b"0", b"1"]
    assert bytes(channel.call(iter([b"a", b"b"]), target="join")) == b"a,b"
    server.remove_target("count")
    with pytest.raises(at.NotFound):
        list(channel.stream(b"4", target="count"))
