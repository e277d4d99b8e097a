# SPDX-License-Identifier: Apache-2.0
"""The generate extension: documents, server-sent events, errors in the middle, slow clients, and clients that leave."""
import json
import subprocess
import sys
import time

from pair import Pair, binary_request, binary_values, expect, post, reached

# No client and no model is too slow.
UNHURRIED = ("--write-timeout", "600s", "--part-timeout", "600s")


def numbers(count, first=0.0, wait_ms=0, fails=0, ends=0, infinite=0, stepwise=0):
    return {"x": [count, first, wait_ms, fails, ends, infinite, stepwise, 0]}


def generate(model, document, what="generate"):
    return post(model, json.dumps(document).encode(), what=what)


def stream(pair, model, document):
    """(status, headers, events) of one stream."""
    with pair.connect() as one:
        status, headers, body = one.ask(generate(model, document, "generate_stream"))
        if status != 200:
            return status, headers, [json.loads(body)]
        return status, headers, list(one.events())


def check_events(pair):
    status, headers, events = stream(pair, "parts", {"id": "a", **numbers(20, 100)})
    expect(status == 200 and headers["content-type"].startswith("text/event-stream"), f"events: {headers}")
    expect([e["y"] for e in events] == [[100.0 + n] * 8 for n in range(20)], f"each part once, in order: {events}")
    expect(all(e["id"] == "a" and e["model_name"] == "parts" and e["model_version"] == "1" for e in events), "names")
    _, _, events = stream(pair, "parts", numbers(2, ends=1))
    expect([e["y"][0] for e in events] == [0, 1, -1], f"the end has outputs: {events}")
    _, _, events = stream(pair, "parts", numbers(0))
    expect(events == [], f"no parts, no events: {events}")
    _, _, events = stream(pair, "words", {"text_input": "a little wörld"})
    expect([e["text_output"] for e in events] == ["a", "little", "wörld"], f"texts: {events}")
    _, _, events = stream(pair, "double", {"x": [1.5] * 8})
    expect([e["y"] for e in events] == [[3.0] * 8], f"a model without parts: {events}")


def check_at_once(pair):
    """Each event comes before the next one exists."""
    with pair.connect() as one, pair.connect() as other:
        one.send(generate("parts", numbers(3, stepwise=1), "generate_stream"))
        one.answer()
        for n, event in enumerate(one.events()):
            expect(event["y"][0] == n, f"part {n}: {event}")
            expect(other.ask(binary_request("release", [0] * 8))[0] == 200, "the model may go on")


def check_documents(pair):
    with pair.connect() as one:
        for model, document, wanted in [
            ("double", {"id": "b", "x": [[2.0] * 8]}, 400),
            ("double", {"id": "b", "x": [2.0] * 8}, {"id": "b", "y": [4.0] * 8}),
            ("parts", numbers(1, 5), {"y": [5.0] * 8}),
            ("parts", numbers(0, ends=1), {"y": [-1.0] * 8}),
            ("parts", numbers(0), 500),
            ("parts", numbers(2), 400),
            ("parts", numbers(1, ends=1), 400),
            ("parts", numbers(1000), 400),
            ("parts", numbers(1, fails=1), 500),
            ("words", {"text_input": "one"}, {"text_output": "one"}),
            ("words", {"text_input": "x" * 65}, 400),
            ("words", {"text_input": [1]}, 400),
            ("double", {}, 400),
            ("double", {"x": [1] * 8, "temperature": 1}, {"y": [2.0] * 8}),
            ("double", {"x": ["a"] * 8}, 400),
            ("double", {"x": [1] * 8, "parameters": 1}, 400),
            ("nan", {"x": [1] * 8}, 400),
            ("failing", {"x": [1] * 8}, 500),
            ("nobody", {"x": 1}, 404),
        ]:
            status, _, body = one.ask(generate(model, document))
            body = json.loads(body)
            good = status == wanted and body["error"] if isinstance(wanted, int) else wanted.items() <= body.items()
            expect(good, f"{model} {document}: {status} {body}, and not {wanted}")


def check_errors(pair):
    for document, before, word in [(numbers(3, fails=1), 3, "on fire"),
                                   (numbers(9, infinite=3), 2, "JSON cannot represent"),
                                   ({**numbers(9, wait_ms=100), "parameters": {"timeout": 350000}}, None, "timed_out"),
                                   (numbers(3, wait_ms=4500), 0, "timed_out")]:
        status, _, events = stream(pair, "parts", document)
        none = before == 0 or (before is None and len(events) == 1)  # a busy machine may need longer for the first part
        expect(status == (504 if none else 200) and word in events[-1]["error"], f"{word}: {status} {events}")
        expect(before in (None, len(events) - 1) and all("y" in e for e in events[:-1]), f"{word}: {events}")
    status, _, events = stream(pair, "parts", numbers(0, fails=1))
    expect(status == 500 and "on fire" in events[0]["error"], f"an error before the first event: {status} {events}")


def check_connection(pair):
    """A connection goes on after a stream; HTTP/1.0 has no chunks."""
    with pair.connect() as one:
        for n in range(3):
            one.send(generate("parts", numbers(3, n), "generate_stream") + binary_request("double", [n] * 8))
            expect(one.answer()[0] == 200 and [e["y"][0] for e in one.events()] == [n, n + 1, n + 2], f"stream {n}")
            status, headers, body = one.answer()
            expect(status == 200 and binary_values(headers, body) == (2.0 * n,) * 8, f"behind stream {n}")
        one.send(generate("parts", numbers(2, wait_ms=20), "generate_stream").replace(b"HTTP/1.1", b"HTTP/1.0"))
        expect("transfer-encoding" not in one.answer()[1], "HTTP/1.0 has no chunks")
        rest = one.unread
        while more := one.socket.recv(65536):
            rest += more
        expect(rest.count(b"data: ") == 2, f"two events, and the end: {rest}")


def slow_clients(pair, number):
    """They do not read what is streamed to them."""
    held = [pair.connect(window=4096) for _ in range(number)]
    for one in held:
        one.send(generate("flood", {"text_input": ""}, "generate_stream"))
    return held


def check_others(pair, clients=40):
    """Clients that do not read, and have time for that, hold their parts; nobody else waits for them."""
    held = slow_clients(pair, clients)
    with pair.connect() as one:
        for n in range(20):
            expect(one.ask(binary_request("double", [n] * 8))[0] == 200, "others are served")
    for one in held:
        one.socket.close()


def check_slow(pair):
    """Clients that do not read are let go once their time is over."""
    before = pair.descriptors()
    held = slow_clients(pair, 40)
    with pair.connect() as one:
        expect(one.ask(binary_request("double", [1] * 8))[0] == 200, "the door has them")
    deadline = time.monotonic() + 60
    while pair.descriptors() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    expect(pair.descriptors() <= before, "slow clients are let go")
    for one in held:
        one.socket.close()


def check_leavers(pair):
    """More streams are left in the middle than may be open at once; afterwards all can be again."""
    for n in range(60):
        with pair.connect() as one:
            one.send(generate("parts", numbers(1e6, wait_ms=1), "generate_stream"))
            if n % 2:
                one.answer()
                next(one.events())
    _, _, events = stream(pair, "parts", numbers(50))
    expect(len(events) == 50, "streams after the leavers")


def check_crowd(pair):
    """More streams than there are slots for wait for each other, and nobody gets another's parts."""
    held = [pair.connect() for _ in range(60)]
    for n, one in enumerate(held):
        one.send(generate("parts", numbers(20, 1000 * n), "generate_stream"))
    for n, one in enumerate(held):
        expect(one.answer()[0] == 200, f"stream {n}")
        expect([e["y"][0] for e in one.events()] == [1000.0 * n + i for i in range(20)], f"parts of stream {n}")
        one.socket.close()


def check_curl(pair):
    url = pair.url + "/v2/models/words/generate_stream"
    done = subprocess.run(["curl", "-sN", "-d", json.dumps({"text_input": "to be or not"}), url],
                          stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    expect(done.stdout.count("data: {") == 4, f"curl: {done.stdout}")


def check_servers(gateway, server):
    """Streams go to both servers of a model, also where one has slots for one stream alone, and for two unread parts;
    once it is gone, to the other one."""
    uri = "tcp://127.0.0.1:0?insecure=true"
    with subprocess.Popen([server, uri], stdout=subprocess.PIPE, text=True) as small:
        uri = reached(small, uri) + "&slots=3"
        with Pair(gateway, server, "--model", f"parts={uri}", "--model", f"double={uri}") as pair:
            check_crowd(pair)
            check_leavers(pair)
            held = [pair.connect() for _ in range(8)]
            for one in held:
                one.send(generate("parts", numbers(1e6, wait_ms=1), "generate_stream"))
                expect(one.answer()[0] == 200, "a stream at each server")
            small.terminate()
            small.wait(timeout=60)
            for one in held:
                one.socket.close()
            check_crowd(pair)
            with pair.connect() as one:
                expect(one.ask(binary_request("double", [1] * 8))[0] == 200, "the server that is left")
    expect(pair.summary["cancelled"] >= 60, f"calls of leavers are cancelled: {pair.summary}")


def check_share(gateway, server):
    """Streams with five slots each could take all twenty; a quarter is for others."""
    with Pair(gateway, server, *UNHURRIED, models=["flood", "double"], slots=20) as pair:
        check_others(pair, clients=6)


def run(checks, pair):
    for check in checks:
        began = time.monotonic()
        check(pair)
        print(check.__name__, f"good, {time.monotonic() - began:.1f} s", flush=True)


def main():
    with Pair(*sys.argv[1:3], "--write-timeout", "2s", "--part-timeout", "4s", "--idle-timeout", "20s") as pair:
        run((check_events, check_documents, check_errors, check_connection, check_crowd, check_leavers, check_slow,
             check_curl), pair)
    expect(pair.summary["cancelled"] >= 60, f"calls of leavers are cancelled: {pair.summary}")
    with Pair(*sys.argv[1:3], *UNHURRIED) as pair:
        run((check_at_once, check_others), pair)
    check_servers(*sys.argv[1:3])
    check_share(*sys.argv[1:3])
    return 0


if __name__ == "__main__":
    sys.exit(main())
