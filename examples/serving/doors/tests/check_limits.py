# SPDX-License-Identifier: Apache-2.0
"""What one client takes from others is bounded: readers that are slow, JSON that is not sent to its end, connections,
and calls at the end."""
import contextlib
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from pair import ECHOED, LARGE, MODELS, Pair, binary_request, binary_values, expect, post

VALUES = list(range(8))
# Nobody ends because of the time.
UNHURRIED = ["--head-timeout", "600s", "--idle-timeout", "600s", "--body-timeout", "600s", "--body-rate", "0"]
READY = b"GET /v2/health/live HTTP/1.1\r\nHost: d\r\n\r\n"


def check_slow_readers(programs):
    """They take all slots of the model, until the time to write is over; those of other models are free."""
    with Pair(*programs, "--write-timeout", "600s", models=MODELS + ["large"]) as pair:
        slow = _slow_readers(pair)
        with pair.connect() as other:
            expect(other.ask(binary_request("double", VALUES))[0] == 200, "other models are served meanwhile")
        for one in slow:
            one.socket.close()
    with Pair(*programs, "--write-timeout", "1s", "--slot-timeout", "60s", models=MODELS + ["large"]) as pair:
        slow = _slow_readers(pair)
        with pair.connect() as other:
            status, headers, body = other.ask(binary_request("large", [3] * 8))
            expect(status == 200 and binary_values(headers, body) == (3.0,) * LARGE, "slow readers lose their slots")
        for one in slow:
            expect(_ends(one), "a slow reader's connection ends")


def _slow_readers(pair):
    """As many as `large` has slots; each has got the first bytes of its answer."""
    slow = [pair.connect(window=4096) for _ in range(4)]
    for one in slow:
        one.send(binary_request("large", VALUES))
    for one in slow:
        expect(one.socket.recv(8, socket.MSG_WAITALL) == b"HTTP/1.1", "an answer begins")
    return slow


def _ends(one):
    """True: its answer was cut."""
    try:
        one.answer()
    except (EOFError, ConnectionResetError):
        return True
    return False


def answered(pair, request, count):
    """Sends it so often, one after the other."""
    for _ in range(count):
        with pair.connect() as one:
            status, _, text = one.ask(request)
            expect(status == 200, f"an honest client is answered: {status} {text}")


def check_slow_bodies(programs):
    """They hold half of the slots at most, and lose them after the grace time; honest clients go on meanwhile."""
    options = ["--slots", "4", "--body-grace", "1s", "--body-rate", "4096", "--body-timeout", "100s"]
    whole = binary_request("echo", [1.5] * ECHOED)
    with Pair(*programs, *options, "--slot-timeout", "60s") as pair:
        slow = [pair.connect() for _ in range(8)]
        for one in slow:
            one.send(whole[:20000])
        answered(pair, binary_request("double", VALUES), 10)
        answered(pair, whole, 2)
        for one in slow:
            status, _, text = one.answer()
            expect(status == 408 and b"in time" in text, f"a slow one loses its slot: {status} {text}")
            one.socket.close()
        # One that is slow, but not too slow, is answered.
        with pair.connect() as one:
            step = 16000
            for at in range(0, len(whole), step):
                one.send(whole[at:at + step])
                time.sleep(0.3)
            expect(one.answer()[0] == 200, "16 KB in 0.3 s are fast enough")


def check_model_requests(programs):
    with Pair(*programs, "--model-requests", "2", "--body-timeout", "100s", "--body-rate", "0") as pair:
        cut = binary_request("double", VALUES)[:-4]
        with pair.connect() as first, pair.connect() as second:
            for one in (first, second):
                one.send(cut)
            with pair.connect() as third:
                for _ in range(500):
                    status, headers, text = third.ask(post("double", b"{}"))
                    if status == 429:
                        break
                    time.sleep(0.02)
                expect(status == 429 and headers.get("retry-after") == "1", f"a third is refused: {status} {text}")
            answered(pair, binary_request("slow", VALUES), 1)
        for _ in range(500):
            with pair.connect() as one:
                if one.ask(binary_request("double", VALUES))[0] == 200:
                    return
        expect(False, "the others have left")


def check_descriptors(programs):
    """The door raises its limit to the hard one, and takes as many connections as that allows."""
    with Pair(*programs) as pair:
        def ready(hard, *options):
            limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (60, hard))
            command = [*pair.plain, "--http", "127.0.0.1:0", *options]
            door = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                    preexec_fn=limit)
            line = door.stdout.readline()
            door.send_signal(signal.SIGTERM)
            _, said = door.communicate(timeout=60)
            return json.loads(line) if line else None, said

        told, said = ready(400)
        few = told["connections"]
        expect(told["descriptors"] == 400 and 100 < few < 400, f"{told}")
        expect(f"allow {few} connections" in said and "not 1024" in said and "ulimit -Hn" in said, f"{said}")
        told, said = ready(400, "--max-connections", "50")
        expect(told["connections"] == 50 and told["descriptors"] == 400 and not said, f"{told} {said}")
        told, said = ready(60)
        expect(told is None and "60 descriptors are too few" in said, f"{told} {said}")


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
                with pair.connect() as third:
                    for _ in range(500):  # until the door has taken the others' JSON
                        status, headers, text = third.ask(post("double", body))
                        if status == 429:
                            break
                        time.sleep(0.02)
                    expect(status == 429 and headers.get("retry-after") == "1", f"no memory for a third: {text}")
                with pair.connect() as third:
                    expect(third.ask(binary_request("double", VALUES))[0] == 200, "short JSON has room")
                first.send(body[-10:])
                expect(first.answer()[0] == 200, "the first is answered")
            with pair.connect() as one:
                expect(one.ask(post("double", body))[0] == 200, "the memory is free again")


def check_connections(programs):
    """More of them wait in the listener's queue while requests are under way, and are served when others have gone."""
    with Pair(*programs, "--max-connections", "2", "--address-connections", "3", "--body-timeout", "100s",
              "--body-rate", "0") as pair:
        with pair.connect() as first, pair.connect() as second:
            for one in (first, second):
                one.begin(binary_request("double", VALUES), left_out=4)
            with pair.connect() as third:
                third.send(READY)
                third.socket.settimeout(0.5)
                try:
                    third.answer()
                    expect(False, "a third waits")
                except TimeoutError:
                    pass
                third.socket.settimeout(60)
                first.socket.close()
                expect(third.answer()[0] == 200, "until another has gone")


def check_newcomers(programs):
    """Of a full door, the connection that is idle for the longest time ends for each newcomer."""
    with Pair(*programs, "--max-connections", "4", "--address-connections", "9", *UNHURRIED) as pair:
        with pair.connect() as busy:
            busy.begin(binary_request("double", VALUES), left_out=4)
            silent = [pair.connect() for _ in range(2)]
            with pair.connect() as cut:
                cut.send(READY[:10])
                newcomers = []
                for each in silent:
                    newcomers.append(pair.connect())
                    expect(newcomers[-1].ask(READY)[0] == 200, "a newcomer is served")
                    expect(each.closed(), "in the place of the oldest")
            for one in silent + newcomers:
                one.socket.close()
            kept = [pair.connect() for _ in range(3)]
            for _ in range(3):
                expect(all(one.ask(READY)[0] == 200 for one in kept), "three have room")
            busy.send(struct.pack("<f", VALUES[-1]))
            expect(busy.answer()[0] == 200, "a request that is under way goes on")
            for one in kept:
                one.socket.close()


def check_addresses(programs):
    """An address has its share of the connections: its own longest idle one ends, or its newcomer."""
    with Pair(*programs, "--max-connections", "8", *UNHURRIED) as pair:
        with pair.connect() as other:
            expect(other.ask(READY)[0] == 200, "another is there first")
            many = [pair.connect(source="127.0.0.2") for _ in range(10)]
            for each in many[:6]:
                expect(each.closed(), "half of the door is one address's")
            for each in many[6:]:
                each.begin(binary_request("double", VALUES), left_out=4)
            with pair.connect(source="127.0.0.2") as one:
                expect(one.closed(), "no request of the same address ends for a newcomer")
            expect(other.ask(READY)[0] == 200, "others stay")
            third = [pair.connect(source="127.0.0.3") for _ in range(3)]
            expect(all(one.ask(READY)[0] == 200 for one in third), "the door is full")
            with pair.connect(source="127.0.0.2") as one:
                expect(one.closed(), "a newcomer of a client that has its share")
            for each in [other, *third]:
                expect(each.ask(READY)[0] == 200, "costs nobody else a connection")
            for each in many + third:
                each.socket.close()


def check_silence(programs):
    """More connections than the door has room for never send anything: it serves others all the time."""
    with Pair(*programs, *UNHURRIED) as pair:
        silent = [pair.connect(source=f"127.0.0.{2 + n % 3}") for n in range(1100)]
        for _ in range(20):
            with pair.connect() as one:
                expect(one.ask(READY)[0] == 200, "served at once")
        for each in silent:
            each.socket.close()


def check_first_header(programs):
    """Its time begins with the connection, and not once more with its first byte."""
    with Pair(*programs, "--head-timeout", "3s", "--idle-timeout", "600s") as pair:
        with pair.connect() as other:
            expect(other.ask(READY)[0] == 200, "one that asks")
            with pair.connect() as slow, pair.connect() as silent:
                time.sleep(1)
                with contextlib.suppress(ConnectionError):
                    slow.send(READY[:1])
                expect(silent.closed(), "the first byte has a deadline of its own")
                expect(other.ask(READY)[0] == 200, "goes on")
                expect(has_ended(slow), "the door waits for the older one no longer than for the younger one")


def has_ended(one):
    """True: the door has answered or closed it already."""
    one.socket.setblocking(False)
    try:
        one.socket.recv(1)
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


def check_drain(programs):
    """A door that is asked to end waits for no client beyond its time."""
    with Pair(*programs, "--drain-timeout", "1s", "--body-timeout", "200s") as pair:
        with pair.connect() as one:
            one.begin(binary_request("double", VALUES), left_out=4)
            began = time.monotonic()
            pair.end_door()
            pair.door.wait(timeout=60)
            took = time.monotonic() - began
    expect(took > 0.8, f"a drain takes its time: {took:.1f} s")


def check_drain_delay(programs):
    """From SIGTERM on the door is not ready, but serves old and new connections; another signal ends that."""
    ready = READY.replace(b"live", b"ready")
    with Pair(*programs, "--drain-delay", "3600s") as pair, pair.connect() as old:
        expect(old.ask(ready)[0] == 200, "it is ready")
        pair.end_door()
        while (got := old.ask(ready))[0] == 200:
            pass
        expect(got[0] == 503 and b"closing" in got[2], f"it says why it is not ready: {got}")
        with pair.connect() as new:
            for one in (old, new):
                expect(one.ask(ready)[0] == 503, "it is not ready")
                expect(one.ask(READY)[0] == 200, "it is alive")
                expect(one.ask(binary_request("double", VALUES))[0] == 200, "it serves")
        pair.door.send_signal(signal.SIGTERM)
        pair.door.wait(timeout=60)
    with Pair(*programs, "--drain-delay", "200ms") as pair:
        pair.end_door()
        pair.door.wait(timeout=60)


def check_last_moments(programs):
    """However many signals come while it ends, none of them kills it."""
    for _ in range(5):
        with Pair(*programs) as pair:
            while pair.door.poll() is None:
                pair.door.send_signal(signal.SIGTERM)


def main():
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    programs = sys.argv[1:3]
    for check in (check_slow_readers, check_slow_bodies, check_model_requests, check_descriptors, check_json_memory,
                  check_connections, check_newcomers, check_addresses, check_silence, check_first_header, check_drain,
                  check_drain_delay, check_last_moments):
        check(programs)
        print(check.__name__, "good", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
