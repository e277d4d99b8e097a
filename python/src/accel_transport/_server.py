# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from . import _core, aio
from ._context import shared_context
from ._errors import InvalidArgument
from ._options import ServerOptions, with_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from typing_extensions import Unpack

    Handler = Callable[[_core.Exchange], Any]


def _is_async(handler: object) -> bool:
    call = getattr(handler, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)


class Server(_core.Server):
    """Serves handlers on any number of URIs, from when it is made until `stop`.

    A handler gets an `Exchange`. What it returns is the answer (bytes, a tensor, a list of tensors); if it returns
    None, it has answered, or answers later. Its exception is the client's `ApplicationError`, and is logged with a
    traceback.
    Plain functions run on `workers` threads; coroutine functions run as tasks of the loop in which the server is made,
    without a thread. A dict has a handler for each target's name, and under None one for requests without a target.
    """

    def __init__(
        self,
        uris: str | Sequence[str],
        handler: Handler | Mapping[str | None, Handler],
        *,
        context: _core.Context | None = None,
        **options: Unpack[ServerOptions],
    ) -> None:
        handlers = dict(handler) if not callable(handler) else {None: handler}
        in_loop = {_is_async(one) for one in handlers.values()}
        if len(in_loop) > 1:
            raise InvalidArgument("handlers of one server are all coroutine functions or all plain functions")
        self._loop_server = None
        if True in in_loop:
            self._loop_server = aio.LoopServer(aio.running_loop())
            handlers = {name: self._loop_server.handler(one) for name, one in handlers.items()}
            if options.setdefault("workers", 0) != 0:
                raise InvalidArgument("coroutine functions run in the event loop: leave workers out")
        elif options.get("workers") == 0:
            raise InvalidArgument("workers=0 is for coroutine functions: plain functions need at least one worker")
        self._drain_timeout = float(options.get("drain_timeout", 2.0))
        listed = [uris] if isinstance(uris, str) else list(uris)
        super().__init__(context or shared_context(), with_options(listed, options), handlers)
        if self._loop_server is not None:
            self._loop_server.serve(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """`stop`, awaited: the loop's handlers may end."""
        if self._loop_server is not None:
            await self._loop_server.stop(self._drain_timeout)
        else:
            await asyncio.get_running_loop().run_in_executor(None, self.stop)
