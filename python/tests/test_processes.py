# SPDX-License-Identifier: Apache-2.0
"""Interrupts, fork, and the end of the interpreter, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from conftest import PATIENCE

BEGIN = """
import accel_transport as at, asyncio, faulthandler, gc, os, queue, signal, sys, threading, time
faulthandler.dump_traceback_later(50, exit=True)
def echo(request): return request.data
patient = {"call_timeout": 50.0, "connect_timeout": 50.0, "peer_timeout": 30.0}
def connect(server, **o): return at.Channel(server.endpoints[0], **(patient | o))
"""


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", BEGIN + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    said = [line for line in done.stderr.splitlines() if "[accel] warning" not in line]
    assert (done.returncode, said) == (0, [])
    return done.stdout


@pytest.mark.parametrize("handler", ["lambda r: None if kept.append(r) else None", "lambda r: time.sleep(60)"])
def test_interrupt_ends_a_wait(handler: str) -> None:
    assert (
        run(f"""
        kept = []
        server = at.Server("shm://python-%d" % os.getpid(), {handler}, drain_timeout=0.0)
        channel = connect(server)
        try:
            threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            channel.call(b"x")
        except KeyboardInterrupt: print("interrupted", flush=True)
        os._exit(0)
    """)
        == "interrupted\n"
    )


def test_child_of_fork_is_told_and_parent_goes_on() -> None:
    assert (
        run("""
        server = at.Server("local://x", echo)
        channel = connect(server)
        response, call = channel.call(b"x"), channel.submit(b"y")
        pool = at.ChannelPool("local://x", **patient)
        pool.call(b"x")
        child = os.fork()
        if child == 0:
            code = 0
            for use in (lambda: channel.call(b"x"), channel.begin, call.wait, lambda: pool.call(b"x"),
                        lambda: server.add_target("a", echo)):
                try: use()
                except at.InvalidState as told: code += "fork" in str(told)
                except BaseException as other: print(other, file=sys.stderr)
            channel.close(); server.stop(); pool.close()
            del response, call, channel, server, pool
            gc.collect()
            with at.Server("local://x", echo) as own, connect(own) as mine:  # its own context
                code += bytes(mine.call(b"child")) == b"child"
            os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(bytes(call.wait()), bytes(channel.call(b"parent")))
    """)
        == "6\nb'y' b'parent'\n"
    )


@pytest.mark.parametrize("scheme", ["local", "shm"])
def test_interpreter_ends_with_everything_open(scheme: str) -> None:
    assert (
        run(f"""
        uri = "{scheme}://python-%d" % os.getpid()
        kept = queue.Queue()
        server = at.Server(uri, lambda r: r.data if bytes(r.data) == b"x" else kept.put(r), drain_timeout=0.0)
        channel, pool = connect(server), at.ChannelPool(uri, **patient)
        response = pool.call(b"x")
        view = memoryview(channel.call(b"x"))
        call = channel.submit(b"keep")
        request = kept.get()
        begun = channel.begin()
        region = at.Context().allocate(64)
        context = at.Context()
        print("end")
    """)
        == "end\n"
    )


def test_interpreter_ends_while_daemon_threads_call() -> None:
    assert (
        run("""
        server = at.Server("shm://python-%d" % os.getpid(), echo, drain_timeout=0.1)
        started = threading.Semaphore(0)
        def client():
            channel = connect(server)
            while True:
                try: channel.call(b"x")
                except at.Error: return
                started.release()
        for _ in range(3): threading.Thread(target=client, daemon=True).start()
        for _ in range(30): started.acquire()
        print("end")
    """)
        == "end\n"
    )


def test_loop_ends_with_everything_open() -> None:
    assert (
        run("""
        async def main():
            async def handler(request): await asyncio.sleep(50)
            server = at.Server("shm://python-%d" % os.getpid(), handler, drain_timeout=0.1)
            channel = await at.connect(server.endpoints[0], **patient)
            asyncio.create_task(channel.call(b"x"))
            await asyncio.sleep(0.05)
            print("end")
        asyncio.run(main())
    """)
        == "end\n"
    )


def test_interpreter_ends_while_another_threads_loop_polls_its_server() -> None:
    assert (
        run("""
        entered, ready = threading.Event(), threading.Event()
        async def handler(request): return request.data
        def factory(loop, coroutine, **named):
            task = asyncio.Task(coroutine, loop=loop, **named)
            if "answering" in task.get_coro().__name__:  # on the server's thread, which is in its poll
                entered.set()
                time.sleep(0.5)
                print("polled", flush=True)
            return task
        async def main():
            global server
            server = at.Server("shm://python-%d" % os.getpid(), handler, drain_timeout=0.0)
            asyncio.get_running_loop().set_task_factory(factory)
            ready.set()
            await asyncio.sleep(50)
        threading.Thread(target=asyncio.run, args=(main(),), daemon=True).start()
        ready.wait()
        channel = connect(server)
        call = channel.submit(b"x")
        entered.wait()
    """)
        == "polled\n"
    )


def test_context_manager_in_a_loop_leaves_nothing() -> None:
    assert (
        run("""
        async def handler(request): return request.data
        async def main():
            async with at.Server("tcp://127.0.0.1:0", handler, insecure=True) as server:
                async with at.connect(server.endpoints[0], insecure=True, **patient) as channel:
                    await channel(b"x")
        before = None
        for _ in range(8):
            asyncio.run(main())
            gc.collect()
            now = len(os.listdir("/proc/self/fd"))
            before = before if before is not None else now
        print(now <= before + 1)
    """)
        == "True\n"
    )


def test_memory_does_not_grow() -> None:
    assert (
        run("""
        server = at.Server("local://x", echo, poll="block")
        channel = connect(server, poll="block")
        def pages():
            gc.collect()
            return int(open("/proc/self/statm").read().split()[1])
        for _ in range(2000): channel.call(b"x" * 64)
        before = pages()
        for _ in range(8000): channel.call(b"x" * 64, metadata={"k": "v"})
        print(pages() - before < 256)
    """)
        == "True\n"
    )
