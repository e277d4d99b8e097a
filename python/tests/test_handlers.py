# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import gc
import logging
import queue
import threading
import time
import weakref

import numpy as np
import pytest
from conftest import PATIENCE, Rig, echo

import accel_transport as at


def test_exception_is_the_answer_and_is_logged(uri: str, rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    def handler(request: at.Exchange) -> object:
        raise ValueError("no such layer: Schicht ä")

    with pytest.raises(at.ApplicationError, match="ValueError: no such layer: Schicht ä"):
        rig.pair(uri, handler).call(b"x")
    assert "Traceback" in caplog.text
    assert caplog.records[0].levelno == logging.ERROR


def test_exception_while_the_request_is_viewed_is_the_answer(uri: str, rig: Rig) -> None:
    def handler(request: at.Exchange) -> object:
        x = np.frombuffer(request.data, dtype=np.uint8)
        raise ValueError(f"sum {x.sum()}")

    with pytest.raises(at.ApplicationError, match="sum 3"):
        rig.pair(uri, handler).call(b"\1\2")


def test_what_cannot_be_sent_is_an_exception_of_the_handler(uri: str, rig: Rig) -> None:
    channel = rig.pair(uri, lambda request: object())
    with pytest.raises(at.ApplicationError, match="InvalidArgument"):
        channel.call(b"x")


def test_failure_has_the_handlers_code(uri: str, rig: Rig) -> None:
    channel = rig.pair(uri, lambda request: request.fail("too long", code=7))
    with pytest.raises(at.ApplicationError, match="too long") as caught:
        channel.call(b"x")
    assert caught.value.code == 7
    assert caught.value.status is at.Status.APPLICATION_ERROR


def test_failure_has_the_handlers_status(uri: str, rig: Rig) -> None:
    channel = rig.pair(uri, lambda request: request.fail("busy", status=at.Status.OVERLOADED))
    with pytest.raises(at.Overloaded, match="busy"):
        channel.call(b"x")


def test_dropped_exchange_is_abandoned(uri: str, rig: Rig) -> None:
    with pytest.raises(at.Abandoned, match="handler"):
        rig.pair(uri, lambda request: None).call(b"x")


def test_exchange_is_answered_later_on_another_thread(uri: str, rig: Rig) -> None:
    later: queue.Queue[at.Exchange | None] = queue.Queue()

    def answer() -> None:
        while (request := later.get(timeout=PATIENCE)) is not None:
            request.reply(bytes(request.data)[::-1])

    thread = threading.Thread(target=answer)
    thread.start()
    channel = rig.pair(uri, later.put)
    assert bytes(channel.call(b"abc")) == b"cba"
    later.put(None)
    thread.join(PATIENCE)


def test_second_answer_is_an_exception(uri: str, rig: Rig) -> None:
    caught: queue.Queue[Exception] = queue.Queue()

    def handler(request: at.Exchange) -> None:
        request.reply(b"first")
        for again in (lambda: request.reply(b"second"), lambda: request.fail("no"), lambda: request.data,
                      lambda: request.tensors, lambda: request.time_left, lambda: request.metadata):  # fmt: skip
            try:
                again()
            except at.InvalidState as failed:
                caught.put(failed)

    assert bytes(rig.pair(uri, handler).call(b"x")) == b"first"
    for _ in range(6):
        assert "answered before" in str(caught.get(timeout=PATIENCE))


def test_answer_waits_for_views_of_the_request(uri: str, rig: Rig) -> None:
    held: queue.Queue[memoryview] = queue.Queue()

    def handler(request: at.Exchange) -> None:
        held.put(request.data)
        request.reply(b"done")

    channel = rig.pair(uri, handler)
    call = channel.submit(b"request")
    view = held.get(timeout=PATIENCE)
    assert not call.done
    assert view.tobytes() == b"request"
    view.release()
    del view
    assert bytes(call.wait()) == b"done"


def test_too_long_response_says_so_and_another_is_taken(uri: str, rig: Rig) -> None:
    def handler(request: at.Exchange) -> None:
        with pytest.raises(at.MessageTooLarge, match="response_bytes"):
            request.reply(b"x" * 5000)
        with pytest.raises(at.MessageTooLarge):
            request.reply(5000)
        request.reply(b"short")

    assert bytes(rig.pair(uri, handler, response_bytes=4096).call(b"x")) == b"short"


def test_response_is_written_in_place(uri: str, rig: Rig) -> None:
    def handler(request: at.Exchange) -> None:
        request.response[:3] = b"abc"
        request.reply(3)

    assert bytes(rig.pair(uri, handler).call(b"x")) == b"abc"


def test_handler_sees_cancellation(uri: str, rig: Rig) -> None:
    entered, seen = threading.Event(), threading.Event()

    def handler(request: at.Exchange) -> object:
        entered.set()
        while not request.cancelled:
            threading.Event().wait(0.001)
        seen.set()
        return b""

    channel = rig.pair(uri, handler)
    call = channel.submit(b"x")
    assert entered.wait(PATIENCE)
    call.cancel()
    with pytest.raises(at.Cancelled):
        call.wait()
    assert seen.wait(PATIENCE)


def test_dropped_call_is_cancelled(uri: str, rig: Rig) -> None:
    entered, seen = threading.Event(), threading.Event()

    def handler(request: at.Exchange) -> object:
        entered.set()
        while not request.cancelled:
            threading.Event().wait(0.001)
        seen.set()
        return b""

    channel = rig.pair(uri, handler)
    call = channel.submit(b"x")
    assert entered.wait(PATIENCE)
    del call
    assert seen.wait(PATIENCE)


def test_time_left_is_the_clients(uri: str, rig: Rig) -> None:
    channel = rig.pair(uri, lambda request: repr(request.time_left).encode())
    assert 0 < float(bytes(channel.call(b"", timeout=PATIENCE))) <= PATIENCE


def test_handler_stops_its_server(uri: str, rig: Rig) -> None:
    servers: list[at.Server] = []

    def handler(request: at.Exchange) -> object:
        servers[0].stop()
        return b"last"

    servers.append(rig.serve(uri, handler))
    assert bytes(rig.connect(servers[0]).call(b"x")) == b"last"


class Service:
    """Its server's handler reaches it."""

    def __init__(self, uri: str, named: bool, in_loop: bool = False) -> None:
        handler = self.answer_later if in_loop else self.answer
        self.server = at.Server(uri, {"a": handler} if named else handler)

    def answer(self, request: at.Exchange) -> object:
        return request.data

    async def answer_later(self, request: at.Exchange) -> object:
        return request.data


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("stopped", [True, False])
def test_server_that_its_handler_reaches_is_collected(uri: str, named: bool, stopped: bool, rig: Rig) -> None:
    service = Service(uri, named)
    seen = weakref.ref(service)
    channel = rig.connect(service.server)
    assert bytes(channel.call(b"x", target="a" if named else None)) == b"x"
    if stopped:
        service.server.stop()
    gc.collect()
    assert seen() is not None
    del service
    gc.collect()
    assert seen() is None
    with pytest.raises(at.Error):
        channel.call(b"x", target="a" if named else None)


@pytest.mark.parametrize("named", [True, False])
def test_loops_server_that_its_handler_reaches_is_collected(uri: str, named: bool) -> None:
    async def main(close: bool) -> weakref.ref[Service]:
        service = Service(uri, named, in_loop=True)
        if close:
            await service.server.aclose()
        return weakref.ref(service)

    for close in (True, False):
        seen = asyncio.run(main(close))
        gc.collect()
        assert seen() is None


@pytest.mark.parametrize("named", [True, False])
def test_stopped_server_forgets_its_handlers(uri: str, named: bool) -> None:
    class Model:
        def __call__(self, request: at.Exchange) -> object:
            return b""

    model = Model()
    seen = weakref.ref(model)
    server = at.Server(uri, {"a": model} if named else model)
    server.add_target("b", model)
    del model
    server.stop()
    assert seen() is None
    assert server.endpoints


def test_handler_and_another_thread_stop_their_server(uri: str, rig: Rig) -> None:
    entered, leave = threading.Event(), threading.Event()

    def handler(request: at.Exchange) -> object:
        entered.set()
        assert leave.wait(PATIENCE)
        server.stop()
        return b"last"

    server = rig.serve(uri, handler, drain_timeout=PATIENCE)
    call = rig.connect(server).submit(b"x")
    assert entered.wait(PATIENCE)
    thread = threading.Thread(target=server.stop)
    thread.start()
    time.sleep(0.05)  # usually it waits by now
    leave.set()
    assert bytes(call.wait()) == b"last"
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_exchange_outlives_its_server(uri: str, rig: Rig) -> None:
    kept: queue.Queue[at.Exchange] = queue.Queue()
    server = rig.serve(uri, kept.put, drain_timeout=0.0)
    call = rig.connect(server).submit(b"kept")
    request = kept.get(timeout=PATIENCE)
    server.stop()
    assert bytes(request.data) == b"kept"
    request.reply(b"too late")
    with pytest.raises(at.PeerLost):
        call.wait()
    del request
    gc.collect()


def test_sixteen_threads_call_one_server(uri: str, rig: Rig) -> None:
    server = rig.serve(uri, echo, workers=2)
    failures: list[BaseException] = []

    def client(number: int) -> None:
        try:
            channel = rig.connect(server)
            for i in range(20):
                assert bytes(channel.call(b"%d %d" % (number, i))) == b"%d %d" % (number, i)
        except BaseException as failed:
            failures.append(failed)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not failures
