# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
import types

import pytest
from conftest import PATIENCE, Rig, echo, patient

import accel_transport as at


def test_bytes_return(uri: str, rig: Rig) -> None:
    channel = rig.pair(uri, echo)
    for data in (b"", b"hello", b"x" * 100_000, bytearray(b"array"), memoryview(b"view")):
        with channel.call(data) as response:
            assert bytes(response) == data
            assert len(response) == len(data)


def test_strided_view_is_sent_as_its_bytes(uri: str, rig: Rig) -> None:
    assert bytes(rig.pair(uri, echo).call(memoryview(b"abcdef")[::2])) == b"ace"


def test_response_is_read_in_place(uri: str, rig: Rig) -> None:
    response = rig.pair(uri, echo).call(b"in place")
    view = memoryview(response)
    assert view.readonly
    assert bytes(view) == b"in place"
    del response
    assert view.tobytes() == b"in place"


def test_request_is_written_in_place(uri: str, rig: Rig) -> None:
    channel = rig.pair(uri, echo)
    with channel.begin() as call:
        call.buffer[:5] = b"hello"
        call.submit(5)
        response = call.wait()
    assert bytes(response) == b"hello"
    assert response.copies == 0


def test_lent_region_is_sent_without_a_copy(uri: str, rig: Rig) -> None:
    context = at.Context()
    server = rig.serve(uri, echo)
    channel = rig.connect(server, context=context)
    region = context.allocate(4096)
    region.buffer[:4] = b"lent"
    response = channel.call(region.part(0, 4))
    assert bytes(response) == b"lent"
    assert response.copies == 0


def test_response_goes_into_a_registered_array(uri: str, rig: Rig) -> None:
    context = at.Context()
    channel = rig.connect(rig.serve(uri, echo), context=context)
    mine = bytearray(4096)
    region = context.register(mine)
    with channel.call(b"into", into=region) as response:
        assert bytes(response) == b"into"
    assert mine[:4] == b"into"


def test_region_outlives_its_name_while_a_call_lends_it(uri: str, rig: Rig) -> None:
    context = at.Context()
    entered, leave = threading.Event(), threading.Event()

    def slow(request: at.Exchange) -> object:
        entered.set()
        assert leave.wait(PATIENCE)
        return request.data

    channel = rig.connect(rig.serve(uri, slow), context=context)
    region = context.allocate(64)
    region.buffer[:4] = b"kept"
    call = channel.submit(region.part(0, 4))
    del region
    assert entered.wait(PATIENCE)
    leave.set()
    assert bytes(call.wait()) == b"kept"


def test_metadata_travels_both_ways(uri: str, rig: Rig) -> None:
    seen: list[object] = []

    def handler(request: at.Exchange) -> None:
        seen.append(request.metadata)
        request.reply(b"", metadata={"quota": "41", "raw-bin": b"\0\xff"})

    response = rig.pair(uri, handler).call(b"", metadata={"tenant": "blue", "id-bin": b"\x01"})
    assert seen == [{"tenant": "blue", "id-bin": b"\x01"}]
    assert response.metadata == {"quota": "41", "raw-bin": b"\0\xff"}


def test_metadata_is_any_mapping(uri: str, rig: Rig) -> None:
    metadata = types.MappingProxyType({"a": "b"})
    channel = rig.pair(uri, lambda request: request.reply(b"", metadata=types.MappingProxyType(request.metadata)))
    assert channel.call(b"", metadata=metadata).metadata == {"a": "b"}


def test_long_metadata_follows_the_payload(uri: str, rig: Rig) -> None:
    def handler(request: at.Exchange) -> None:
        request.reply(bytes(request.data), metadata=request.metadata)

    metadata = {f"key-{i}": "v" * 100 for i in range(20)}
    response = rig.pair(uri, handler).call(b"payload", metadata=metadata)
    assert (bytes(response), response.metadata) == (b"payload", metadata)


def test_trace_and_baggage_reach_the_handler(uri: str, rig: Rig) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    def handler(request: at.Exchange) -> object:
        return f"{request.trace} {request.baggage}".encode()

    assert bytes(rig.pair(uri, handler).call(b"", trace=trace, baggage="k=v")) == f"{trace} k=v".encode()


def test_targets_choose_the_handler(uri: str, rig: Rig) -> None:
    server = rig.serve(uri, {"double": lambda r: bytes(r.data) * 2, None: lambda r: r.target.encode()})
    channel = rig.connect(server)
    assert bytes(channel.call(b"ab", target="double")) == b"abab"
    assert bytes(channel.call(b"ab")) == b""
    server.add_target("later", lambda r: r.target.encode())
    assert bytes(channel.call(b"", target="later")) == b"later"
    assert channel.targets() == ["double", "later"]
    server.remove_target("later")
    with pytest.raises(at.NotFound, match="double"):
        channel.call(b"", target="later")


def test_health_says_what_the_server_has_set(uri: str, rig: Rig) -> None:
    server = rig.serve(uri, {"model": echo})
    channel = rig.connect(server)
    assert channel.health("model") == "serving"
    server.set_health("model", "not_serving")
    assert channel.health("model") == "not_serving"
    assert channel.health() == "serving"


def test_calls_in_flight_end_in_any_order(uri: str, rig: Rig) -> None:
    channel = rig.pair(uri, echo, slots=4)
    calls = [channel.submit(str(i).encode()) for i in range(4)]
    assert [bytes(call.wait()) for call in reversed(calls)] == [b"3", b"2", b"1", b"0"]


def test_call_waits_for_a_slot(uri: str, rig: Rig) -> None:
    channel = rig.pair(uri, echo, slots=1)
    first = channel.submit(b"first")
    # Its response comes while the second call waits, and goes when it is dropped on another thread.
    waiter = threading.Timer(0.05, first.cancel)
    waiter.start()
    del first
    waiter.join()
    del waiter
    assert bytes(channel.call(b"second")) == b"second"


def test_timeline_and_statistics_count(uri: str, rig: Rig) -> None:
    server = rig.serve(uri, echo)
    response = rig.connect(server).call(b"x")
    assert response.timeline["total"] > 0
    assert server.statistics["requests"] == 1


def test_metrics_are_prometheus_text(uri: str, rig: Rig) -> None:
    context = at.Context(metrics=True)
    channel = rig.connect(rig.serve(uri, echo, context=context), context=context)
    channel.call(b"x")
    assert "accel_" in context.metrics()
    assert at.Context().metrics() == ""


def test_pool_serves_many_threads(uri: str, rig: Rig) -> None:
    server = rig.serve(uri, echo)
    got: list[bytes] = []
    with at.ChannelPool(server.endpoints[0], **patient(server, {})) as pool:
        threads = [threading.Thread(target=lambda i=i: got.append(bytes(pool.call(b"%d" % i)))) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert sorted(got) == [b"%d" % i for i in range(8)]
        assert pool.statistics["channels"] >= 1


def test_doctor_names_every_scheme() -> None:
    schemes = {scheme.name: scheme for scheme in at.doctor()}
    assert schemes["local"].usable
    assert schemes["tcp"].usable
    assert {"shm", "zmq", "rdma", "gdr"} <= set(schemes)


def test_keys_let_in_who_has_them(tmp_path: object) -> None:
    with pytest.raises(at.Error, match="key"):
        at.Server("tcp://127.0.0.1:0", echo)
