# SPDX-License-Identifier: Apache-2.0
"""Requests that are wrong, slow, cut or too large: the status and the sentence, and that the next request is served."""
import json
import sys

from pair import Pair, binary_request, binary_values, expect, post

VALUES = list(range(8))
LEAVERS = 6


def sentence(answer):
    return json.loads(answer[2])["error"]


def check_refused(pair):
    deep = b"[" * 100 + b"]" * 100
    good = {"name": "x", "datatype": "FP32", "shape": [8], "data": VALUES}
    numbers = lambda **changes: post("double", json.dumps({"inputs": [{**good, **changes}]}).encode())
    for wanted, word, request in [
        (404, "no model", post("nobody", b"{}")),
        (404, "no version", b"GET /v2/models/double/versions/2 HTTP/1.1\r\nHost: d\r\n\r\n"),
        (404, "nothing at", b"GET /v3 HTTP/1.1\r\nHost: d\r\n\r\n"),
        (405, "POST", b"GET /v2/models/double/infer HTTP/1.1\r\nHost: d\r\n\r\n"),
        (400, "not JSON", post("double", b"{")),
        (400, "nested deeper", post("double", b'{"inputs":' + deep + b"}")),
        (400, "no list of inputs", post("double", b"{}")),
        (400, "whole number", numbers(shape=[2 ** 64])),
        (400, "FP32", numbers(data=VALUES[1:] + ["a"])),
        (400, "binary_data_size", binary_request("double", VALUES, parameters={"binary_data_size": 2 ** 63})),
        (400, "shared_memory_byte_size", numbers(parameters={"shared_memory_region": "r"})),
        (500, "on fire", binary_request("failing", VALUES)),
        (500, "not the outputs", binary_request("short", VALUES)),
        (400, "JSON cannot represent", post("nan", json.dumps({"inputs": [good]}).encode())),
    ]:
        with pair.connect() as one:
            answer = one.ask(request)
            expect(answer[0] == wanted and word in sentence(answer), f"{wanted}, {word}: {answer}")


def check_framing(pair):
    """Bodies that are refused before they are read; the connection ends, because nobody knows what follows."""
    head = ["Inference-Header-Content-Length: 10"]
    for wanted, request in [
        (400, post("double", b'{"inputs":', head, length=10 + 10 ** 9)),
        (413, post("double", b"", ["Inference-Header-Content-Length: 0"], length=10 ** 9)),
        (413, post("double", b"", length=10 ** 9)),
        (400, post("double", b"x" * 5, head)),
        (400, post("double", b"x" * 5, ["Inference-Header-Content-Length: -1"])),
        (415, post("double", b"x" * 5, ["Content-Encoding: br"])),
        (411, b"POST /v2/models/double/infer HTTP/1.1\r\nHost: d\r\nTransfer-Encoding: chunked\r\n\r\n"),
        (417, post("double", b"{}", ["Expect: rain"])),
        (431, b"GET /v2 HTTP/1.1\r\nHost: d\r\nA: " + b"a" * 20000 + b"\r\n\r\n"),
        (400, b"this is not HTTP\r\n\r\n"),
    ]:
        with pair.connect() as one:
            answer = one.ask(request)
            expect(answer[0] == wanted and sentence(answer), f"{wanted}: {answer} of {request[:100]}")
            one.socket.shutdown(1)
            expect(one.closed(), f"closed after {wanted}")


def ended_with_400(pair, request):
    """One answer, and then the end, though a whole request follows."""
    with pair.connect() as one:
        one.send(request + b"GET /v2/health/live HTTP/1.1\r\nHost: d\r\n\r\n")
        answer = one.answer()
        expect(answer[0] == 400 and sentence(answer), f"400: {answer} of {request[:150]}")
        expect(one.closed(), f"closed after {request[:150]}")


def check_end_of_request(pair):
    """Where a proxy before the door may see another end of the request than the door does (RFC 9112, 6.3)."""
    codings = [b"xchunked", b"identity", b"gzip", b"chunked, identity", b"chunked, gzip", b"gzip, chunked",
               b"x,chunked", b"chunked, chunked", b"chunked;q=1", b'"chunked"', b"chunked\x0b", b"chunk ed", b"",
               b",chunked", b"chunked,", b"x\r\n chunked", b"\xefchunked"]
    fields = [b"Transfer-Encoding: " + each for each in codings]
    fields += [b"Transfer-Encoding: chunked\r\nTransfer-Encoding: " + each for each in (b"chunked", b"identity", b"")]
    fields += [b"Transfer-Encoding: " + each + b"\r\nTransfer-Encoding: chunked" for each in (b"x", b"identity", b"")]
    length = b"Content-Length: 2"
    lines = [b"\r\n".join(each) for field in fields for each in ([field], [field, length], [length, field])]
    lines += [b"Transfer-Encoding: chunked\r\n" + length, length + b"\r\nTransfer-Encoding: chunked"]
    lines += [length + each for each in (b"\r\n" + length, b"\r\nContent-Length: 3", b", 2", b",", b" 2", b"\r\n 0",
                                         b"\rA: b", b"\nA: b")]
    lines += [b"Content-Length: " + each for each in (b"+2", b"-2", b"0x2", b"", b"9" * 20)]
    lines += [b"Content-Length : 2", b" " + length, b"A: b\x00c", b"A: b\x7f", b"A: b\x01", b"A\x00: b", b"A", b": b",
              b"A b: c"]
    for method in (b"POST /v2/models/double/infer", b"GET /v2/health/live"):
        for version in (b"1.1", b"1.0"):
            for each in lines:
                ended_with_400(pair, b"%s HTTP/%s\r\nHost: d\r\n%s\r\n\r\n{}" % (method, version, each))
        chunked = b"%s HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        ended_with_400(pair, chunked % method)
    with pair.connect() as one:
        expect(one.ask(b"GET /v2 HTTP/1.1\r\nHost: d\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\n\r\n")[0] == 200,
               "chunked in any case")
        expect(one.closed(), "a body that nobody reads ends the connection")


def check_keep_alive(pair):
    with pair.connect() as one:
        for _ in range(3):
            status, headers, body = one.ask(binary_request("double", VALUES))
            expect(status == 200 and binary_values(headers, body) == tuple(2 * v for v in VALUES), "kept alive")
        expect(one.ask(post("double", b"{}"))[0] == 400, "a mistake between")
        # Three at once; their answers come in order.
        one.send(b"".join(binary_request(m, [n] * 8) for n, m in enumerate(["slow", "double", "double"])))
        for n in range(3):
            status, headers, body = one.answer()
            expect(status == 200 and binary_values(headers, body) == (2.0 * n,) * 8, f"pipelined {n}")
        one.send(b"GET /v2/health/live HTTP/1.0\r\n\r\n")
        expect(one.answer()[0] == 200 and one.closed(), "HTTP/1.0 ends")


def check_continue(pair):
    request = binary_request("double", VALUES)
    head, body = request.split(b"\r\n\r\n", 1)
    with pair.connect() as one:
        status, _, _ = one.ask(head + b"\r\nExpect: 100-continue\r\n\r\n")
        expect(status == 100, "it says when to go on")
        expect(one.ask(body)[0] == 200, "and then takes the body")


def check_slow(pair):
    """Each of them holds a slot, until its time is over; more than there are slots."""
    request = binary_request("double", VALUES)
    held = [pair.connect() for _ in range(40)]
    for one in held:
        one.send(request[:-4])
    answers = [one.answer() for one in held]
    # Those that got no slot at once got one when the first had lost theirs.
    expect(all(a[0] == 408 for a in answers), f"slow bodies: {[a[0] for a in answers]}")
    with pair.connect() as one:
        one.send(b"GET /v2 HTTP/1.1\r\nHost")
        expect(one.answer()[0] == 408, "a slow header")
    with pair.connect() as one:
        one.send(post("double", b'{"inp', length=100))
        expect(one.answer()[0] == 408, "slow JSON")
    with pair.connect() as one:
        expect(one.closed(), "an idle connection ends without a word")
    for one in held:
        one.socket.close()


def check_leavers(pair):
    """Clients that leave take their calls with them."""
    for number in range(1, LEAVERS + 1):
        with pair.connect() as one:
            one.send(binary_request("held", VALUES))
            expect(ask(pair, "caught", number) == 200, "the model has its call")
        expect(ask(pair, "left", number) == 200, "its call is cancelled")
    expect(ask(pair, "release", 0) == 200, "served after the leavers")


def ask(pair, model, number):
    with pair.connect() as one:
        return one.ask(binary_request(model, [number] * 8))[0]


def check_timeout(pair):
    request = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [8], "data": VALUES}],
               "parameters": {"timeout": 50_000}}
    with pair.connect() as one:
        expect(one.ask(post("slow", json.dumps(request).encode()))[0] == 504, "the request's own timeout")


def main():
    limits = ("--body-timeout", "1s", "--head-timeout", "1s", "--idle-timeout", "2s")
    with Pair(*sys.argv[1:3], *limits) as pair:
        for check in (check_refused, check_framing, check_end_of_request, check_keep_alive, check_continue, check_slow,
                      check_leavers, check_timeout):
            check(pair)
            print(check.__name__, "good", flush=True)
        pair.server.terminate()
        pair.server.wait()
        get = lambda path: f"GET /v2/health/{path} HTTP/1.1\r\nHost: d\r\n\r\n".encode()
        for wanted, request in [(503, binary_request("double", VALUES)), (503, get("ready")), (200, get("live"))]:
            with pair.connect() as one:
                expect(one.ask(request)[0] == wanted, f"{wanted} without a server: {request[:40]}")
    expect(pair.summary["cancelled"] >= LEAVERS, f"calls of leavers are cancelled: {pair.summary}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
