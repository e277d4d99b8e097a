# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from . import _core, aio
from ._batch import ThreadBatches, batching_of
from ._context import shared_context
from ._errors import InvalidArgument, InvalidState
from ._handlers import is_async, is_generator
from ._options import ServerOptions, refuse_keys, with_options
from ._stream import Threads, answer, answer_in_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from typing_extensions import Unpack

    Handler = Callable[[_core.Exchange], Any]


_all_of_one_kind = "handlers of one server are all coroutine functions or all plain functions"


class Server(_core.Server):
    """Serves handlers on any number of URIs, from when it is made until `stop`.

    A handler gets an `Exchange`. What it returns is the answer (bytes, a tensor, a list of tensors); if it returns
    None, it has answered, or answers later. Its exception is the client's `ApplicationError`, and is logged with a
    traceback.
    Plain functions run on `workers` threads; coroutine functions run as tasks of the loop in which the server is made,
    without a thread. A dict has a handler for each target's name, and under None one for requests without a target.
    What a generator yields are the parts of its answer (`Channel.stream`). Plain generators, and plain handlers of
    requests in parts, run on up to `stream_threads` threads of their own, because they may wait for their clients.
    `batched` handlers take lists of exchanges.
    """

    def __init__(
        self,
        uris: str | Sequence[str],
        handler: Handler | Mapping[str | None, Handler],
        *,
        context: _core.Context | None = None,
        stream_threads: int = 64,
        **options: Unpack[ServerOptions],
    ) -> None:
        handlers = dict(handler) if not callable(handler) else {None: handler}
        in_loop = {is_async(one) for one in handlers.values()}
        if len(in_loop) > 1:
            raise InvalidArgument(_all_of_one_kind)
        self._serves = False
        self._loop_server = None
        self._threads = Threads(stream_threads, "accel-stream")
        self._batches: list[ThreadBatches] = []
        if True in in_loop:
            self._loop_server = aio.LoopServer(aio.running_loop())
            if options.setdefault("workers", 0) != 0:
                raise InvalidArgument("coroutine functions run in the event loop: leave workers out")
        elif options.get("workers") == 0:
            raise InvalidArgument("workers=0 is for coroutine functions: plain functions need at least one worker")
        self._drain_timeout = float(options.get("drain_timeout", 2.0))
        refuse_keys([uris] if isinstance(uris, str) else uris, ("workers", "drain_timeout"))
        listed = [uris] if isinstance(uris, str) else list(uris)
        try:
            made = {name: self._handler(one) for name, one in handlers.items()}
            super().__init__(context or shared_context(), with_options(listed, options), made, self._elsewhere())
            self._serves = True
        except BaseException:
            self._end_threads()
            raise
        if self._loop_server is not None:
            self._loop_server.serve(self)

    def add_target(self, name: str, handler: Handler) -> None:
        """Adds a target while the server serves, with a handler of the same kind as the server's own."""
        if is_async(handler) != (self._loop_server is not None):
            raise InvalidArgument(_all_of_one_kind)
        self._add_target(name, self._handler(handler), self._elsewhere())

    def stop(self) -> None:
        """Lets open exchanges be answered within drain_timeout, then closes every session.

        In a handler it returns at once.
        """
        self._check_blocking()
        super().stop()
        self._end_threads()

    def _check_blocking(self) -> None:
        if self._loop_server is not None:
            raise InvalidState("this server belongs to an event loop: await aclose(), or use `async with`")

    def _handler(self, handler: Any) -> Any:
        """What the library calls."""
        if self._loop_server is not None:
            return self._loop_server.handler(handler)
        batching = batching_of(handler)
        if batching is not None:
            self._batches.append(ThreadBatches(handler, batching))
            return self._batches[-1].add
        if is_generator(handler):
            threads = self._threads
            return lambda request: threads.run(answer_in_parts, handler, request)
        return handler

    def _elsewhere(self) -> Any:
        if self._loop_server is not None:
            return None
        threads = self._threads
        return lambda function, request: threads.run(answer, function, request)

    def _end_threads(self) -> None:
        self._threads.end()
        for one in self._batches:
            one.end()

    def __del__(self) -> None:
        if getattr(self, "_serves", False):
            super().stop()  # while what its handlers use is still there
            self._end_threads()

    def __enter__(self) -> Self:
        self._check_blocking()
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
