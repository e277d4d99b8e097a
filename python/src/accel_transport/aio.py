# SPDX-License-Identifier: Apache-2.0
"""Channels and servers in an asyncio event loop: no thread stands between the loop and their descriptors."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import signal
import weakref
from typing import TYPE_CHECKING, Any, TypeVar, cast

from . import _core
from ._batch import LoopBatches, batching_of
from ._blocking import Channel as BlockingChannel
from ._errors import Closed, Error, InvalidArgument, InvalidState, Status, TimedOut
from ._handlers import is_async_generator, this_task_was_cancelled
from ._stream import NO_SLOT, check_open, check_sends, fail_with, is_iterator, refuse_whole

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
    from types import TracebackType
    from typing import Self

    from ._core import Region, Response

    Answer = TypeVar("Answer")


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
        self._closing: asyncio.Task[None] | None = None
        self._senders: set[asyncio.Event] = set()
        self._ended: collections.deque[tuple[Any, Response | Error | None]] = collections.deque()
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
        if is_iterator(data) or hasattr(type(data), "__anext__"):
            stream = Stream(
                self,
                data,
                in_one_piece=True,
                timeout=timeout,
                target=target,
                metadata=metadata,
                trace=trace,
                baggage=baggage,
                into=into,
            )
            return await stream.__anext__()
        self._check_open()
        limit = self._limit(timeout)
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
                    self._check_open()
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
            del future, begun  # the exception's traceback has this frame

    __call__ = call

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
        """A call whose response comes in parts: `async for part in channel.stream(data, timeout=30.0): …`.

        As the blocking `Channel.stream`; `data` may also be an async iterator, which a task of its own reads. The call
        begins with the first part that is awaited or sent, or with `async with`.
        """
        return Stream(
            self,
            data,
            parts=parts,
            part_timeout=part_timeout,
            continues=continues,
            timeout=timeout,
            target=target,
            metadata=metadata,
            trace=trace,
            baggage=baggage,
        )

    async def targets(self) -> list[str]:
        """Asks the server for the names of its targets, over a connection of its own."""
        return await self._ask(BlockingChannel.targets)

    async def health(self, target: str = "") -> str:
        """Asks the server whether it, or this target, serves: serving, not_serving, unknown. Likewise."""
        return await self._ask(lambda channel: channel.health(target))

    async def _ask(self, question: Callable[[BlockingChannel], Answer]) -> Answer:
        self._check_open()
        core = self._core

        def ask() -> Answer:
            # A question waits in the channel, where calls would wait for it.
            with BlockingChannel(core._uri, context=core._context) as own:
                return question(own)

        return await self._loop.run_in_executor(None, ask)

    async def aclose(self) -> None:
        """Closes the connection; calls in flight end as Closed. Again: without effect."""
        if self._closing is None:
            self._closed = True
            self._loop.remove_reader(self._fd)
            self._core._on_slot(None)
            self._closing = self._loop.create_task(self._close())
        # A cancelled task leaves the others their ends.
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        # It may wait for lent memory, and uses the channel alone: this loop has let go of it.
        try:
            await self._loop.run_in_executor(None, self._core.close)
        finally:
            self._deliver()
            for one in self._waiting:
                if not one.done():
                    one.set_exception(Closed("this channel was closed: connect another one"))
            for sender in self._senders:
                sender.set()

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

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("this channel was closed: connect another one")

    def _limit(self, timeout: float | None) -> float:
        if timeout is None:
            return self._core._call_timeout
        if not 0 <= timeout <= 366 * 24 * 3600:
            raise InvalidArgument("a timeout is a number of seconds, 0 to a year")
        return timeout

    async def _begin(self, start: Callable[[float], _core._Stream | None], limit: float) -> _core._Stream:
        """Begins a stream, once enough slots are free."""
        self._check_open()
        deadline = self._loop.time() + limit
        begun = None if self._waiting else start(limit)
        turn = None
        while begun is None:
            self._look()
            # Some slots may be free, but too few, of which nothing tells.
            again = self._loop.call_later(0.005, self._next_in_line)
            try:
                turn = await self._slot(turn, deadline)
            finally:
                again.cancel()
            try:
                self._check_open()
                begun = start(max(0.0, deadline - self._loop.time()))
            except BaseException:
                self._next_in_line()
                raise
        self._pump_soon()
        return begun

    async def _slot(self, again: asyncio.Future[None] | None, deadline: float) -> asyncio.Future[None]:
        """Waits in line until a slot may be free; who had no luck waits `again`, in front."""
        turn: asyncio.Future[None] = self._loop.create_future()
        if again is None:
            self._waiting.append(turn)
        else:
            self._waiting.appendleft(turn)
        self._want_slots()
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
        self._want_slots()
        return turn

    def _want_slots(self) -> None:
        self._core._want_slot(bool(self._waiting or self._senders))

    def _slot_is_free(self) -> None:
        # A response was dropped, on any thread.
        self._loop.call_soon_threadsafe(self._pump)

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
        try:
            free = self._look()
        except BaseException:
            self._pump_soon()  # else nothing would wake this channel any more
            raise
        if free:
            for one in self._senders:
                one.set()
            self._next_in_line()

    def _look(self) -> bool:
        """Takes what has arrived, until the descriptor tells of more. Whether a slot is free that somebody waits for.

        Looking for a slot may find arrivals, and with them slots: hence in this order.
        """
        while True:
            self._deliver()
            free = bool(self._waiting or self._senders) and self._core._has_slot()
            if self._core._arm():
                return free

    def _deliver(self) -> None:
        self._ended.extend(cast("list[tuple[Any, Response | Error | None]]", self._core._poll()))
        while self._ended:
            future, outcome = self._ended.popleft()
            if outcome is None:
                future.set()  # of a stream
            elif future.done():
                continue
            elif isinstance(outcome, Error):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)


class Stream:
    """A call in parts, from `aio.Channel.stream`: as the blocking `Stream`, awaited.

    Cancelling the task that awaits a part, or dropping the stream, cancels the call.
    """

    def __init__(
        self,
        channel: Channel,
        data: object,
        *,
        parts: int = 0,
        part_timeout: float | None = None,
        continues: bool = False,
        in_one_piece: bool = False,
        **options: Any,
    ) -> None:
        self._channel = channel
        self._source: Any = data if is_iterator(data) or hasattr(type(data), "__anext__") else None
        self._feeding: asyncio.Task[None] | None = None
        self._continues = continues
        self._arrived = asyncio.Event()
        self._core: _core._Stream | None = None
        self._beginning = asyncio.Lock()
        self._closed = False
        timeout = options.pop("timeout")
        self._limit = channel._limit(timeout)
        first = b"" if self._source is not None else data
        goes_on = continues or self._source is not None
        core, waiter = channel._core, self._arrived
        self._start = lambda left: core._start(
            first, waiter, parts, part_timeout, goes_on, in_one_piece, timeout=left, **options
        )

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Response:
        core = self._core or await self._begun()
        try:
            while True:
                part = core._take()
                if part is not None:
                    return part
                if core._ended:
                    await self._fed()
                    check_open(self._closed)
                    raise StopAsyncIteration
                self._arrived.clear()
                await self._arrived.wait()
                if self._feeding is not None and self._feeding.done():
                    await self._fed()  # raises what the source has raised
        except asyncio.CancelledError:
            await self.aclose()
            raise
        except StopAsyncIteration:
            raise
        except BaseException:
            self._end_feeding()
            raise

    async def send(self, data: object, *, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Sends a part of the request, of a stream with `continues=True`: bytes or one tensor. Waits for a free slot.

        Another task may read meanwhile.
        """
        check_sends(self._source is not None, self._continues)
        await self._send(data, False, timeout)

    async def finish(self, data: object = b"", *, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Sends the last part of the request."""
        check_sends(self._source is not None, self._continues)
        await self._send(data, True, timeout)
        self._continues = False

    def cancel(self) -> None:
        """Ends the call early: iteration raises Cancelled after the parts that have arrived."""
        if self._core is not None:
            self._core._cancel()
            self._channel._pump_soon()

    async def aclose(self) -> None:
        """Cancels the call, if it has not ended, and drops unread parts. Parts that were given stay valid."""
        self._end_feeding()
        if self._core is None:
            self._closed = True
            return
        self._closed = self._closed or not self._core._ended
        self._core._give_up()
        self._arrived.set()
        self._channel._pump_soon()

    @property
    def metadata(self) -> dict[str, str | bytes] | None:
        """That of the answer which ends the parts; None before."""
        return None if self._core is None else self._core._metadata

    async def __aenter__(self) -> Self:
        await self._begun()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is not None and not core._ended:
            self._end_feeding()
            core._give_up()
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                self._channel._loop.call_soon_threadsafe(self._channel._pump_soon)

    async def _begun(self) -> _core._Stream:
        async with self._beginning:
            check_open(self._closed)
            if self._core is None:
                self._core = await self._channel._begin(self._start, self._limit)
                if self._source is not None:
                    feed = _feed(self._source, self._core, self._channel, self._arrived)
                    self._feeding = self._channel._loop.create_task(feed)
            return self._core

    async def _send(self, data: object, last: bool, timeout: float | None) -> None:  # noqa: ASYNC109
        core = self._core or await self._begun()
        try:
            async with asyncio.timeout(timeout):
                sent = await _send_part(core, self._channel, data, last)
        except TimeoutError as failed:
            if isinstance(failed, Error):
                raise
            raise TimedOut(NO_SLOT) from None
        if not sent:
            core._raise_over()

    async def _fed(self) -> None:
        task, self._feeding = self._feeding, None
        if task is not None and task.done() and not task.cancelled():
            failed = task.exception()
            if failed is not None:
                await self.aclose()
                raise failed
        elif task is not None:
            task.cancel()

    def _end_feeding(self) -> None:
        task, self._feeding = self._feeding, None
        if task is not None:
            with contextlib.suppress(RuntimeError):
                task.cancel()


async def _send_part(core: _core._Stream, channel: Channel, data: object, last: bool) -> bool:
    """False: the call takes no more parts."""
    room: asyncio.Event | None = None
    try:
        while (sent := core._try_send(data, last)) is False:
            if room is None:
                room = asyncio.Event()
                channel._senders.add(room)
                channel._want_slots()
            room.clear()
            channel._pump_soon()
            await room.wait()
    finally:
        if room is not None:
            channel._senders.discard(room)
            channel._want_slots()
    channel._pump_soon()
    return sent is True


async def _feed(source: Any, core: _core._Stream, channel: Channel, arrived: asyncio.Event) -> None:
    """Sends the items of an iterator. Knows nothing of the stream, which may be dropped meanwhile."""
    try:
        if hasattr(type(source), "__anext__"):
            async for part in cast("AsyncIterator[object]", source):
                if not await _send_part(core, channel, part, False):
                    return
        else:
            for part in cast("Iterator[object]", source):
                if not await _send_part(core, channel, part, False):
                    return
        await _send_part(core, channel, b"", True)
    except BaseException:
        arrived.set()
        raise


class _Wakes:
    """Tasks of one loop that wait for what the library does to exchanges on threads of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._core = _core._Waker()
        self._waiting: dict[int, set[asyncio.Future[None]]] = {}
        wake = weakref.WeakMethod(self._woken)
        loop.add_reader(self._core._fd, lambda: (found := wake()) and found())

    async def wait(self, request: _core.Exchange, *, room: bool) -> None:
        """Until there is room for a part, or a part of the request, or the call has ended; or earlier."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        key = request._key
        all_of_it = self._waiting.setdefault(key, set())
        all_of_it.add(future)
        try:
            if not request._await(self._core, room):
                await future
        finally:
            all_of_it.discard(future)
            if not all_of_it and self._waiting.get(key) is all_of_it:
                del self._waiting[key]

    def _woken(self) -> None:
        for key in self._core._take():
            for one in self._waiting.get(key, ()):
                if not one.done():
                    one.set_result(None)


_wakes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Wakes] = weakref.WeakKeyDictionary()


def wakes() -> _Wakes:
    """Those of the running loop."""
    loop = asyncio.get_running_loop()
    found = _wakes.get(loop)
    if found is None:
        found = _wakes[loop] = _Wakes(loop)
    return found


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


async def _answering(answer: Any, function: Any, request: _core.Exchange) -> None:
    try:
        await answer(function, request)
    except asyncio.CancelledError as failed:
        if not this_task_was_cancelled():  # another was, for which it has waited
            fail_with(request, failed)
            return
        if not request.answered:
            request.fail("the server stopped", status=int(Status.CLOSED))
        raise
    except Exception as failed:
        fail_with(request, failed)


async def _answer(function: Any, request: _core.Exchange) -> None:
    request._reply_result(await function(request))


async def _answer_in_parts(function: Any, request: _core.Exchange) -> None:
    if refuse_whole(request):
        return
    parts = function(request)
    try:
        async for part in parts:
            while not request._try_send(part):
                await wakes().wait(request, room=True)
    finally:
        await parts.aclose()
    if not request.answered:
        request.reply(b"")


class LoopServer:
    """Serves a `_core.Server` without workers on the thread of an event loop, where its handlers are tasks."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._core: _core.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping: asyncio.Task[None] | None = None
        self._pump_is_due = False

    def handler(self, function: Any) -> Any:
        """What the library calls: it makes a task of the coroutine function, or of the async generator."""
        batching = batching_of(function)
        if batching is not None:
            return LoopBatches(function, batching, self._loop, self._run).add
        answer = _answer_in_parts if is_async_generator(function) else _answer

        def start(request: _core.Exchange) -> None:
            self._run(_answering(answer, function, request))

        return start

    def _run(self, answering: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(answering)
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def serve(self, core: _core.Server) -> None:
        self._core = core
        self._loop.add_reader(core._fd, self._pump)
        self._pump()

    async def stop(self, drain_timeout: float) -> None:
        if self._stopping is None:
            if self._core is None:
                return
            self._stopping = self._loop.create_task(self._stop(self._core, drain_timeout))
        if asyncio.current_task() not in self._tasks:  # a handler's own, for which the stop waits
            await asyncio.shield(self._stopping)

    async def _stop(self, core: _core.Server, drain_timeout: float) -> None:
        deadline = self._loop.time() + drain_timeout
        while not core._drain(0.0) and self._loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=drain_timeout)
        # This loop lets go of the server, which is then for the executor's thread alone.
        self._core = None
        self._loop.remove_reader(core._fd)
        # It waits for exchanges that somebody keeps; no request reaches a handler any more.
        await self._loop.run_in_executor(None, _core.Server.stop, core)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._pump_soon()

    def _pump(self) -> None:
        self._pump_is_due = False
        core = self._core
        if core is None or core._stopped:
            return
        for _ in range(64):  # then it is the turn of others, whatever clients send
            if not core._poll() and core._arm():
                return
        self._pump_soon()

    def _pump_soon(self) -> None:
        if not self._pump_is_due:
            self._pump_is_due = True
            self._loop.call_soon(self._pump)


def running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise InvalidState("an async handler needs a running event loop: make the Server in a coroutine") from None
