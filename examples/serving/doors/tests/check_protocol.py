# SPDX-License-Identifier: Apache-2.0
"""What stock clients and RFC 9110 and 9112 expect of the HTTP door: HEAD, forms of a target, Host,
names, sentences, and more. The requests are written by hand, so that they are what a client once sent."""
import json
import os
import struct
import sys
import tempfile

from pair import Pair, binary_request, binary_values, description, expect, post

VALUES = list(range(8))


def get(path, method="GET", host="Host: door\r\n", version="1.1"):
    return f"{method} {path} HTTP/{version}\r\n{host}\r\n".encode()


def head_of(one, request):
    """The header of an answer without a body, and nothing follows it."""
    one.send(request + get("/v2/health/live"))
    while b'{"live":true}' not in one.unread:
        one._more()
    first, rest = one.unread.split(b"\r\n\r\n", 1)
    one.unread = b""
    expect(rest.startswith(b"HTTP/1.1 200") and rest.count(b"HTTP/1.1") == 1, f"no body: {rest}")
    return first.decode()


def check_head(pair):
    with pair.connect() as one:
        for path in ("", "/health/live", "/health/ready", "/models/double", "/models/double/ready",
                     "/models/double/config", "/models/double/stats", "/models/stats"):
            status, headers, body = one.ask(get("/v2" + path))
            head = head_of(one, get("/v2" + path, "HEAD"))
            expect(status == 200 and head.startswith("HTTP/1.1 200 OK"), f"HEAD {path}: {head}")
            expect(headers["content-type"] == "application/json", f"{path}: {headers}")
            same = "stats" in path or f"Content-Length: {len(body)}\r\n" in head
            expect(same and f"Content-Type: {headers['content-type']}" in head, f"as GET: {head}")
        head = head_of(one, get("/v2/models/double/infer", "HEAD"))
        expect(head.startswith("HTTP/1.1 405") and "Allow: POST\r\n" in head, f"HEAD of infer: {head}")
        status, headers, _ = one.ask(get("/v2", "DELETE"))
        expect(status == 405 and headers["allow"] == "GET, HEAD", f"what is allowed: {headers}")


def check_targets(pair):
    infer = binary_request("double", VALUES).replace(b"POST ", b"POST http://door:8000", 1)
    for wanted, request in [(200, get("http://door/v2/health/live")), (200, infer),
                            (404, get("http://door")), (404, get("*", "OPTIONS"))]:
        with pair.connect() as one:
            expect(one.ask(request)[0] == wanted, f"{wanted}: {request[:60]}")


def check_host(pair):
    """RFC 9112, 3.2: a request of HTTP/1.1 has one Host."""
    live = "/v2/health/live"
    for wanted, request in [(400, get(live, host="")), (400, get(live, host="Host: a\r\nHost: b\r\n")),
                            (400, post("double", b"{}").replace(b"Host: door\r\n", b"")),
                            (200, get(live, host="Host:\r\n")), (200, get(live, host="", version="1.0"))]:
        with pair.connect() as one:
            answer = one.ask(request)
            expect(answer[0] == wanted, f"{wanted}: {request} {answer}")
            expect(wanted == 200 or "Host" in json.loads(answer[2])["error"], f"the sentence: {answer}")


def check_shapes(pair):
    """Tensors that are longer than the model's: what is wrong with them, and not that they are long."""
    doubles = struct.pack("<8d", *VALUES)
    for word, changes, data in [("the datatype must be FP32, not 'FP64'", {"datatype": "FP64"}, doubles),
                                ("the shape must be [8], not [16]", {"shape": [16]},
                                 struct.pack("<16f", *VALUES, *VALUES)),
                                ("must be 32, not 64", {"parameters": {"binary_data_size": 64}}, doubles),
                                ("32 bytes of binary data, but the body has 64", {}, doubles),
                                ("no input 'z'", {"name": "z"}, doubles)]:
        tensor = {"name": "x", "datatype": "FP32", "shape": [8],
                  "parameters": {"binary_data_size": len(data) if "but the body" not in word else 32}, **changes}
        head = json.dumps({"inputs": [tensor]}).encode()
        with pair.connect() as one:
            status, _, body = one.ask(post("double", head + data, [f"Inference-Header-Content-Length: {len(head)}"]))
            expect(status == 400 and word in json.loads(body)["error"], f"{word}: {status} {body}")
            expect(one.closed(), "the tensors are not read")


def check_decoupled(pair):
    for model in ("parts", "words"):
        with pair.connect() as one:
            status, _, body = one.ask(post(model, b'{"inputs":[]}'))
            expect(status == 400 and "decoupled" in json.loads(body)["error"], f"infer of parts: {status} {body}")


def check_unregister(pair):
    """perf_analyzer begins by that, whatever the door allows."""
    for kind in ("system", "cuda"):
        for path in (f"/v2/{kind}sharedmemory/unregister", f"/v2/{kind}sharedmemory/region/nobody/unregister"):
            with pair.connect() as one:
                request = f"POST {path} HTTP/1.1\r\nHost: d\r\nContent-Length: 0\r\n\r\n".encode()
                expect(one.ask(request)[0] == 200, f"nothing to unregister: {path}")
                expect(one.ask(get(f"/v2/{kind}sharedmemory/status"))[0] == 501, f"{kind}: none is allowed")


def check_empty(pair):
    """An output without elements is an answer like any other."""
    x = {"name": "x", "datatype": "FP32", "shape": [8], "data": VALUES}
    for binary in (False, True):
        request = {"inputs": [x], "parameters": {"binary_data_output": binary}}
        with pair.connect() as one:
            status, headers, body = one.ask(post("empty", json.dumps(request).encode()))
            expect(status == 200, f"empty: {status} {body}")
            y = json.loads(body)["outputs"][0]
            length = int(headers.get("inference-header-content-length", 0))
            expect(y["shape"] == [0, 2] and length == (len(body) if binary else 0), f"empty: {headers} {body}")
            expect(y.get("data", y.get("parameters")) == ({"binary_data_size": 0} if binary else []), f"empty: {y}")
            body = one.ask(post("empty", json.dumps({"x": VALUES}).encode(), what="generate"))[2]
            expect(body.endswith(b'"y":[]}'), f"generate: {body}")


def check_traces(pair):
    """W3C Trace Context reaches the model's server, and the answer says which trace it was in."""
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    parent = tuple(bytes.fromhex("b7ad6b7169203331"))
    for said, seen in [([trace], parent), ([], (0,) * 8), ([trace.upper()], (0,) * 8), ([trace, trace], (0,) * 8)]:
        lines = b"".join(f"traceparent: {each}\r\n".encode() for each in said)
        with pair.connect() as one:
            for _ in range(2):
                status, headers, body = one.ask(binary_request("traced", VALUES).replace(b"Host", lines + b"Host", 1))
                expect(status == 200 and binary_values(headers, body) == seen, f"{said}: {body}")
                expect(headers.get("traceparent") == (trace if any(seen) else None), f"the answer's: {headers}")
            expect(one.ask(binary_request("traced", VALUES))[1].get("traceparent") is None, "of that request alone")


def check_baggage(pair):
    """W3C Baggage reaches the model's server, and the answer has it too; what is too long is dropped."""
    short, longer, too_long = "a=1,b=2;c", "k=" + "v" * 100, "k=" + "v" * 143
    trace = b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n"
    for said, passed in [([short], short), ([longer], longer), ([too_long], ""), ([], ""), ([short, short], ""),
                         (["a=\xe9"], "")]:
        lines = trace + b"".join(f"baggage: {each}\r\n".encode("latin-1") for each in said)
        seen = (len(passed), *passed.encode()[:7]) if passed else (0,) * 8
        with pair.connect() as one:
            status, headers, body = one.ask(binary_request("laden", VALUES).replace(b"Host", lines + b"Host", 1))
            expect(status == 200 and binary_values(headers, body) == seen, f"{said}: {body}")
            expect(headers.get("baggage") == (passed or None), f"the answer's: {headers}")


def check_names(gateway, server):
    with tempfile.TemporaryDirectory() as folder, Pair(gateway, server, models=["double"]) as pair:
        path = os.path.join(folder, "named")
        name = "größe/1"
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**description("double"), "name": name, "target": "double"}, file)
        with pair.another("--http", "127.0.0.1:0", "--model", f"{name}={pair.uri}", "--shapes", path) as url:
            pair.port = int(url.rsplit(":", 1)[1])
            with pair.connect() as one:
                for quoted in ("gr%C3%B6%C3%9Fe%2F1", "gr%c3%b6%c3%9fe%2f1"):
                    status, _, body = one.ask(get(f"/v2/models/{quoted}"))
                    expect(status == 200 and json.loads(body)["name"] == name, f"a name in UTF-8: {status} {body}")
                    answer = one.ask(binary_request(quoted, VALUES))
                    expect(answer[0] == 200 and name.encode() in answer[2], f"infer: {answer}")


def main():
    with Pair(*sys.argv[1:3]) as pair:
        for check in (check_head, check_targets, check_host, check_shapes, check_decoupled,
                      check_unregister, check_empty, check_traces, check_baggage):
            check(pair)
            print(check.__name__, "good", flush=True)
    check_names(*sys.argv[1:3])
    return 0


if __name__ == "__main__":
    sys.exit(main())
