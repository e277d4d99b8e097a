# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio

import pytest
from conftest import PATIENCE
from test_aio import connect, echo_later
from test_aio_streams import aboth, words

import accel_transport as at

uvloop = pytest.importorskip("uvloop")


def test_calls_and_streams_in_uvloop(uri: str) -> None:
    async def main() -> None:
        async with at.Server(uri, {"echo": echo_later, "both": aboth}) as server, connect(server) as channel:
            got = await asyncio.gather(*[channel(b"%d" % i, target="echo", timeout=PATIENCE) for i in range(4)])
            assert [bytes(one) for one in got] == [b"%d" % i for i in range(4)]
            del got
            stream = channel.stream(words(20), target="both", timeout=PATIENCE)
            assert [bytes(part) async for part in stream] == [b"WORD %d" % i for i in range(20)]

    uvloop.run(asyncio.wait_for(main(), PATIENCE))
