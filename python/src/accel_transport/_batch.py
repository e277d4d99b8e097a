# SPDX-License-Identifier: Apache-2.0
"""Handlers that take several requests at once."""

from __future__ import annotations

import asyncio
import collections
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from ._errors import InvalidArgument, Status, log_handler_failure
from ._handlers import is_async_generator, is_generator, this_task_was_cancelled

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ._core import Exchange


class Batching(NamedTuple):
    max: int
    wait: float
    concurrent: int


@overload
def batched(handler: Callable[..., Any], /) -> Callable[..., Any]: ...
@overload
def batched(
    *, max: int = 8, wait: float = 0.002, concurrent: int = 1
) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...
def batched(handler: Any = None, /, *, max: int = 8, wait: float = 0.002, concurrent: int = 1) -> Any:
    """Makes a handler, plain or async, one that takes a list of up to `max` exchanges.

    It returns a list with one answer for each, in order; None stands for an exchange that it has answered or keeps,
    an exception for one that fails. An exception that it raises fails all that are not answered. A request waits at
    most `wait` seconds for others to come; longer only while `concurrent` batches are being answered. Requests whose
    clients have gone, or whose deadlines have passed, are left out.
    """
    if isinstance(max, bool) or not isinstance(max, int) or max < 1:
        raise InvalidArgument("max is the number of requests in a batch, 1 or more")
    if not isinstance(wait, (int, float)) or not 0 <= wait <= 3600:
        raise InvalidArgument("wait is a number of seconds, 0 to an hour")
    if isinstance(concurrent, bool) or not isinstance(concurrent, int) or concurrent < 1:
        raise InvalidArgument("concurrent is the number of batches at once, 1 or more")

    def mark(function: Any) -> Any:
        if not callable(function):
            raise InvalidArgument("batched is for functions: @batched(max=8, wait=0.002)")
        if is_generator(function) or is_async_generator(function):
            raise InvalidArgument("a batched handler returns a list of answers: it cannot yield")
        try:
            function.__accel_batching__ = Batching(max, float(wait), concurrent)
        except AttributeError:
            raise InvalidArgument("this object takes no marks: batch a function that calls it") from None
        return function

    return mark if handler is None else mark(handler)


def batching_of(handler: object) -> Batching | None:
    return getattr(handler, "__accel_batching__", None)


def _alive(waiting: collections.deque[tuple[float, Exchange]], most: int) -> list[Exchange]:
    batch: list[Exchange] = []
    while waiting and len(batch) < most:
        _, request = waiting.popleft()
        if request.cancelled:
            request.fail("nobody waits", status=int(Status.TIMED_OUT))
        else:
            batch.append(request)
    return batch


def _deliver(batch: list[Exchange], results: Any) -> None:
    if results is None:
        return
    if not isinstance(results, (list, tuple)) or len(results) != len(batch):
        count = len(results) if isinstance(results, (list, tuple)) else type(results).__name__
        raise InvalidArgument(f"a batched handler returns a list with an answer for each of {len(batch)}, not {count}")
    for request, result in zip(batch, results, strict=True):
        if result is None or request.answered:
            continue
        try:
            if isinstance(result, BaseException):
                raise result
            request._reply_result(result)
        except Exception as failed:
            _fail([request], failed)


def _fail(batch: list[Exchange], failed: BaseException) -> None:
    text = log_handler_failure(failed)
    for request in batch:
        if not request.answered:
            request.fail(text)


class ThreadBatches:
    """Batches of a plain handler, on `concurrent` threads."""

    def __init__(self, function: Callable[[list[Exchange]], Any], batching: Batching) -> None:
        self._function = function
        self._batching = batching
        self._some = threading.Condition()
        self._waiting: collections.deque[tuple[float, Exchange]] = collections.deque()
        self._ended = False
        for number in range(batching.concurrent):
            threading.Thread(target=self._work, name=f"accel-batch-{number}", daemon=True).start()

    def add(self, request: Exchange) -> None:
        if self._ended:
            request.fail("the server stopped", status=int(Status.CLOSED))
            return
        with self._some:
            self._waiting.append((time.monotonic(), request))
            if len(self._waiting) in (1, self._batching.max):
                self._some.notify()

    def end(self) -> None:
        with self._some:
            self._ended = True
            self._some.notify_all()

    def _work(self) -> None:
        while True:
            batch = self._next()
            if batch is None:
                return
            if batch:
                self._answer(batch)
            del batch

    def _next(self) -> list[Exchange] | None:
        with self._some:
            while not self._waiting:
                if self._ended:
                    return None
                self._some.wait()
            while self._waiting and len(self._waiting) < self._batching.max and not self._ended:
                left = self._waiting[0][0] + self._batching.wait - time.monotonic()
                if left <= 0:
                    break
                self._some.wait(left)
            batch = _alive(self._waiting, self._batching.max)
            if self._waiting:
                self._some.notify()
            return batch

    def _answer(self, batch: list[Exchange]) -> None:
        try:
            _deliver(batch, self._function(batch))
        except BaseException as failed:
            _fail(batch, failed)


class LoopBatches:
    """Batches of a coroutine function, as tasks of its loop."""

    def __init__(
        self,
        function: Callable[[list[Exchange]], Any],
        batching: Batching,
        loop: asyncio.AbstractEventLoop,
        run: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._function = function
        self._batching = batching
        self._loop = loop
        self._run = run
        self._waiting: collections.deque[tuple[float, Exchange]] = collections.deque()
        self._timer: asyncio.TimerHandle | None = None
        self._running = 0

    def add(self, request: Exchange) -> None:
        self._waiting.append((self._loop.time(), request))
        self._look()

    def _look(self) -> None:
        """Begins the batches that are due, and comes again for the next."""
        while self._waiting and self._running < self._batching.concurrent:
            due = self._waiting[0][0] + self._batching.wait
            if len(self._waiting) < self._batching.max and self._loop.time() < due:
                if self._timer is None:
                    self._timer = self._loop.call_at(due, self._timed)
                return
            batch = _alive(self._waiting, self._batching.max)
            if batch:
                self._running += 1
                self._run(self._answer(batch))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _timed(self) -> None:
        self._timer = None
        self._look()

    async def _answer(self, batch: list[Exchange]) -> None:
        try:
            _deliver(batch, await self._function(batch))
        except asyncio.CancelledError as failed:
            if not this_task_was_cancelled():
                _fail(batch, failed)
                return
            for request in batch:
                if not request.answered:
                    request.fail("the server stopped", status=int(Status.CLOSED))
            raise
        except Exception as failed:
            _fail(batch, failed)
        finally:
            batch.clear()
            self._running -= 1
            self._look()
