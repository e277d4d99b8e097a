# SPDX-License-Identifier: Apache-2.0
"""Calls in parts: blocking streams, and both kinds of handlers' view of them."""

from __future__ import annotations

import collections
import threading
import time
from typing import TYPE_CHECKING, Any

from . import _core
from ._errors import Cancelled, InvalidState, PeerLost, Status, TimedOut, log, log_handler_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self

    from ._core import Exchange, Response


def is_iterator(data: object) -> bool:
    return hasattr(type(data), "__next__")


class Stream:
    """A call in parts, from `Channel.stream`: iterate over the parts of its response.

    Each part is a `Response` that keeps a slot; dropping or releasing it lets the server send another one. A failure is
    raised after the parts that came before it. Dropping or closing the stream before its end cancels the call.
    """

    def __init__(self, core: _core._Stream, source: Iterator[object] | None, continues: bool) -> None:
        self._core = core
        self._source = source
        self._unsent: tuple[object, bool] | None = None
        self._continues = continues
        self._closed = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Response:
        core = self._core
        while True:
            if self._source is not None:
                core._look()
            part = core._take()
            if part is not None:
                return part
            if core._ended:
                self._source = None
                check_open(self._closed)
                raise StopIteration
            if self._source is None:
                core._wait_for_part()
            else:
                self._feed(self._source)

    def send(self, data: object, *, timeout: float | None = None) -> None:
        """Sends a part of the request, of a stream with `continues=True`: bytes or one tensor. Waits for a free slot.

        Read in between if the server sends parts: it waits for room, and does not release yours meanwhile.
        """
        self._send(data, False, timeout)

    def finish(self, data: object = b"", *, timeout: float | None = None) -> None:
        """Sends the last part of the request."""
        self._send(data, True, timeout)
        self._continues = False

    def cancel(self) -> None:
        """Ends the call early: iteration raises Cancelled after the parts that have arrived."""
        self._core._cancel()

    def close(self) -> None:
        """Cancels the call, if it has not ended, and drops unread parts. Parts that were given stay valid."""
        self._source = None
        self._closed = self._closed or not self._core._ended
        self._core._give_up()

    @property
    def metadata(self) -> dict[str, str | bytes] | None:
        """That of the answer which ends the parts; None before."""
        return self._core._metadata

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, data: object, last: bool, timeout: float | None) -> None:
        check_sends(self._source is not None, self._continues)
        deadline = None if timeout is None else time.monotonic() + timeout
        while not (sent := self._core._try_send(data, last)):
            if sent is None:
                self._core._raise_over()
            if deadline is not None and time.monotonic() >= deadline:
                raise TimedOut(NO_SLOT)
            self._core._wait_for_room()

    def _feed(self, source: Iterator[object]) -> None:
        """Sends one part of the iterator, or waits for a slot."""
        try:
            if self._unsent is None:
                try:
                    self._unsent = (next(source), False)
                except StopIteration:
                    self._unsent = (b"", True)
            sent = self._core._try_send(*self._unsent)
            if sent is False:
                self._core._wait_for_room()
                return
            if sent is None or self._unsent[1]:  # a server may answer before the request's end
                self._source = None
            self._unsent = None
        except BaseException:
            self.close()
            raise


NO_SLOT = "no slot was free for the part, so nothing was sent: the server has not taken the parts before it"


def check_open(closed: bool) -> None:
    if closed:
        raise InvalidState("this stream was closed before its end, which has cancelled the call: begin another one")


def check_sends(has_source: bool, continues: bool) -> None:
    if has_source:
        raise InvalidState("this stream sends the parts of an iterator: leave send and finish to it")
    if not continues:
        raise InvalidState("the request was finished: begin a stream with continues=True, and send before finish")


class RequestParts:
    """The parts of a request, from `Exchange.parts`. `for` on threads, `async for` in an event loop.

    Each is a `memoryview`, in place: it keeps a slot of the client's until it and arrays made of it are gone.
    """

    def __init__(self, request: Exchange) -> None:
        self._request = request
        self._begun = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> memoryview:
        first = self._first()
        if first is not None:
            return first
        if not self._request._continues:
            raise StopIteration
        part = self._request._receive()
        if part is None:
            raise StopIteration
        return part

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> memoryview:
        from .aio import wakes

        first = self._first()
        if first is not None:
            return first
        while self._request._continues:
            part = self._request._try_receive()
            if isinstance(part, memoryview):
                return part
            if part is None:
                break
            await wakes().wait(self._request, room=False)
        raise StopAsyncIteration

    def _first(self) -> memoryview | None:
        if self._begun:
            return None
        self._begun = True
        more = self._request._continues
        first = self._request.data
        # An iterator's parts come after an empty first piece.
        return first if len(first) != 0 or not more else None


def refuse_whole(request: Exchange) -> bool:
    """A client that takes no parts is told so."""
    if request.in_parts:
        return False
    request.fail(
        "this target answers in parts: call it with stream(…), not with call(…)", status=int(Status.UNSUPPORTED)
    )
    return True


def fail_with(request: Exchange, failed: BaseException) -> None:
    """Answers for a handler that has raised. It did nothing wrong if the client has left."""
    if request.answered:
        log_handler_failure(failed)
    elif isinstance(failed, (Cancelled, PeerLost)) and request.cancelled:
        late = request.time_left == 0
        request.fail("nobody waits", status=int(Status.TIMED_OUT if late else Status.CANCELLED))
    else:
        request.fail(log_handler_failure(failed))


def answer(function: Callable[[Exchange], object], request: Exchange) -> None:
    """Runs a plain handler."""
    try:
        request._reply_result(function(request))
    except BaseException as failed:
        fail_with(request, failed)


def answer_in_parts(function: Callable[[Exchange], Any], request: Exchange) -> None:
    """Runs a generator, and sends what it yields."""
    try:
        if refuse_whole(request):
            return
        parts = function(request)
        try:
            for part in parts:
                request.send(part)
        finally:
            parts.close()
        if not request.answered:
            request.reply(b"")
    except BaseException as failed:
        fail_with(request, failed)


class Threads:
    """Threads for handlers that wait for their clients, which the library's workers must not. Made as needed."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._lock = threading.Condition()
        self._tasks: collections.deque[tuple[Callable[..., None], tuple[Any, ...]]] = collections.deque()
        self._count = 0
        self._idle = 0
        self._ended = False

    def run(self, task: Callable[..., None], *arguments: Any) -> None:
        with self._lock:
            self._tasks.append((task, arguments))
            if len(self._tasks) <= self._idle or self._count >= self._most:
                self._lock.notify()
                return
            self._count += 1
        # Not waited for at the interpreter's end: the servers end first, and with them these waits.
        try:
            threading.Thread(target=self._work, name=f"{self._name}-{self._count}", daemon=True).start()
        except RuntimeError:
            log.exception("no thread for a handler could be started")
            with self._lock:
                self._count -= 1

    def end(self) -> None:
        with self._lock:
            self._ended = True
            self._lock.notify_all()

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
                while not self._tasks and not self._ended:
                    self._lock.wait()
                self._idle -= 1
                if not self._tasks:
                    self._count -= 1
                    return
                task, arguments = self._tasks.popleft()
            task(*arguments)
            del task, arguments
