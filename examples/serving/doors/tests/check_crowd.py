# SPDX-License-Identifier: Apache-2.0
"""200 clients at once, which leave in the middle of a request at random: nobody gets another's answer, nothing leaks,
and a drain answers what is under way."""
import random
import signal
import sys
import threading
import time

from pair import Pair, binary_request, binary_values, expect

CLIENTS = 200
REQUESTS = 30


def one_request(connection, chance, value):
    request = binary_request("double", [value] * 8)
    if chance.random() < 0.1:
        connection.send(request[: chance.randrange(1, len(request))])
        return False
    connection.send(request)
    if chance.random() < 0.1:
        return False
    status, headers, body = connection.answer()
    expect_answer = status == 200 and binary_values(headers, body) == (2.0 * value,) * 8
    if not expect_answer:
        raise ValueError(f"client {value}: {status} {body[:200]}")
    return True


def client(pair, number, failures):
    chance = random.Random(number)
    connection = pair.connect()
    try:
        for i in range(REQUESTS):
            if not one_request(connection, chance, number * 100 + i):
                connection.socket.close()
                connection = pair.connect()
    except Exception as failure:  # a thread's own would be lost
        failures.append(repr(failure))
    finally:
        connection.socket.close()


def check_crowd(pair):
    failures = []
    threads = [threading.Thread(target=client, args=(pair, n, failures)) for n in range(CLIENTS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    expect(not failures, f"{len(failures)} failures, the first {failures[:3]}")


def check_drain(pair):
    with pair.connect() as one:
        one.send(binary_request("slow", [3] * 8))
        time.sleep(0.1)
        pair.door.send_signal(signal.SIGTERM)
        status, headers, _ = one.answer()
        expect(status == 200 and headers["connection"] == "close", "a drain answers what is under way")


def main():
    with Pair(*sys.argv[1:3]) as pair:
        before = pair.descriptors()
        check_crowd(pair)
        deadline = time.monotonic() + 5
        while pair.descriptors() > before and time.monotonic() < deadline:
            time.sleep(0.05)
        expect(pair.descriptors() <= before, f"{pair.descriptors()} descriptors, {before} before")
        # As many calls as there are slots are free again.
        held = [pair.connect() for _ in range(32)]
        for n, one in enumerate(held):
            one.send(binary_request("slow", [n] * 8))
        began = time.monotonic()
        for n, one in enumerate(held):
            status, headers, body = one.answer()
            expect(status == 200 and binary_values(headers, body) == (2.0 * n,) * 8, f"slot {n}")
            one.socket.close()
        expect(time.monotonic() - began < 2, "all slots are free after the crowd")
        check_drain(pair)
    print(pair.summary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
