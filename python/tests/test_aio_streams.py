# SPDX-License-Identifier: Apache-2.0
"""Requests and responses in parts, in an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
from collections.abc import AsyncIterator

import pytest
from conftest import PATIENCE, Rig, own_uri
from test_aio import connect, run
from test_streams import both, count, joined

import accel_transport as at


async def acount(request: at.Exchange) -> AsyncIterator[object]:
    for i in range(int(bytes(request.data))):
        yield b"%d" % i
        await asyncio.sleep(0)


async def ajoined(request: at.Exchange) -> object:
    return b",".join([bytes(part) async for part in request.parts()])


async def aboth(request: at.Exchange) -> AsyncIterator[object]:
    async for part in request.parts():
        yield bytes(part).upper()


async def words(number: int) -> AsyncIterator[bytes]:
    for i in range(number):
        await asyncio.sleep(0)
        yield b"word %d" % i


@run
async def test_async_generator_answers_in_parts(uri: str) -> None:
    async with at.Server(uri, acount) as server, connect(server) as channel:
        for length in (20, 0, 3):
            stream = channel.stream(b"%d" % length, timeout=PATIENCE)
            assert [bytes(part) async for part in stream] == [b"%d" % i for i in range(length)]
        with pytest.raises(at.Unsupported, match="stream"):
            await channel.call(b"3")


@run
async def test_loop_reads_a_plain_generator(uri: str, rig: Rig) -> None:
    async with connect(rig.serve(uri, count)) as channel:
        assert [bytes(part) async for part in channel.stream(b"30")] == [b"%d" % i for i in range(30)]


@run
async def test_async_generator_waits_for_its_client(uri: str) -> None:
    sent: list[int] = []

    async def handler(request: at.Exchange) -> AsyncIterator[object]:
        for i in range(50):
            sent.append(i)
            yield b"%d" % i

    async with at.Server(uri, handler) as server, connect(server) as channel:
        stream = channel.stream(parts=2, timeout=PATIENCE)
        assert bytes(await stream.__anext__()) == b"0"
        assert len(sent) < 7
        assert [bytes(part) async for part in stream] == [b"%d" % i for i in range(1, 50)]


@run
async def test_requests_in_parts(uri: str) -> None:
    async with at.Server(uri, ajoined) as server, connect(server) as channel:
        expected = b",".join(b"word %d" % i for i in range(30))
        assert bytes(await channel.call(words(30), timeout=PATIENCE)) == expected
        assert bytes(await channel(iter([b"a", b"b"]))) == b"a,b"
        assert bytes(await channel(iter([]))) == b""
        assert bytes(await channel(b"whole")) == b"whole"


@run
async def test_blocking_handler_takes_an_async_iterator(uri: str, rig: Rig) -> None:
    async with connect(rig.serve(uri, {"join": joined, "both": both})) as channel:
        assert bytes(await channel.call(words(2), target="join")) == b"word 0,word 1"
        stream = channel.stream(words(20), target="both", timeout=PATIENCE)
        assert [bytes(part) async for part in stream] == [b"WORD %d" % i for i in range(20)]


@run
async def test_both_ways_at_once(uri: str) -> None:
    async with at.Server(uri, aboth) as server, connect(server) as channel:
        stream = channel.stream(words(40), timeout=PATIENCE)
        assert [bytes(part) async for part in stream] == [b"WORD %d" % i for i in range(40)]
        async with channel.stream(b"head", continues=True, timeout=PATIENCE) as chat:
            assert bytes(await anext(chat)) == b"HEAD"
            await chat.send(b"a")
            assert bytes(await anext(chat)) == b"A"
            await chat.finish(b"end")
            assert [bytes(part) async for part in chat] == [b"END"]


@run
async def test_many_streams_share_a_channel(uri: str) -> None:
    async def read(channel: at.aio.Channel, length: int) -> int:
        return len([bytes(part) async for part in channel.stream(b"%d" % length, parts=2, timeout=PATIENCE)])

    async with at.Server(uri, acount) as server, connect(server, slots=8) as channel:
        assert await asyncio.gather(*[read(channel, i) for i in range(30)]) == list(range(30))


@run
async def test_uploads_and_calls_share_few_slots(uri: str) -> None:
    async def upload(channel: at.aio.Channel) -> bytes:
        return bytes(await channel.call(words(5), timeout=PATIENCE))

    async def call(channel: at.aio.Channel) -> bytes:
        return bytes(await channel.call(b"whole", timeout=PATIENCE))

    async with at.Server(uri, ajoined) as server, connect(server, slots=6) as channel:
        got = await asyncio.gather(*[upload(channel) for _ in range(2)], *[call(channel) for _ in range(10)])
        assert got == [b",".join(b"word %d" % i for i in range(5))] * 2 + [b"whole"] * 10


@pytest.mark.parametrize("how", ["break", "cancel", "aclose", "task"])
@run
async def test_leaving_ends_the_generator(how: str) -> None:
    entered, ended = asyncio.Event(), asyncio.Event()

    async def handler(request: at.Exchange) -> AsyncIterator[object]:
        entered.set()
        try:
            for i in itertools.count():
                yield b"%d" % i
        finally:
            ended.set()

    async def read(stream: at.aio.Stream) -> None:
        async for part in stream:
            if how == "break" and bytes(part) == b"5":
                break
            if how == "cancel" and bytes(part) == b"5":
                stream.cancel()
            if how == "aclose" and bytes(part) == b"5":
                await stream.aclose()

    async with at.Server(own_uri("shm"), handler) as server, connect(server) as channel:
        task = asyncio.create_task(read(channel.stream(timeout=PATIENCE)))
        if how == "task":
            await entered.wait()
            task.cancel()
        with contextlib.suppress(at.Cancelled, at.InvalidState, asyncio.CancelledError):
            await task
        del task
        gc.collect()
        await ended.wait()


@run
async def test_exception_comes_after_the_parts(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    async def handler(request: at.Exchange) -> AsyncIterator[object]:
        yield b"one"
        raise ValueError("broken layer")

    async with at.Server(uri, handler) as server, connect(server) as channel:
        stream = channel.stream()
        assert bytes(await anext(stream)) == b"one"
        with pytest.raises(at.ApplicationError, match="ValueError: broken layer"):
            await anext(stream)
    assert "Traceback" in caplog.text


@run
async def test_exception_of_the_source_cancels_the_call(uri: str) -> None:
    entered = asyncio.Event()
    seen: asyncio.Queue[BaseException] = asyncio.Queue()

    async def handler(request: at.Exchange) -> object:
        entered.set()
        try:
            return await ajoined(request)
        except at.Error as failed:
            seen.put_nowait(failed)
            raise

    async def source() -> AsyncIterator[bytes]:
        yield b"a"
        await entered.wait()
        raise KeyError("microphone")

    async with at.Server(uri, handler) as server, connect(server) as channel:
        with pytest.raises(KeyError, match="microphone"):
            await channel.call(source(), timeout=PATIENCE)
        assert isinstance(await seen.get(), at.Cancelled)


@run
async def test_deadline_of_a_stream(uri: str) -> None:
    leave = asyncio.Event()

    async def handler(request: at.Exchange) -> AsyncIterator[object]:
        yield b"first"
        await leave.wait()

    async with at.Server(uri, handler) as server, connect(server) as channel:
        for timeout, part_timeout in ((0.05, None), (PATIENCE, 0.05)):
            with pytest.raises(at.TimedOut):
                async for _ in channel.stream(timeout=timeout, part_timeout=part_timeout):
                    pass
        leave.set()


@run
async def test_streams_end_with_their_channel(uri: str) -> None:
    async def handler(request: at.Exchange) -> AsyncIterator[object]:
        yield b"first"
        await asyncio.sleep(PATIENCE)

    async with at.Server(uri, handler, drain_timeout=0.0) as server:
        channel = await connect(server)
        stream = channel.stream(timeout=PATIENCE)
        assert bytes(await anext(stream)) == b"first"
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        await channel.aclose()
        with pytest.raises(at.Closed):
            await waiting
        with pytest.raises(at.Closed):
            await anext(channel.stream())


@run
async def test_targets_come_and_go_while_a_loop_serves(uri: str) -> None:
    async with at.Server(uri, {"count": acount}) as server, connect(server) as channel:
        assert await channel.targets() == ["count"]
        assert await channel.health("count") == "serving"
        server.add_target("join", ajoined)
        server.set_health("count", "not_serving")
        assert await channel.targets() == ["count", "join"]
        assert await channel.health("count") == "not_serving"
        assert bytes(await channel.call(words(2), target="join")) == b"word 0,word 1"
        server.remove_target("join")
        with pytest.raises(at.NotFound):
            await channel.call(b"x", target="join")
        assert await channel.health("nobody") == "unknown"
        with pytest.raises(at.InvalidArgument, match="all"):
            server.add_target("plain", joined)
    with pytest.raises(at.Closed):
        await channel.targets()
