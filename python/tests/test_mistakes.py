# SPDX-License-Identifier: Apache-2.0
"""What ends a C++ program, or would be a wild pointer there, is an exception with a sentence here."""

from __future__ import annotations

import gc
import queue
import threading
import time
import weakref
from collections.abc import Callable

import numpy as np
import pytest
from conftest import PATIENCE, Rig, echo, own_uri, patient

import accel_transport as at


@pytest.fixture
def channel(uri: str, rig: Rig) -> at.Channel:
    return rig.pair(uri, echo)


def test_errors_have_one_base_and_builtin_kin() -> None:
    assert issubclass(at.TimedOut, at.Error)
    for kind, builtin in [
        (at.TimedOut, TimeoutError),
        (at.PeerLost, ConnectionError),
        (at.Closed, ConnectionError),
        (at.InvalidArgument, ValueError),
        (at.NotFound, LookupError),
        (at.Unauthorized, PermissionError),
        (at.OutOfMemory, MemoryError),
    ]:
        assert issubclass(kind, builtin)
    assert str(at.TimedOut("late")) == "timed_out: late"
    assert "longer timeout" in str(at.TimedOut())
    assert {kind.status for kind in at.Error.__subclasses__()} == set(at.Status) - {at.Status.OK}


def test_closed_channel(channel: at.Channel) -> None:
    channel.close()
    channel.close()
    assert not channel.connected
    for use in (lambda: channel.call(b"x"), lambda: channel.submit(b"x"), channel.begin):
        with pytest.raises(at.Closed, match="this channel was closed"):
            use()


def test_calls_in_flight_end_with_their_channel(uri: str, rig: Rig) -> None:
    kept: queue.Queue[at.Exchange] = queue.Queue()
    channel = rig.pair(uri, kept.put)
    call = channel.submit(b"x")
    request = kept.get(timeout=PATIENCE)
    channel.close()
    with pytest.raises(at.Closed):
        call.wait()
    request.reply(b"nobody waits")


def test_response_is_taken_once(channel: at.Channel) -> None:
    call = channel.submit(b"x")
    call.wait()
    for use in (call.wait, lambda: call.done, lambda: call.buffer):
        with pytest.raises(at.InvalidState, match="taken before"):
            use()
    call.cancel()


def test_released_response(channel: at.Channel) -> None:
    response = channel.call(np.arange(3))
    response.release()
    response.release()
    for use in (lambda: response.data, lambda: response.tensors, lambda: response.metadata, lambda: bytes(response),
                lambda: len(response), lambda: memoryview(response), lambda: response.timeline,
                lambda: response.copies):  # fmt: skip
        with pytest.raises(at.InvalidState, match="was released"):
            use()


def test_begun_call_out_of_order(channel: at.Channel) -> None:
    with channel.begin() as call:
        with pytest.raises(at.InvalidState, match="submit the call"):
            call.wait()
        with pytest.raises(at.InvalidArgument, match="length"):
            call.submit()
        with pytest.raises(at.MessageTooLarge):
            call.submit(channel.max_request_bytes + 1)
        with pytest.raises(at.MessageTooLarge, match="request_bytes"):
            call.tensor((channel.max_request_bytes,), "float64")
        with pytest.raises(at.InvalidArgument, match="dtype"):
            call.tensor((1,), "float31")
        with pytest.raises(at.InvalidArgument):
            call.tensor((-1,), "int8")
        call.buffer[:1] = b"a"
        call.submit(1)
        with pytest.raises(at.InvalidState, match="has been submitted"):
            call.submit(1)
        with pytest.raises(at.InvalidState):
            _ = call.buffer
        assert bytes(call.wait()) == b"a"


def test_given_up_call(channel: at.Channel) -> None:
    with channel.begin() as call:
        pass
    with pytest.raises(at.InvalidState, match="given up"):
        call.submit(0)
    assert bytes(channel.call(b"slot is free")) == b"slot is free"


def test_view_of_a_request_keeps_its_slot(uri: str, rig: Rig) -> None:
    channel = rig.pair(uri, echo, slots=1)
    with channel.begin() as call:
        view = call.buffer
    with pytest.raises(at.Overloaded):
        channel.call(b"x")
    view[:] = bytes(len(view))
    del view
    channel.call(b"x")


def test_view_of_a_request_outlives_its_channel(uri: str, rig: Rig) -> None:
    server = rig.serve(uri, echo)
    channel = rig.connect(server)
    view = channel.begin().buffer
    channel.close()
    server.stop()
    del channel, server
    gc.collect()
    view[:] = bytes(len(view))


def test_channel_belongs_to_one_thread_at_a_time(uri: str, rig: Rig) -> None:
    entered, leave = threading.Event(), threading.Event()

    def slow(request: at.Exchange) -> object:
        entered.set()
        assert leave.wait(PATIENCE)
        return request.data

    channel = rig.pair(uri, slow)
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.append(bytes(channel.call(b"theirs"))))
    thread.start()
    assert entered.wait(PATIENCE)
    try:
        for use in (lambda: channel.call(b"mine"), channel.begin, channel.close):
            with pytest.raises(at.InvalidState, match="another thread"):
                use()
    finally:
        leave.set()
        thread.join(PATIENCE)
    assert got == [b"theirs"]


def test_response_is_dropped_on_another_thread_while_its_channel_waits(uri: str, rig: Rig) -> None:
    kept: queue.Queue[at.Exchange] = queue.Queue()

    def handler(request: at.Exchange) -> object:
        if bytes(request.data) == b"first":
            return request.data
        return kept.put(request)  # type: ignore[func-returns-value]

    channel = rig.pair(uri, handler, slots=2)
    responses = [channel.call(b"first")]
    thread = threading.Thread(target=lambda: responses.append(channel.call(b"second")))
    thread.start()
    request = kept.get(timeout=PATIENCE)
    responses.pop(0)
    request.reply(b"answer")
    thread.join(PATIENCE)
    assert bytes(responses[0]) == b"answer"
    assert bytes(channel.call(b"first")) == b"first"


def test_handlers_array_keeps_memory_that_its_client_lent(rig: Rig) -> None:
    context = at.Context()
    views: queue.Queue[np.ndarray] = queue.Queue()
    requests: queue.Queue[at.Exchange] = queue.Queue()

    def handler(request: at.Exchange) -> None:
        views.put(np.frombuffer(request.data, dtype=np.uint8))
        requests.put(request)

    # The memory is free when the session has looked after its peer, which it does once in a peer_timeout.
    channel = rig.connect(rig.serve(own_uri("local"), handler, context=context), context=context, peer_timeout=2.0)
    memory = np.full(4096, 7, dtype=np.uint8)
    seen = weakref.ref(memory)
    call = channel.submit(context.register(memory))
    view = views.get(timeout=PATIENCE)
    call.cancel()
    with pytest.raises(at.Cancelled):
        call.wait()
    del memory
    gc.collect()
    assert seen() is not None
    assert view.sum() == 7 * 4096
    del view
    requests.get(timeout=PATIENCE).reply(b"late")
    while seen() is not None:
        gc.collect()


def test_memory_that_a_call_lent_is_kept_for_exchanges_of_that_time(rig: Rig) -> None:
    context = at.Context()
    requests: queue.Queue[at.Exchange] = queue.Queue()
    server = rig.serve(own_uri("local"), requests.put, context=context)
    channel = rig.connect(server, context=context, peer_timeout=2.0)
    memory = np.zeros(4096, dtype=np.uint8)
    seen = weakref.ref(memory)
    call = channel.submit(context.register(memory))
    first = requests.get(timeout=PATIENCE)
    call.cancel()
    with pytest.raises(at.Cancelled):
        call.wait()
    del memory
    later = rig.connect(server).submit(b"later")  # the first session has ended
    second = requests.get(timeout=PATIENCE)
    gc.collect()
    assert seen() is not None
    first.reply(b"")
    del first
    deadline = time.monotonic() + PATIENCE / 4
    while seen() is not None and time.monotonic() < deadline:
        gc.collect()
    assert seen() is None
    second.reply(b"")
    later.wait()


def test_handlers_array_keeps_memory_that_a_pools_call_lent(rig: Rig) -> None:
    context = at.Context()
    views: queue.Queue[np.ndarray] = queue.Queue()
    requests: queue.Queue[at.Exchange] = queue.Queue()

    def handler(request: at.Exchange) -> None:
        views.put(np.frombuffer(request.response, dtype=np.uint8))
        requests.put(request)

    server = rig.serve(own_uri("local"), handler, context=context)
    memory = np.zeros(4096, dtype=np.uint8)
    seen = weakref.ref(memory)
    timeout = 0.1
    with at.ChannelPool(server.endpoints[0], context=context, **patient(server, {"peer_timeout": 1.0})) as pool:
        region = context.register(memory)
        while views.empty():
            with pytest.raises(at.TimedOut):
                pool.call(b"", into=region, timeout=timeout)
            timeout *= 2
    del memory, region
    gc.collect()
    view = views.get()
    assert seen() is not None
    view[:] = 1
    del view
    requests.get(timeout=PATIENCE).reply(b"late")
    while seen() is not None:
        gc.collect()


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf"), 1e300, -0.001])
def test_timeout_is_a_number_of_seconds(timeout: float, rig: Rig) -> None:
    with pytest.raises(at.InvalidArgument, match="seconds"):
        rig.pair(own_uri("local"), echo).call(b"", timeout=timeout)


def test_timeout_of_zero_has_passed(uri: str, rig: Rig) -> None:
    hold: queue.Queue[at.Exchange] = queue.Queue()
    channel = rig.pair(uri, hold.put)
    with pytest.raises(at.TimedOut):
        channel.call(b"", timeout=0)


def test_handler_that_is_late(uri: str, rig: Rig) -> None:
    leave = threading.Event()
    channel = rig.pair(uri, lambda request: leave.wait(PATIENCE) and request.data)
    with pytest.raises(at.TimedOut):
        channel.call(b"x", timeout=0.05)
    leave.set()
    assert bytes(channel.call(b"next")) == b"next"


@pytest.mark.parametrize(
    "arguments",
    [
        {"metadata": {"Upper": "x"}},
        {"metadata": {"key": "line\n"}},
        {"metadata": {"key": 3}},
        {"metadata": {3: "x"}},
        {"metadata": {f"k{i}": "" for i in range(33)}},
        {"metadata": {"key": "x" * 5000}},
        {"metadata": [("key", "x")]},
        {"target": "with blank"},
        {"target": ""},
        {"target": 7},
        {"target": "\ud800"},
        {"trace": "00-0-0-0"},
        {"trace": 1},
        {"baggage": b"bytes"},
        {"into": bytearray(8)},
    ],
)
def test_options_of_a_call(arguments: dict[str, object], rig: Rig) -> None:
    channel = rig.pair(own_uri("local"), echo)
    with pytest.raises((at.InvalidArgument, at.MessageTooLarge)):
        channel.call(b"", **arguments)  # type: ignore[arg-type]
    assert bytes(channel.call(b"goes on")) == b"goes on"


def test_too_long_request_names_the_option(channel: at.Channel) -> None:
    with pytest.raises(at.MessageTooLarge, match="request_bytes"):
        channel.call(bytes(channel.max_request_bytes + 1))


def test_region_of_another_context_is_registered_or_refused(rig: Rig) -> None:
    region = at.Context().allocate(64)
    channel = rig.pair(own_uri("local"), echo)
    try:
        assert len(channel.call(region)) == 64
    except at.Error:
        assert bytes(channel.call(b"goes on")) == b"goes on"


def test_parts_outside_a_region() -> None:
    region = at.Context().allocate(64)
    for offset, length in [(0, 65), (65, 0), (64, 1), (2**63, 2**63)]:
        with pytest.raises(at.InvalidArgument):
            region.part(offset, length)


def test_read_only_memory_is_not_registered() -> None:
    with pytest.raises(BufferError):
        at.Context().register(b"constant")
    with pytest.raises(TypeError):
        at.Context().register(3)


def test_memory_kinds() -> None:
    for name in ("gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:99999999"):
        with pytest.raises(at.InvalidArgument, match="host or cuda:N"):
            at.Context().allocate(64, memory=name)
    with pytest.raises((at.Unsupported, at.DeviceLost, at.OutOfMemory, at.InvalidArgument)):
        at.Context().allocate(64, memory="cuda:1000")


def test_log_levels() -> None:
    with pytest.raises(at.InvalidArgument, match="warning"):
        at.Context(log="loud")


@pytest.mark.parametrize("handler", [None, 3, {}, {"a b": echo}, {"a": None}, {"a": 3}])
def test_what_is_no_handler(handler: object) -> None:
    with pytest.raises((at.InvalidArgument, TypeError)):
        at.Server(own_uri("local"), handler)  # type: ignore[arg-type]


def test_targets_of_a_server(rig: Rig) -> None:
    server = rig.serve(own_uri("local"), {"a": echo})
    uses: list[Callable[[], object]] = [
        lambda: server.add_target("a", echo),
        lambda: server.add_target("with blank", echo),
        lambda: server.remove_target("b"),
        lambda: server.set_health("a", "fine"),
        lambda: server.set_health("b", "serving"),
    ]
    for use in uses:
        with pytest.raises((at.InvalidArgument, at.NotFound)):
            use()
    server.stop()
    with pytest.raises(at.Closed):
        server.add_target("c", echo)


def test_stopped_server_can_be_asked(rig: Rig) -> None:
    server = rig.serve(own_uri("local"), echo)
    server.stop()
    server.stop()
    assert server.statistics["sessions"] == 0
    assert len(server.endpoints) == 1


def test_no_server_there() -> None:
    with pytest.raises(at.PeerLost, match="listens"):
        at.Channel("tcp://127.0.0.1:1", insecure=True, connect_timeout=PATIENCE)
    with pytest.raises(at.Error):
        at.Channel("local://nobody")


def test_port_in_use(rig: Rig) -> None:
    server = rig.serve("tcp://127.0.0.1:0?insecure=true", echo)
    with pytest.raises(OSError, match="in use") as caught:
        at.Server(server.endpoints[0], echo, insecure=True)
    assert isinstance(caught.value, at.SystemFailure)
    assert caught.value.native != 0


@pytest.mark.parametrize(
    "uri", ["", "tcp", "tcp://", "nope://x", "tcp://h:99999", "unix:///x", "tcp://h:1?sluts=3", "\0"]
)
def test_what_is_no_uri(uri: str) -> None:
    with pytest.raises((at.InvalidArgument, at.Unsupported)):
        at.Channel(uri)


def test_names_of_tensors_that_are_not_there(channel: at.Channel) -> None:
    response = channel.call(b"bytes")
    assert response.tensors == []
    with pytest.raises(at.NotFound, match="0 tensors"):
        response.tensor(0)
    with pytest.raises(at.NotFound):
        np.from_dlpack(response)


def test_closed_pool(rig: Rig) -> None:
    server = rig.serve(own_uri("local"), echo)
    pool = at.ChannelPool(server.endpoints[0], **patient(server, {}))
    assert bytes(pool.call(b"x")) == b"x"
    pool.leave()
    assert pool.close()
    with pytest.raises(at.Closed):
        pool.call(b"x")


@pytest.mark.parametrize("kind", ["Call", "Exchange", "Region", "Response", "Tensor"])
@pytest.mark.filterwarnings("ignore:nanobind")
def test_classes_of_the_library_are_not_made_by_hand(kind: str) -> None:
    made = getattr(at, kind)
    with pytest.raises(TypeError):
        made()
    for use in (len, memoryview, lambda one: one.tensor(), lambda one: one.data, lambda one: one.wait()):
        with pytest.raises((TypeError, BufferError, AttributeError)):
            use(made.__new__(made))
