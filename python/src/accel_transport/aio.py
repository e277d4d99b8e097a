# SPDX-License-Identifier: Apache-2.0
"""Channels and servers in an asyncio event loop: no thread stands between the loop and their descriptors."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import signal
import weakref
from typing import TYPE_CHECKING, Any, cast

from . import _core
from ._blocking import Channel as BlockingChannel
from ._errors import Closed, Error, InvalidState, TimedOut

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

    from ._core import Region, Response


class Channel:
    """One connection to a server, for the tasks of one event loop. From `async with connect(…)`.

    Any number of tasks may call: those without a slot wait in order. Cancelling a task cancels its call, and what the
    call has lent is free when the transport has let go of it.
    """

    def __init__(self, connected: BlockingChannel, loop: asyncio.AbstractEventLoop) -> None:
        self._core = connected
        self._loop = loop
        self._fd = connected._fd
        self._waiting: collections.deque[asyncio.Future[None]] = collections.deque()
        self._pump_is_due = False
        self._closed = False
        loop.add_reader(self._fd, self._pump)
        # The channel must not keep this object, which has it.
        wake = weakref.WeakMethod(self._slot_is_free)
        connected._on_slot(lambda: (found := wake()) and found())
        self._pump()

    async def call(
        self,
        data: object,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
        target: str | None = None,
        metadata: Mapping[str, str | bytes] | None = None,
        trace: str | None = None,
        baggage: str | None = None,
        into: Region | None = None,
    ) -> Response:
        """As the blocking `Channel.call`, awaited. `into`, or `data` that is a Region, must not change meanwhile.

        The library keeps the deadline, at both ends.
        """
        if self._closed:
            raise Closed("this channel was closed: connect another one")
        limit = self._core._call_timeout if timeout is None else timeout
        future: asyncio.Future[Response] = self._loop.create_future()
        begun = None
        if not self._waiting:  # others came first
            begun = self._core._submit_for(
                future, data, timeout=timeout, target=target, metadata=metadata, trace=trace, baggage=baggage, into=into
            )
        if begun is None:
            deadline = self._loop.time() + limit
            turn = None
            while begun is None:
                self._pump_soon()  # looking for a slot may have found other arrivals
                turn = await self._slot(turn, deadline)
                try:
                    begun = self._core._submit_for(
                        future,
                        data,
                        timeout=max(0.0, deadline - self._loop.time()),
                        target=target,
                        metadata=metadata,
                        trace=trace,
                        baggage=baggage,
                        into=into,
                    )
                except BaseException:
                    self._next_in_line()
                    raise
        self._pump_soon()
        try:
            return await future
        except asyncio.CancelledError:
            begun.cancel()
            self._pump_soon()
            raise
        finally:
            del future  # its exception's traceback has this frame

    __call__ = call

    async def aclose(self) -> None:
        """Closes the connection; calls in flight end as Closed. Again: without effect."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._fd)
        self._core._on_slot(None)
        # It may wait for lent memory, and uses the channel alone: this loop has let go of it.
        await self._loop.run_in_executor(None, self._core.close)
        self._deliver()
        for one in self._waiting:
            if not one.done():
                one.set_exception(Closed("this channel was closed: connect another one"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def connected(self) -> bool:
        return self._core.connected

    @property
    def scheme(self) -> str:
        return self._core.scheme

    @property
    def endpoint(self) -> str:
        return self._core.endpoint

    @property
    def slots(self) -> int:
        return self._core.slots

    @property
    def max_request_bytes(self) -> int:
        return self._core.max_request_bytes

    @property
    def max_response_bytes(self) -> int:
        return self._core.max_response_bytes

    async def _slot(self, again: asyncio.Future[None] | None, deadline: float) -> asyncio.Future[None]:
        """Waits in line until a slot may be free; who had no luck waits `again`, in front."""
        turn: asyncio.Future[None] = self._loop.create_future()
        if again is None:
            self._waiting.append(turn)
        else:
            self._waiting.appendleft(turn)
        self._core._want_slot(True)
        try:
            async with asyncio.timeout_at(deadline):
                await turn
        except BaseException as failed:
            self._waiting.remove(turn)
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._next_in_line()  # the slot is for another
            if isinstance(failed, TimeoutError):
                raise TimedOut("no slot was free before the deadline: connect with more slots") from None
            raise
        self._waiting.remove(turn)
        self._core._want_slot(bool(self._waiting))
        return turn

    def _slot_is_free(self) -> None:
        # A response was dropped, on any thread.
        self._loop.call_soon_threadsafe(self._next_in_line)

    def _next_in_line(self) -> None:
        for one in self._waiting:
            if not one.done():
                one.set_result(None)
                return

    def _pump_soon(self) -> None:
        if not self._pump_is_due:
            self._pump_is_due = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_is_due = False
        if self._closed:
            return
        self._deliver()
        while not self._core._arm():
            self._deliver()
        if self._core._freed_slots():
            self._next_in_line()

    def _deliver(self) -> None:
        ended = cast("list[tuple[asyncio.Future[Response], Response | Error]]", self._core._poll())
        for future, outcome in ended:
            if future.done():
                continue
            if isinstance(outcome, Error):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)


async def forever() -> None:
    """Waits until the task is cancelled, or SIGINT or SIGTERM comes."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    signals = []
    for one in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # not the main thread
            loop.add_signal_handler(one, stopped.set)
            signals.append(one)
    try:
        await stopped.wait()
    finally:
        for one in signals:
            loop.remove_signal_handler(one)


class LoopServer:
    """Serves a `_core.Server` without workers on the thread of an event loop, where its handlers are tasks."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._core: _core.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._pump_is_due = False

    def handler(self, function: Any) -> Any:
        """What the library calls: it makes a task of the coroutine function."""

        def start(request: _core.Exchange) -> None:
            task = self._loop.create_task(self._answer(function, request))
            self._tasks.add(task)
            task.add_done_callback(self._end)

        return start

    def serve(self, core: _core.Server) -> None:
        self._core = core
        self._loop.add_reader(core._fd, self._pump)
        self._pump()

    async def stop(self, drain_timeout: float) -> None:
        core = self._core
        if core is None or core._stopped:
            return
        deadline = self._loop.time() + drain_timeout
        while not core._drain(0.0) and self._loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=drain_timeout)
        self._loop.remove_reader(core._fd)
        # It waits for exchanges that somebody keeps; no request reaches a handler any more.
        await self._loop.run_in_executor(None, core.stop)

    async def _answer(self, function: Any, request: _core.Exchange) -> None:
        try:
            result = await function(request)
            if result is not None and not request.answered:
                request.reply(result)
        except asyncio.CancelledError:
            if not request.answered:
                request.fail("the server stopped", status=5)
            raise
        except Exception as failed:
            from ._errors import log_handler_failure

            text = log_handler_failure(failed)
            del failed
            if not request.answered:
                request.fail(text)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not self._pump_is_due:
            self._pump_is_due = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_is_due = False
        core = self._core
        if core is None or core._stopped:
            return
        while True:
            while core._poll():
                pass
            if core._arm():
                return


def running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise InvalidState("an async handler needs a running event loop: make the Server in a coroutine") from None
