# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import os
import queue
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest
from conftest import PATIENCE, Rig, echo, patient

import accel_transport as at


def run(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine function."""
    import functools

    @functools.wraps(test)
    def in_loop(*args: Any, **named: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **named), PATIENCE))

    return in_loop


def connect(server: at.Server, **options: Any) -> at.connect:
    return at.connect(server.endpoints[0], **patient(server, options))


async def echo_later(request: at.Exchange) -> object:
    await asyncio.sleep(0)
    return request.tensors or request.data


@run
async def test_call_is_awaited(uri: str, rig: Rig) -> None:
    async with connect(rig.serve(uri, echo)) as channel:
        assert bytes(await channel(b"hello", timeout=PATIENCE)) == b"hello"
        assert np.from_dlpack(await channel.call(np.arange(3))).tolist() == [0, 1, 2]


@run
async def test_handlers_are_tasks_of_the_loop(uri: str) -> None:
    threads = set()

    async def handler(request: at.Exchange) -> object:
        threads.add(threading.get_ident())
        return await echo_later(request)

    async with at.Server(uri, handler) as server, connect(server) as channel:
        assert bytes(await channel(b"hello")) == b"hello"
    assert threads == {threading.get_ident()}


@run
async def test_more_calls_than_slots_wait_in_line(uri: str) -> None:
    async with at.Server(uri, echo_later) as server, connect(server, slots=4) as channel:
        got = await asyncio.gather(*[_bytes(channel, b"%d" % i) for i in range(100)])
        assert got == [b"%d" % i for i in range(100)]


async def _bytes(channel: at.aio.Channel, data: bytes) -> bytes:
    return bytes(await channel(data))


@run
async def test_call_gets_the_slot_of_a_response_that_another_thread_drops(uri: str, rig: Rig) -> None:
    async with connect(rig.serve(uri, echo), slots=1) as channel:
        held = [await channel(b"held")]
        waiting = asyncio.create_task(_bytes(channel, b"next"))
        await asyncio.sleep(0)
        await asyncio.to_thread(held.clear)
        assert await waiting == b"next"


@run
async def test_deadline_counts_while_waiting_for_a_slot(uri: str, rig: Rig) -> None:
    async with connect(rig.serve(uri, echo), slots=1) as channel:
        held = await channel(b"held")
        with pytest.raises(at.TimedOut, match="slot"):
            await channel(b"next", timeout=0.02)
        del held
        assert bytes(await channel(b"next")) == b"next"


@run
async def test_handler_that_is_late(uri: str) -> None:
    leave = asyncio.Event()

    async def slow(request: at.Exchange) -> object:
        await leave.wait()
        return request.data

    async with at.Server(uri, slow) as server, connect(server) as channel:
        with pytest.raises(at.TimedOut):
            await channel(b"x", timeout=0.05)
        leave.set()
        assert bytes(await channel(b"next")) == b"next"


@run
async def test_failed_calls_do_not_keep_their_slots(uri: str) -> None:
    leave = asyncio.Event()

    async def handler(request: at.Exchange) -> object:
        await leave.wait()
        return request.data

    async with at.Server(uri, handler) as server, connect(server, slots=2) as channel:
        failures = []
        for _ in range(2):
            try:
                await channel(b"late", timeout=0.01)
            except at.TimedOut as failed:
                failures.append(failed)
        waiting = asyncio.create_task(_bytes(channel, b"next"))  # for a late answer to free a slot
        await asyncio.sleep(0)
        leave.set()
        assert await waiting == b"next"
        assert len(failures) == 2


@run
async def test_cancelled_task_cancels_its_call(uri: str) -> None:
    entered, cancelled = asyncio.Event(), asyncio.Event()

    async def handler(request: at.Exchange) -> object:
        entered.set()
        while not request.cancelled:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        cancelled.set()
        return b""

    async with at.Server(uri, handler) as server, connect(server) as channel:
        task = asyncio.create_task(channel.call(b"x"))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await cancelled.wait()


@run
async def test_cancelled_task_frees_what_it_lent(uri: str) -> None:
    import gc
    import weakref

    entered, leave = asyncio.Event(), asyncio.Event()

    async def handler(request: at.Exchange) -> object:
        entered.set()
        await leave.wait()
        return b""

    context = at.Context()
    async with at.Server(uri, handler, context=context) as server, connect(server, context=context) as channel:
        memory = np.zeros(4096, dtype=np.uint8)
        seen = weakref.ref(memory)
        task = asyncio.create_task(channel.call(context.register(memory)))
        del memory
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
        leave.set()
        while seen() is not None:
            gc.collect()
            await asyncio.sleep(0.001)


@run
async def test_task_cancelled_in_line_gives_its_turn_away(uri: str, rig: Rig) -> None:
    async with connect(rig.serve(uri, echo), slots=1) as channel:
        held = [await channel(b"held")]
        first = asyncio.create_task(_bytes(channel, b"first"))
        second = asyncio.create_task(_bytes(channel, b"second"))
        await asyncio.sleep(0)
        held.clear()  # gives the turn to the first
        first.cancel()
        assert await second == b"second"


@run
async def test_handlers_exception_is_the_answer(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    async def handler(request: at.Exchange) -> object:
        x = np.frombuffer(request.data, dtype=np.uint8)
        raise ValueError(f"sum {x.sum()}")

    async with at.Server(uri, handler) as server, connect(server) as channel:
        with pytest.raises(at.ApplicationError, match="ValueError: sum 3"):
            await channel(b"\1\2")
    assert "Traceback" in caplog.text


@run
async def test_channel_closes_with_calls_in_flight(uri: str) -> None:
    kept: asyncio.Queue[at.Exchange] = asyncio.Queue()
    async with at.Server(uri, kept.put, drain_timeout=0.0) as server:
        channel = await connect(server, slots=1)
        tasks = [asyncio.create_task(channel.call(b"x")) for _ in range(3)]
        request = await kept.get()
        await channel.aclose()
        await channel.aclose()
        for task in tasks:
            with pytest.raises(at.Closed):
                await task
        with pytest.raises(at.Closed):
            await channel.call(b"x")
        request.reply(b"")


@run
async def test_server_stops_while_a_handler_is_at_work(uri: str) -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def handler(request: at.Exchange) -> object:
        entered.set()
        await leave.wait()
        return b"last"

    server = at.Server(uri, handler, drain_timeout=PATIENCE)
    async with connect(server) as channel:
        task = asyncio.create_task(channel.call(b"x"))
        await entered.wait()
        stopping = asyncio.create_task(server.aclose())
        await asyncio.sleep(0)
        leave.set()
        assert bytes(await task) == b"last"
        await stopping
        with pytest.raises(at.Error):
            await channel.call(b"x")


@run
async def test_lost_server_ends_calls(uri: str, rig: Rig) -> None:
    kept: queue.Queue[at.Exchange] = queue.Queue()
    server = rig.serve(uri, kept.put, drain_timeout=0.0)
    async with connect(server) as channel:
        task = asyncio.create_task(channel.call(b"x"))
        request = await asyncio.to_thread(kept.get, timeout=PATIENCE)
        await asyncio.to_thread(server.stop)
        with pytest.raises(at.PeerLost):
            await task
        assert not channel.connected
        request.reply(b"nobody waits")


@run
async def test_several_channels_share_the_loop(uri: str) -> None:
    async with at.Server(uri, echo_later) as server:
        channels = [await connect(server) for _ in range(3)]
        got = await asyncio.gather(*[_bytes(one, b"x") for one in channels for _ in range(10)])
        assert got == [b"x"] * 30
        for one in channels:
            await one.aclose()


@run
async def test_blocking_connect_fails_as_awaited(uri: str) -> None:
    with pytest.raises(at.Error):
        await at.connect("local://nobody")
    with pytest.raises(at.InvalidArgument):
        async with at.connect("nonsense"):
            pass


def test_async_handler_needs_a_loop(uri: str) -> None:
    with pytest.raises(at.InvalidState, match="running event loop"):
        at.Server(uri, echo_later)
    with pytest.raises(at.InvalidArgument, match="workers"):
        at.Server(uri, echo, workers=0)
    with pytest.raises(at.InvalidArgument, match="all"):
        at.Server(uri, {"a": echo, "b": echo_later})


@run
async def test_forever_ends_with_a_signal() -> None:
    task = asyncio.create_task(at.forever())
    await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGTERM)
    await task
