# SPDX-License-Identifier: Apache-2.0
"""Many clients at once over HTTP and over gRPC, which leave at random (crowd/): nobody gets another's answer, nothing
leaks, all slots are free afterwards, and a drain answers what is under way. ACCEL_SOAK_SECONDS=300 makes it 1,000
clients of each for so long."""
import os
import resource
import subprocess
import sys
import time

from pair import Pair, binary_request, binary_values, expect

SECONDS = int(os.environ.get("ACCEL_SOAK_SECONDS", "0"))
CLIENTS = 1000 if SECONDS else 200
SLOTS = 32


def raise_descriptor_limit():
    """For this process, and the door and the crowd that it starts."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def check_crowd(crowd, pair, *where):
    before = pair.descriptors()
    done = subprocess.run([crowd, *where, "--process", str(pair.door.pid), "--clients", str(CLIENTS), "--seconds",
                           str(SECONDS or 4)], timeout=SECONDS + 100, check=False)
    expect(done.returncode == 0, "the crowd is content")
    deadline = time.monotonic() + 60
    while pair.descriptors() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    expect(pair.descriptors() <= before, f"{pair.descriptors()} descriptors, {before} before")


def check_all_slots(pair):
    """As many calls as there are slots are at the server at once, with the one that says so."""
    held = [pair.connect() for _ in range(SLOTS - 1)]
    for n, one in enumerate(held):
        one.send(binary_request("held", [n] * 8))
    with pair.connect() as other:
        expect(other.ask(binary_request("caught", [SLOTS - 1] * 8))[0] == 200, "all slots are free")
        expect(other.ask(binary_request("release", [0] * 8))[0] == 200, "all are answered")
    for n, one in enumerate(held):
        status, headers, body = one.answer()
        expect(status == 200 and binary_values(headers, body) == (2.0 * n,) * 8, f"slot {n}")
        one.socket.close()


def check_drain(pair):
    with pair.connect() as one:
        one.begin(binary_request("slow", [3] * 8))
        pair.end_door()
        status, headers, _ = one.answer()
        expect(status == 200 and headers["connection"] == "close", "a drain answers what is under way")


def main():
    raise_descriptor_limit()
    gateway, server, crowd, *more = sys.argv[1:]
    limit = str(2 * CLIENTS)
    room = ("--max-connections", limit, "--address-connections", limit)
    with Pair(gateway, server, *room) as pair:
        check_all_slots(pair)
        check_crowd(crowd, pair, "--http", f"127.0.0.1:{pair.port}")
        check_all_slots(pair)
        check_drain(pair)
    print(pair.summary)
    if more:
        with Pair(gateway, server, "--max-calls", limit, *room, doors=("grpc",)) as pair:
            check_crowd(crowd, pair, "--grpc", pair.address)
        print(pair.summary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
