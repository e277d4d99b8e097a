# SPDX-License-Identifier: Apache-2.0
"""What a scrape of the doors says after requests that a test has counted, and under load."""
import re
import socket
import subprocess
import sys
import time
import urllib.request

from pair import Pair, binary_request, expect, post

VALUES = list(range(8))
STAGES = ("receive", "slot", "call", "answer")


def scrape(pair):
    """{series: value}."""
    with urllib.request.urlopen(pair.scrapes, timeout=20) as answer:
        text = answer.read().decode()
    return {name: float(value) for name, value in re.findall(r"^(accel_\S+) (\S+)$", text, re.M)}


def own(pair):
    return {name: value for name, value in scrape(pair).items() if name.startswith("accel_door_")}


def name_of(series, **labels):
    told = ",".join(f'{key}="{value}"' for key, value in {"door": "http", **labels}.items())
    return f"accel_door_{series}{{{told}}}"


def seen(pair, wanted, series, **labels):
    """Whether a series has this value soon: a client has its answer before the door has counted it."""
    for _ in range(500):
        if scrape(pair).get(name_of(series, **labels), 0) == wanted:
            return True
        time.sleep(0.02)
    return False


def check_requests(pair):
    request = binary_request("double", VALUES)
    with pair.connect() as one:
        for _ in range(3):
            expect(one.ask(request)[0] == 200, "an inference")
        expect(one.ask(post("nobody", b""))[0] == 404, "no such model")
        double = {"model": "double"}
        for wanted, series, labels in [
            (3, "requests_total", {**double, "status": "200"}),
            (1, "requests_total", {"model": "(unknown)", "status": "404"}),
            (3, "request_seconds_count", double),
            (3, "request_seconds_bucket", {**double, "le": "10"}),
            (0, "requests_in_flight", double),
            (3 * len(request.split(b"\r\n\r\n", 1)[1]), "received_bytes_total", double),
            (1, "connections", {}),
            (1, "connections_total", {}),
            *((3, "stage_seconds_count", {**double, "stage": each}) for each in STAGES),
        ]:
            expect(seen(pair, wanted, series, **labels), f"{series} {labels} {wanted}: {own(pair)}")
        now = scrape(pair)
        whole = now[name_of("request_seconds_sum", **double)]
        stages = sum(now[name_of("stage_seconds_sum", **double, stage=each)] for each in STAGES)
        expect(0 < whole < 60 and abs(whole - stages) < 1e-6, f"the stages are the whole: {own(pair)}")
        expect(now[name_of("sent_bytes_total", **double)] > 300, f"{now}")
        expect(any(not name.startswith("accel_door_") for name in now), "the library's own")


def check_names_of_clients(pair):
    """Whatever names clients think of, they make no new series."""
    with pair.connect() as one:
        for name in ("nobody-1", "nobody-2"):
            expect(one.ask(post(name, b""))[0] == 404, "no such model")
    expect(seen(pair, 3, "requests_total", model="(unknown)", status="404"), f"{own(pair)}")
    expect(not [name for name in scrape(pair) if "nobody" in name], "no series of such a name")


def check_in_flight(pair):
    with pair.connect() as one:
        request = binary_request("double", VALUES)
        one.send(request[:-4])
        expect(seen(pair, 1, "requests_in_flight", model="double"), f"one is under way: {own(pair)}")
        one.send(request[-4:])
        expect(one.answer()[0] == 200, "it is whole")
        expect(seen(pair, 0, "requests_in_flight", model="double"), f"{own(pair)}")
        expect(one.ask(binary_request("slow", VALUES))[0] == 200, "the slow one")
        expect(seen(pair, 1, "requests_total", model="slow", status="200"), f"{own(pair)}")
    now = scrape(pair)
    for series, labels in [("request_seconds_bucket", {}), ("stage_seconds_bucket", {"stage": "call"})]:
        expect(now[name_of(series, model="slow", **labels, le="0.25")] == 0, f"it took longer: {own(pair)}")


def check_leavers(pair):
    with pair.connect() as leaver:
        leaver.send(binary_request("slow", VALUES))
    expect(seen(pair, 1, "cancelled_total", model="slow"), f"its client left: {own(pair)}")
    expect(seen(pair, 0, "requests_in_flight", model="slow"), f"{own(pair)}")
    expect(seen(pair, 0, "connections"), "all have left")


def check_unread_stream(pair):
    """A client that stops reading stops the model after some 64 KiB, not after the megabytes that a kernel takes."""
    sent = lambda: scrape(pair).get(name_of("sent_bytes_total", model="flood"), 0)
    with pair.connect(window=4096) as one:
        one.send(post("flood", b'{"text_input": ""}', what="generate_stream"))
        before, now = 0, sent()
        for _ in range(60):
            if now == before > 0:
                break
            time.sleep(0.3)
            before, now = now, sent()
        expect(0 < now == before < 1 << 19, f"it stands still: {before}, {now}")


def check_scrapes_under_load(programs, crowd):
    """Counters of both doors never fall, and what is counted twice agrees at the end."""
    with Pair(*programs, "--metrics", "127.0.0.1:0", doors=("http", "grpc")) as pair:
        load = subprocess.Popen([crowd, "--http", f"127.0.0.1:{pair.port}", "--grpc", pair.address, "--process",
                                 str(pair.door.pid), "--clients", "20", "--seconds", "1"], stdout=subprocess.DEVNULL)
        before = {}
        while load.poll() is None:
            now = own(pair)
            fallen = [name for name, value in before.items()
                      if name.split("{")[0].endswith(("_total", "_count")) and now.get(name, 0) < value]
            expect(not fallen, f"a counter fell: {fallen}")
            before = now
            time.sleep(0.02)
        for door, good in (("http", "200"), ("grpc", "OK")):
            both = {"door": door, "model": "double"}
            for series in ("requests_in_flight", "connections"):
                labels = {"door": door} if series == "connections" else both
                expect(seen(pair, 0, series, **labels), f"{series}: {own(pair)}")
            now = scrape(pair)
            answers = now[name_of("requests_total", **both, status=good)]
            expect(answers > 20, f"{door} answered: {answers}")
            called = now[name_of("stage_seconds_count", **both, stage="answer")]
            whole = now[name_of("request_seconds_count", **both)]
            expect(0 < called <= whole, f"{door}: {called} stages, {whole} requests")
            expect(now[name_of("received_bytes_total", **both)] >= 32 * called, f"{door}: received")
            expect(now[name_of("sent_bytes_total", **both)] >= 32 * called, f"{door}: sent")
            expect(now[name_of("connections_total", door=door)] >= 10, f"{door}: connections")


def check_end(pair):
    """The program ends, though a client of the scrapes keeps its connection open."""
    host, port = pair.scrapes.split("/")[2].split(":")
    with socket.create_connection((host, int(port)), timeout=60) as scraper:
        scraper.sendall(b"GET /metrics HTTP/1.1\r\nHost: door\r\n\r\n")
        expect(scraper.recv(12) == b"HTTP/1.1 200", "it is scraped")
        pair.end_door()
        expect(pair.door.wait(timeout=60) == 0, "it ends well")


def main():
    programs = sys.argv[1:3]
    with Pair(*programs, "--metrics", "127.0.0.1:0", "--body-timeout", "60s") as pair:
        check_requests(pair)
        check_names_of_clients(pair)
        check_in_flight(pair)
        check_leavers(pair)
        check_unread_stream(pair)
        check_end(pair)
    for crowd in sys.argv[3:]:
        check_scrapes_under_load(programs, crowd)
    return 0


if __name__ == "__main__":
    sys.exit(main())
