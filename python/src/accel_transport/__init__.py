# SPDX-License-Identifier: Apache-2.0
"""Zero-copy request/response transport for model serving.

import accel_transport as at

with at.Server("tcp://127.0.0.1:0", lambda request: request.data, insecure=True) as server:
    with at.connect(server.endpoints[0], insecure=True) as channel:
        print(bytes(channel.call(b"hello", timeout=1.0)))
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from . import aio
from ._batch import batched
from ._blocking import Channel, ChannelPool
from ._context import Scheme, doctor
from ._core import Call, Context, Exchange, Region, Response, Tensor
from ._errors import (
    Abandoned,
    Again,
    ApplicationError,
    Cancelled,
    Closed,
    DeviceLost,
    Error,
    InvalidArgument,
    InvalidState,
    MessageTooLarge,
    NotFound,
    OutOfMemory,
    Overloaded,
    PeerLost,
    ProtocolError,
    Status,
    SystemFailure,
    TimedOut,
    Unauthorized,
    Unsupported,
    VersionMismatch,
)
from ._options import ChannelOptions, ServerOptions
from ._server import Server
from ._stream import RequestParts, Stream
from .aio import forever

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

    from typing_extensions import Unpack


class connect:
    """Connects to a server for a block, and closes the channel at its end.

        with at.connect("tcp://host:5555", call_timeout=0.1) as channel:  # a Channel, whose calls wait
            answer = channel(data)

        async with at.connect("auto://host:5555") as channel:             # an aio.Channel, whose calls are awaited
            answer = await channel(data)

    Without a block: `Channel(uri)`, or `await connect(uri)` in an event loop.

    uri: the transport, the server and options, such as "auto://host:5555?slots=4"; docs/uris.md has them all.
    context: for channels that share registered memory and metrics; without it, one that the process shares.
    options: those of the URI as keyword arguments (ChannelOptions); durations are seconds. An option that the URI has
    goes before the keyword.

    Connecting happens when the block begins. It takes at most connect_timeout (5 s) and connect_retry (0), and raises:

    - InvalidArgument: a host without an address, or a misspelt option; the text lists the valid ones
    - PeerLost: nobody listens there, or the server went away meanwhile
    - TimedOut: the server did not answer within connect_timeout
    - Unauthorized: a key is missing or wrong
    - Unsupported: this machine or build lacks the transport (`doctor()` says what), or the server does not offer it
    - Overloaded: the server has as many clients as it takes
    - VersionMismatch: the server speaks another version of the protocol
    """

    def __init__(self, uri: str, *, context: Context | None = None, **options: Unpack[ChannelOptions]) -> None:
        self._uri = uri
        self._context = context
        self._options = options
        self._blocking: Channel | None = None
        self._async: aio.Channel | None = None

    def __enter__(self) -> Channel:
        self._blocking = self._open()
        return self._blocking

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._blocking is not None:
            self._blocking.close()

    def __await__(self) -> Generator[object, None, aio.Channel]:
        return self._aopen().__await__()

    async def __aenter__(self) -> aio.Channel:
        self._async = await self._aopen()
        return self._async

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._async is not None:
            await self._async.aclose()

    def _open(self) -> Channel:
        return Channel(self._uri, context=self._context, **self._options)

    async def _aopen(self) -> aio.Channel:
        loop = asyncio.get_running_loop()
        # Names are resolved and keys exchanged there; no call ever goes through the executor.
        return aio.Channel(await loop.run_in_executor(None, self._open), loop)


__all__ = [
    "Abandoned",
    "Again",
    "ApplicationError",
    "Call",
    "Cancelled",
    "Channel",
    "ChannelOptions",
    "ChannelPool",
    "Closed",
    "Context",
    "DeviceLost",
    "Error",
    "Exchange",
    "InvalidArgument",
    "InvalidState",
    "MessageTooLarge",
    "NotFound",
    "OutOfMemory",
    "Overloaded",
    "PeerLost",
    "ProtocolError",
    "Region",
    "RequestParts",
    "Response",
    "Scheme",
    "Server",
    "ServerOptions",
    "Status",
    "Stream",
    "SystemFailure",
    "Tensor",
    "TimedOut",
    "Unauthorized",
    "Unsupported",
    "VersionMismatch",
    "aio",
    "batched",
    "connect",
    "doctor",
    "forever",
]
