# SPDX-License-Identifier: Apache-2.0
"""Channels and pools whose calls wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _core
from ._context import shared_context
from ._options import ChannelOptions, with_options

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from typing_extensions import Unpack


class Channel(_core.Channel):
    """One connection to a server, for one thread at a time.

    `Channel("tcp://host:5555", call_timeout=0.1)` connects, or raises. Options are those of docs/uris.md, also as keys
    of the URI, which go before the same keyword.
    """

    def __init__(self, uri: str, *, context: _core.Context | None = None, **options: Unpack[ChannelOptions]) -> None:
        super().__init__(context or shared_context(), with_options([uri], options)[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    __call__ = _core.Channel.call


class ChannelPool(_core.ChannelPool):
    """Channels to one server, or to several that offer the same, for any number of threads.

    `ChannelPool("tcp://a:5555,b:5555")` does not connect yet: each thread's first call does. docs/threads.md says how
    hosts are chosen and left.
    """

    def __init__(
        self,
        uri: str,
        *,
        context: _core.Context | None = None,
        max_channels: int = 64,
        host_pause: float = 1.0,
        dns_refresh: float = 30.0,
        eject_after: int = 5,
        **options: Unpack[ChannelOptions],
    ) -> None:
        super().__init__(
            context or shared_context(),
            with_options([uri], options)[0],
            max_channels,
            host_pause,
            dns_refresh,
            eject_after,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    __call__ = _core.ChannelPool.call
