# SPDX-License-Identifier: Apache-2.0
"""The exceptions: one class for each status, all under `Error`."""

from __future__ import annotations

import enum
import logging
import traceback

log = logging.getLogger("accel_transport")


class Status(enum.IntEnum):
    """How an operation has ended, on both ends and on the wire."""

    OK = 0
    AGAIN = 1
    TIMED_OUT = 2
    CANCELLED = 3
    PEER_LOST = 4
    CLOSED = 5
    MESSAGE_TOO_LARGE = 6
    OVERLOADED = 7
    INVALID_ARGUMENT = 8
    INVALID_STATE = 9
    UNSUPPORTED = 10
    UNAUTHORIZED = 11
    VERSION_MISMATCH = 12
    PROTOCOL_ERROR = 13
    OUT_OF_MEMORY = 14
    SYSTEM_ERROR = 15
    APPLICATION_ERROR = 16
    ABANDONED = 17
    DEVICE_LOST = 18
    NOT_FOUND = 19


class Error(Exception):
    """The base of all failures. The text says what failed and, where somebody can, what to do."""

    status: Status = Status.SYSTEM_ERROR
    """Which failure it is."""
    advice: str = ""
    """What to do; the text of an exception ends with it if the library or the handler said nothing."""

    def __init__(self, message: str = "", code: int = 0, native: int = 0) -> None:
        name = self.status.name.lower()
        super().__init__(f"{name}: {message}" if message else f"{name}: {self.advice}")
        self.code = code
        """The handler's own number."""
        self.native = native
        """errno, or 0."""


class Again(Error):
    """Back-pressure; nothing was done."""

    status = Status.AGAIN
    advice = "try again when other calls have ended, or connect with more slots"


class TimedOut(Error, TimeoutError):
    """The deadline passed first."""

    status = Status.TIMED_OUT
    advice = "the deadline passed: repeat the call if it may run twice, or give it a longer timeout"


class Cancelled(Error):
    """The call was cancelled by its owner."""

    status = Status.CANCELLED
    advice = "the call was cancelled"


class PeerLost(Error, ConnectionError):
    """The peer died, went silent or broke the protocol."""

    status = Status.PEER_LOST
    advice = "the server was lost: connect again, or connect with reconnect=True"


class Closed(Error, ConnectionError):
    """This end was closed, or the server is stopping and no handler has seen the call."""

    status = Status.CLOSED
    advice = "the channel was closed, or its server stops: connect to another server, or use a ChannelPool"


class MessageTooLarge(Error, ValueError):
    """Longer than the session's limit; nothing was sent."""

    status = Status.MESSAGE_TOO_LARGE
    advice = "connect with larger request_bytes or response_bytes"


class Overloaded(Error):
    """The server is at a limit, or all slots of the channel are held."""

    status = Status.OVERLOADED
    advice = "wait before the next try, or try another server"


class InvalidArgument(Error, ValueError):
    """A value is out of range, of another type, or misspelt."""

    status = Status.INVALID_ARGUMENT
    advice = "correct the value"


class InvalidState(Error, RuntimeError):
    """An operation out of order, on another thread, or on an object made before fork()."""

    status = Status.INVALID_STATE
    advice = "this object cannot do that now"


class Unsupported(Error):
    """This machine, build or peer lacks a feature."""

    status = Status.UNSUPPORTED
    advice = "accel_transport.doctor() says what this machine can do"


class Unauthorized(Error, PermissionError):
    """A missing or wrong key."""

    status = Status.UNAUTHORIZED
    advice = "give key_file and server_key (client) or authorized_keys (server), as accel_keys writes them"


class VersionMismatch(Error):
    """The ends speak different versions of the protocol."""

    status = Status.VERSION_MISMATCH
    advice = "update the older end"


class ProtocolError(Error):
    """The peer sent something that no correct peer sends."""

    status = Status.PROTOCOL_ERROR
    advice = "the session has ended: connect again"


class OutOfMemory(Error, MemoryError):
    """Memory could not be allocated or registered."""

    status = Status.OUT_OF_MEMORY
    advice = "use fewer or smaller slots"


class SystemFailure(Error, OSError):
    """A system call failed; `native` is errno."""

    status = Status.SYSTEM_ERROR
    advice = "the operating system refused"


class ApplicationError(Error):
    """The handler failed: its text, and its own number as `code`."""

    status = Status.APPLICATION_ERROR
    advice = "the handler failed: see the server's log"


class Abandoned(Error):
    """The handler dropped its exchange without an answer."""

    status = Status.ABANDONED
    advice = "the handler dropped the request: it must return the response, or call reply or fail"


class DeviceLost(Error):
    """A GPU failed; the process that used it has to be started again."""

    status = Status.DEVICE_LOST
    advice = "start the process again that uses the GPU"


class NotFound(Error, LookupError):
    """The server has no such target, or the message no such tensor."""

    status = Status.NOT_FOUND
    advice = "correct the target's name: Channel.targets() lists those of the server"


_classes: dict[int, type[Error]] = {int(one.status): one for one in Error.__subclasses__()}


def exception_of(status: int, message: str, code: int, native: int) -> Error:
    return _classes[status](message, code, native)


def log_handler_failure(failed: BaseException) -> str:
    """Logs a handler's exception with its traceback; the text is the answer to the client."""
    log.error("a handler failed", exc_info=failed)
    text = str(failed).encode(errors="backslashreplace").decode()
    # Whoever keeps the log's record would keep the handler's arrays, and with them the request's memory.
    seen: set[int] = set()
    left: list[BaseException | None] = [failed]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        traceback.clear_frames(one.__traceback__)
        left += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            left += one.exceptions
    return f"{type(failed).__name__}: {text}" if text else type(failed).__name__


_said = False


def log_waiting_answer(views: int) -> None:
    """Once in a process: a handler has kept arrays of a request that it has answered."""
    global _said
    if not _said:
        _said = True
        log.warning(
            "an answer waits: the handler has returned, but %d arrays or views of its request are kept. The client "
            "gets the answer when they are gone; copy what has to stay",
            views,
        )
