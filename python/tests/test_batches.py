# SPDX-License-Identifier: Apache-2.0
"""Handlers that take several requests at once."""

from __future__ import annotations

import asyncio
import queue
import threading
from typing import Any

import pytest
from conftest import PATIENCE, Rig, own_uri
from test_aio import connect, run

import accel_transport as at


def test_batch_is_answered_at_once(uri: str, rig: Rig) -> None:
    sizes: list[int] = []

    @at.batched(max=4, wait=PATIENCE)
    def handler(requests: list[at.Exchange]) -> list[object]:
        sizes.append(len(requests))
        return [bytes(request.data)[::-1] for request in requests]

    channel = rig.pair(uri, handler, slots=8)
    calls = [channel.submit(b"a%d" % i) for i in range(8)]
    assert [bytes(call.wait()) for call in calls] == [b"%da" % i for i in range(8)]
    assert sizes == [4, 4]


def test_single_request_does_not_wait_for_a_full_batch(uri: str, rig: Rig) -> None:
    @at.batched
    def handler(requests: list[at.Exchange]) -> list[object]:
        return [b"%d" % len(requests)] * len(requests)

    assert bytes(rig.pair(uri, handler).call(b"x", timeout=PATIENCE)) == b"1"


def test_methods_are_batched(uri: str, rig: Rig) -> None:
    class Model:
        @at.batched(max=2, wait=0.0)
        def infer(self, requests: list[at.Exchange]) -> tuple[object, ...]:
            return tuple(request.data for request in requests)

    assert bytes(rig.pair(uri, Model().infer).call(b"x", timeout=PATIENCE)) == b"x"


def failing(requests: list[at.Exchange]) -> Any:
    requests[0].reply(b"first")
    raise ValueError("no memory")


def wrong_count(requests: list[at.Exchange]) -> Any:
    return [b"x"]


def one_fails(requests: list[at.Exchange]) -> Any:
    return [KeyError("its own"), b"good"]


def answers_itself(requests: list[at.Exchange]) -> Any:
    for request in requests:
        request.reply(b"itself")


def outcomes(channel: at.Channel, number: int) -> list[str]:
    out = []
    for call in [channel.submit(b"%d" % i) for i in range(number)]:
        try:
            out.append(bytes(call.wait()).decode())
        except at.Error as failed:
            out.append(str(failed))
    return out


def test_failures_of_a_batch(uri: str, rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    mark = at.batched(max=2, wait=PATIENCE)
    first, second = outcomes(rig.pair(uri, mark(failing)), 2)
    assert first == "first"
    assert "ValueError: no memory" in second
    assert caplog.text.count("Traceback") == 1


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        (wrong_count, ["answer for each of 2, not 1"] * 2),
        (one_fails, ["KeyError: 'its own'", "good"]),
        (answers_itself, ["itself", "itself"]),
        (lambda requests: "no list", ["not str"] * 2),
    ],
)
def test_answers_of_a_batch(handler: Any, expected: list[str], rig: Rig) -> None:
    got = outcomes(rig.pair(own_uri("shm"), at.batched(max=2, wait=PATIENCE)(handler)), 2)
    for text, part in zip(got, expected, strict=True):
        assert part in text


def test_request_whose_deadline_has_passed_is_left_out(uri: str, rig: Rig) -> None:
    entered, leave = threading.Event(), threading.Event()
    batches: queue.Queue[list[bytes]] = queue.Queue()

    @at.batched(max=8, wait=0.0)
    def handler(requests: list[at.Exchange]) -> list[object]:
        batches.put([bytes(request.data) for request in requests])
        entered.set()
        assert leave.wait(PATIENCE)
        return [b""] * len(requests)

    channel = rig.pair(uri, handler)
    first = channel.submit(b"first")
    assert entered.wait(PATIENCE)
    late = channel.submit(b"late", timeout=0.05)
    last = channel.submit(b"last", timeout=PATIENCE)
    with pytest.raises(at.TimedOut):
        late.wait()
    leave.set()
    first.wait()
    last.wait()
    assert [batches.get_nowait() for _ in range(batches.qsize())] == [[b"first"], [b"last"]]


def test_server_with_a_batched_handler_ends(rig: Rig) -> None:
    @at.batched(max=8, wait=PATIENCE)
    def handler(requests: list[at.Exchange]) -> list[object]:
        return [b"x"] * len(requests)

    server = rig.serve(own_uri("local"), handler, drain_timeout=0.0)
    call = rig.connect(server).submit(b"alone")
    server.stop()
    with pytest.raises(at.Error):
        call.wait()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("accel-batch") and _ends(thread)]


def _ends(thread: threading.Thread) -> bool:
    thread.join(PATIENCE)
    return thread.is_alive()


@run
async def test_batch_of_a_coroutine_function(uri: str) -> None:
    sizes: list[int] = []

    @at.batched(max=4, wait=0.001)
    async def handler(requests: list[at.Exchange]) -> list[object]:
        sizes.append(len(requests))
        await asyncio.sleep(0)
        return [request.data for request in requests]

    async with at.Server(uri, handler) as server, connect(server, slots=16) as channel:
        got = await asyncio.gather(*[channel.call(b"%d" % i, timeout=PATIENCE) for i in range(16)])
        assert [bytes(one) for one in got] == [b"%d" % i for i in range(16)]
        assert max(sizes) <= 4
        assert sum(sizes) == 16
        del got
        assert bytes(await channel(b"alone", timeout=PATIENCE)) == b"alone"


@run
async def test_failure_of_a_coroutines_batch(uri: str) -> None:
    @at.batched(max=2, wait=PATIENCE)
    async def handler(requests: list[at.Exchange]) -> list[object]:
        raise ValueError("no memory")

    async with at.Server(uri, handler) as server, connect(server) as channel:
        calls = [channel.call(b"x", timeout=PATIENCE) for _ in range(2)]
        got = await asyncio.gather(*calls, return_exceptions=True)
        assert ["no memory" in str(one) for one in got] == [True, True]


@pytest.mark.parametrize(
    "use",
    [
        lambda: at.batched(max=0),
        lambda: at.batched(max=True),
        lambda: at.batched(wait=-1),
        lambda: at.batched(wait=float("nan")),
        lambda: at.batched(concurrent=0),
        lambda: at.batched(3),  # type: ignore[call-overload]
        lambda: at.batched(len),
    ],
)
def test_what_is_not_batched(use: Any) -> None:
    with pytest.raises(at.InvalidArgument):
        use()


def test_generators_are_not_batched() -> None:
    with pytest.raises(at.InvalidArgument, match="yield"):

        @at.batched
        def handler(requests: list[at.Exchange]) -> Any:
            yield b""
