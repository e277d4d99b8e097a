# SPDX-License-Identifier: Apache-2.0
"""What one client takes from others is bounded: readers that are slow, JSON that is not sent to its end, connections,
and calls at the end."""
import json
import os
import signal
import socket
import sys
import tempfile
import time

from pair import LARGE, MODELS, Connection, Pair, binary_request, binary_values, expect, post

VALUES = list(range(8))
READY = b"GET /v2/health/live HTTP/1.1\r\nHost: d\r\n\r\n"


def slow_reader(port):
    """A connection whose window is as small as the kernel lets it be."""
    one = Connection.__new__(Connection)
    one.socket = socket.socket()
    one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.socket.settimeout(20)
    one.socket.connect(("127.0.0.1", port))
    one.unread = b""
    return one


def check_slow_readers(programs):
    """They take all slots of the model, until the time to write is over."""
    with Pair(*programs, "--write-timeout", "1s", models=MODELS + ["large"]) as pair:
        slow = [slow_reader(pair.port) for _ in range(4)]
        for one in slow:
            one.send(binary_request("large", VALUES))
        time.sleep(0.3)
        with pair.connect() as other:
            began = time.monotonic()
            expect(other.ask(binary_request("double", VALUES))[0] == 200, "other models are served meanwhile")
            expect(time.monotonic() - began < 1, "at once")
            status, headers, body = other.ask(binary_request("large", [3] * 8))
            took = time.monotonic() - began
            expect(status == 200 and binary_values(headers, body) == (3.0,) * LARGE, "the slots are free again")
            expect(took < 4, f"slow readers lose their slots: {took:.1f} s")
        for one in slow:
            expect(_ends(one), "a slow reader's connection ends")


def _ends(one):
    """True: its answer was cut."""
    try:
        one.answer()
    except (EOFError, ConnectionResetError):
        return True
    return False


def check_json_memory(programs):
    """JSON of all requests together is bounded, and comes free when its client leaves."""
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [8], "data": VALUES}]}).encode()
    body += b" " * (2000 - len(body))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "door.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"limits": {"json_memory": 4500}}, file)
        with Pair(*programs, "--config", path) as pair:
            with pair.connect() as first, pair.connect() as second:
                for one in (first, second):
                    one.send(post("double", body)[:-10])
                time.sleep(0.2)
                with pair.connect() as third:
                    status, headers, text = third.ask(post("double", body))
                    expect(status == 429 and headers.get("retry-after") == "1", f"no memory for a third: {text}")
                with pair.connect() as third:
                    expect(third.ask(binary_request("double", VALUES))[0] == 200, "short JSON has room")
                first.send(body[-10:])
                expect(first.answer()[0] == 200, "the first is answered")
            with pair.connect() as one:
                expect(one.ask(post("double", body))[0] == 200, "the memory is free again")


def check_connections(programs):
    """More of them wait in the listener's queue, and are served when others have gone."""
    with Pair(*programs, "--max-connections", "2") as pair:
        with pair.connect() as first, pair.connect() as second:
            expect(first.ask(READY)[0] == 200 and second.ask(READY)[0] == 200, "two are served")
            with pair.connect() as third:
                third.send(READY)
                third.socket.settimeout(0.5)
                try:
                    third.answer()
                    expect(False, "a third waits")
                except TimeoutError:
                    pass
                third.socket.settimeout(20)
                first.socket.close()
                expect(third.answer()[0] == 200, "until another has gone")


def check_drain(programs):
    """A door that is asked to end waits for no client beyond its time."""
    with Pair(*programs, "--drain-timeout", "1s", "--body-timeout", "60s") as pair:
        with pair.connect() as one:
            one.send(binary_request("double", VALUES)[:-4])
            time.sleep(0.2)
            began = time.monotonic()
            pair.door.send_signal(signal.SIGTERM)
            pair.door.wait(timeout=20)
            took = time.monotonic() - began
    expect(0.8 < took < 10, f"a drain takes its time, and no more: {took:.1f} s")


def main():
    programs = sys.argv[1:3]
    for check in (check_slow_readers, check_json_memory, check_connections, check_drain):
        check(programs)
        print(check.__name__, "good", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
