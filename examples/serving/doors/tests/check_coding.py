# SPDX-License-Identifier: Apache-2.0
"""Compressed bodies both ways: gzip and deflate, JSON and binary; bombs, cut and changed bodies, and what follows."""
import gzip
import json
import struct
import sys
import time
import zlib

from pair import ECHOED, Pair, binary_request, binary_values, expect, post

VALUES = list(range(8))
PACK = {"gzip": gzip.compress, "deflate": zlib.compress}
UNPACK = {"gzip": gzip.decompress, "deflate": zlib.decompress}


def with_header(request, line):
    return request.replace(b"\r\n\r\n", f"\r\n{line}\r\n\r\n".encode(), 1)


def coded(request, how, changed=lambda body: body, headers=()):
    """The same request with a compressed body; `changed` is made of it afterwards."""
    head, body = request.split(b"\r\n\r\n", 1)
    body = changed(PACK[how](body))
    lines = [line for line in head.decode().split("\r\n") if not line.startswith("Content-Length")]
    lines += [f"Content-Length: {len(body)}", f"Content-Encoding: {how}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def numbers(model="double"):
    one = {"name": "x", "datatype": "FP32", "shape": [8], "data": VALUES}
    return post(model, json.dumps({"inputs": [one]}).encode())


def raw(model, values):
    data = struct.pack(f"<{len(values)}f", *values)
    return post(model, data, ["Inference-Header-Content-Length: 0"])


def check_requests(pair):
    with pair.connect() as one:
        for how in PACK:
            status, headers, body = one.ask(coded(binary_request("double", VALUES), how))
            expect(status == 200 and binary_values(headers, body) == tuple(2 * v for v in VALUES), f"binary, {how}")
            status, _, body = one.ask(coded(numbers(), how))
            expect(status == 200 and json.loads(body)["outputs"][0]["data"] == [2 * v for v in VALUES], f"JSON, {how}")
            status, _, body = one.ask(coded(raw("double", VALUES), how))
            expect(status == 200 and json.loads(body)["outputs"][0]["data"] == [2 * v for v in VALUES], f"raw, {how}")
            status, _, body = one.ask(coded(post("parts", b'{"x":[1,5,0,0,0,0,0,0]}', what="generate"), how))
            expect(status == 200 and json.loads(body)["y"] == [5] * 8, f"generate, {how}")
        # In one piece, and byte by byte; the next request is behind it.
        two = coded(binary_request("double", VALUES), "gzip") + binary_request("double", [1] * 8)
        one.send(two)
        expect([one.answer()[0] for _ in range(2)] == [200, 200], "two in one piece")
        for byte in two:
            one.send(bytes([byte]))
        expect([one.answer()[0] for _ in range(2)] == [200, 200], "byte by byte")
        large = [float(n % 100) for n in range(ECHOED)]
        status, headers, body = one.ask(coded(binary_request("echo", large), "deflate"))
        expect(status == 200 and binary_values(headers, body) == tuple(large), "a large one")
        status, _, _ = one.ask(with_header(binary_request("double", VALUES), "Content-Encoding: identity"))
        expect(status == 200, "identity")


def check_mistakes(pair):
    """Each ends its connection or leaves it whole; the next client is served."""
    good = binary_request("double", VALUES)
    said = b"Inference-Header-Content-Length: "
    for wanted, request in [
        (400, coded(good, "gzip", lambda body: body[:-1])),
        (400, coded(good, "gzip", lambda body: body[:20])),
        (400, coded(good, "gzip", lambda body: b"")),
        (400, coded(good, "gzip", lambda body: body + b"x")),
        (400, coded(good, "gzip", lambda body: body + body)),
        (400, coded(good, "deflate", lambda body: body + bytes(500))),
        (400, coded(good, "gzip", lambda body: body[:-6] + b"\0" + body[-5:])),
        (400, coded(good, "gzip", lambda body: zlib.compress(b"{}"))),
        (400, coded(good, "deflate", lambda body: zlib.compress(b"{}")[2:])),
        (400, coded(numbers(), "gzip", lambda body: gzip.compress(b"{"))),
        (400, coded(good.replace(said, said + b"9"), "gzip")),
        (400, coded(binary_request("double", VALUES[1:]), "gzip")),
        (413, coded(good.replace(said, said + b"999999"), "gzip")),
        (413, coded(good.replace(said, said + b"x"), "gzip")),
        (400, coded(good, "gzip", lambda body: body + bytes(10 ** 6))),
        (413, coded(post("double", b"{}" + b" " * 10 ** 5), "gzip")),
        (400, coded(binary_request("double", VALUES * 2), "gzip")),
        (415, with_header(good, "Content-Encoding: br")),
        (415, with_header(good, "Content-Encoding: gzip, gzip")),
    ]:
        with pair.connect() as one:
            answer = one.ask(request)
            expect(answer[0] == wanted and json.loads(answer[2])["error"], f"{wanted}: {answer} of {request[:250]}")
        with pair.connect() as one:
            expect(one.ask(good)[0] == 200, "the next one is served")


def memory_mib(pair):
    with open(f"/proc/{pair.door.pid}/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def check_bombs(pair):
    """Their memory is not the door's."""
    nested = gzip.compress(b"[" * 10 ** 8, 9)
    before = memory_mib(pair)
    for model, how, body in [("double", "gzip", nested), ("echo", "gzip", nested),
                             ("double", "deflate", zlib.compress(bytes(10 ** 8)))]:
        with pair.connect() as one:
            status, _, _ = one.ask(coded(post(model, b""), how, lambda _: body))
            expect(status == 413, f"a bomb: {status}")
            binary = coded(post(model, b"", ["Inference-Header-Content-Length: 0"]), how, lambda _: body)
        with pair.connect() as one:
            expect(one.ask(binary)[0] == 413, "a bomb of tensors")
    expect(memory_mib(pair) - before < 40, f"memory of bombs: {memory_mib(pair) - before} MiB")


def check_slow(pair):
    request = coded(binary_request("double", VALUES), "gzip")
    with pair.connect() as one:
        one.send(request[:-4])
        expect(one.answer()[0] == 408, "a slow compressed body")
    with pair.connect() as one:
        one.send(request[:-4])
    with pair.connect() as one:
        expect(one.ask(request)[0] == 200, "served after one that left")


def check_answers(pair):
    large = [float(n % 100) for n in range(ECHOED)]
    asked = binary_request("echo", large)
    with pair.connect() as one:
        for how, unpack in UNPACK.items():
            status, headers, body = one.ask(with_header(asked, f"Accept-Encoding: {how}"))
            expect(status == 200 and headers["content-encoding"] == how, f"{how}: {headers}")
            expect(len(body) < 2 * ECHOED, f"it is shorter: {len(body)}")
            expect(binary_values(headers, unpack(body)) == tuple(large), f"a binary answer, {how}")
            expect(headers["content-type"] == "application/octet-stream", "its type")
            stats = f"GET /v2/models/stats HTTP/1.1\r\nHost: d\r\nAccept-Encoding: {how}, br\r\n\r\n".encode()
            status, headers, body = one.ask(stats)
            expect(headers["content-encoding"] == how and json.loads(unpack(body))["model_stats"], f"JSON, {how}")
        for accepted in ("gzip;q=0", "br", "identity"):
            status, headers, body = one.ask(with_header(asked, f"Accept-Encoding: {accepted}"))
            expect("content-encoding" not in headers and len(body) > 4 * ECHOED, f"not for {accepted}")
        small = with_header(binary_request("double", VALUES), "Accept-Encoding: gzip")
        expect("content-encoding" not in one.ask(small)[1], "a short answer is not worth it")
        wrong = with_header(post("double", b"{"), "Accept-Encoding: gzip")
        status, headers, body = one.ask(wrong)
        expect(status == 400 and json.loads(body)["error"], "an error is not compressed")
    for _ in range(20):
        with pair.connect() as one:
            one.send(with_header(asked, "Accept-Encoding: gzip"))
            time.sleep(0.005)
    with pair.connect() as one:
        expect(one.ask(asked)[0] == 200, "served after those that left")


def main():
    with Pair(*sys.argv[1:3], "--body-timeout", "1s") as pair:
        for check in (check_requests, check_mistakes, check_bombs, check_slow, check_answers):
            began = time.monotonic()
            check(pair)
            print(check.__name__, f"good, {time.monotonic() - began:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
