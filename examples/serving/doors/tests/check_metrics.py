# SPDX-License-Identifier: Apache-2.0
"""What a scrape of the door says after requests that a test has counted."""
import re
import sys
import time
import urllib.request

from pair import Pair, binary_request, expect, post

VALUES = list(range(8))


def scrape(pair):
    """{series: value}."""
    with urllib.request.urlopen(pair.scrapes, timeout=20) as answer:
        text = answer.read().decode()
    return {name: float(value) for name, value in re.findall(r"^(accel_\S+) (\S+)$", text, re.M)}


def own(pair):
    return {name: value for name, value in scrape(pair).items() if name.startswith("accel_door_")}


def seen(pair, series, wanted):
    """Whether a series has this value soon: a client has its answer before the door has counted it."""
    for _ in range(100):
        if scrape(pair).get("accel_door_" + series, 0) == wanted:
            return True
        time.sleep(0.02)
    return False


def check_requests(pair):
    request = binary_request("double", VALUES)
    with pair.connect() as one:
        for _ in range(3):
            expect(one.ask(request)[0] == 200, "an inference")
        expect(one.ask(post("nobody", b""))[0] == 404, "no such model")
        for series, wanted in [('requests_total{status="200"}', 3), ('requests_total{status="404"}', 1),
                               ("request_seconds_count", 4), ('request_seconds_bucket{le="10"}', 4),
                               ("requests_in_flight", 0),
                               ("connections", 1), ("connections_total", 1),
                               ("received_bytes_total", 3 * len(request.split(b"\r\n\r\n", 1)[1]))]:
            expect(seen(pair, series, wanted), f"{series} {wanted}: {own(pair)}")
        now = scrape(pair)
        expect(now["accel_door_sent_bytes_total"] > 400 and now["accel_door_request_seconds_sum"] > 0, f"{now}")
        expect(any(not name.startswith("accel_door_") for name in now), "the library's own")


def check_in_flight(pair):
    with pair.connect() as one, pair.connect() as leaver:
        one.send(binary_request("slow", VALUES))
        leaver.send(binary_request("slow", VALUES))
        expect(seen(pair, "requests_in_flight", 2), "two are under way")
        leaver.socket.close()
        expect(one.answer()[0] == 200, "the slow one")
        expect(seen(pair, "requests_in_flight", 0) and seen(pair, "cancelled_total", 1), f"{own(pair)}")
    now = scrape(pair)
    bucket = now['accel_door_request_seconds_bucket{le="0.25"}']
    expect(bucket <= 4 and now["accel_door_request_seconds_count"] == 5, f"the slow one took longer: {own(pair)}")
    expect(seen(pair, "connections", 0), "all have left")


def main():
    with Pair(*sys.argv[1:3], "--metrics", "127.0.0.1:0") as pair:
        check_requests(pair)
        check_in_flight(pair)
    return 0


if __name__ == "__main__":
    sys.exit(main())
