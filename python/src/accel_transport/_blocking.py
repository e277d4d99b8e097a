# SPDX-License-Identifier: Apache-2.0
"""Channels and pools whose calls wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from . import _core
from ._context import shared_context
from ._options import ChannelOptions, with_options
from ._stream import Stream, is_iterator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType
    from typing import Self

    from typing_extensions import Unpack


class Channel(_core.Channel):
    """One connection to a server, for one thread at a time.

    `Channel("tcp://host:5555", call_timeout=0.1)` connects, or raises. Options are those of docs/uris.md, also as keys
    of the URI, which go before the same keyword.
    """

    def __init__(self, uri: str, *, context: _core.Context | None = None, **options: Unpack[ChannelOptions]) -> None:
        self._context = context or shared_context()
        self._uri = with_options([uri], options)[0]
        super().__init__(self._context, self._uri)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    __call__ = _core.Channel.call

    def stream(
        self,
        data: object = b"",
        *,
        parts: int = 0,
        part_timeout: float | None = None,
        continues: bool = False,
        timeout: float | None = None,
        target: str | None = None,
        metadata: Mapping[str, str | bytes] | None = None,
        trace: str | None = None,
        baggage: str | None = None,
    ) -> Stream:
        """A call whose response comes in parts: `for part in channel.stream(data, timeout=30.0): …`.

        `data` may be an iterator, whose items are sent as the parts of the request while the response is read; or with
        `continues=True` the request goes on with `Stream.send` and `Stream.finish`. parts: how many may be unread, each
        in a slot of the channel (0: half of the slots, up to 8). A loop's variable keeps one. timeout: of the whole
        call. part_timeout: ends the call if no part comes for this long.
        """
        source = cast("Iterator[object]", data) if is_iterator(data) else None
        core = self._start(
            b"" if source is not None else data,
            None,
            parts,
            part_timeout,
            continues or source is not None,
            False,
            timeout=timeout,
            target=target,
            metadata=metadata,
            trace=trace,
            baggage=baggage,
        )
        assert core is not None
        return Stream(core, source, continues)

    def _call_in_parts(
        self,
        data: Iterator[object],
        timeout: float | None,
        target: str | None,
        metadata: Mapping[str, str | bytes] | None,
        trace: str | None,
        baggage: str | None,
        into: _core.Region | None,
    ) -> _core.Response:
        """A call whose request comes from an iterator, and whose response in one piece."""
        core = self._start(
            b"",
            None,
            0,
            None,
            True,
            True,
            timeout=timeout,
            target=target,
            metadata=metadata,
            trace=trace,
            baggage=baggage,
            into=into,
        )
        assert core is not None
        return next(Stream(core, data, False))


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
