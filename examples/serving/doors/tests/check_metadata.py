# SPDX-License-Identifier: Apache-2.0
"""Headers and gRPC's metadata that the doors pass on: by hand, and with a stock tritonclient from PyPI, which is left
out where PyPI is out of reach. With `grpc` as the third argument, the gRPC door too."""
import base64
import json
import os
import struct
import subprocess
import sys
import threading

from client_environment import SKIPPED, client_python
from pair import PATIENT, Connection, Pair, binary_request, binary_values, expect, first_line, post

VALUES = [0.0] * 8
PASSED = ["X-Tenant", "key-bin", "long"]


def options(names):
    return [word for each in names for word in ("--pass-header", each)]


def asked(one, *lines):
    """What the door answers to a request with these lines in its header."""
    said = b"".join(each.encode("latin-1") + b"\r\n" for each in lines)
    return one.ask(binary_request("passing", VALUES).replace(b"Host", said + b"Host", 1))


def expect_passed(one, lines, seen, back):
    status, headers, body = asked(one, *lines)
    expect(status == 200 and binary_values(headers, body)[:2] == seen, f"{lines}: {status} {body}")
    for name in ("x-tenant", "key-bin", "long", "hidden"):
        expect(headers.get(name) == back.get(name), f"{lines}: {name} of {headers}")


def check_passed(pair):
    key = base64.b64encode(b"\x00\xff\x01\x02").decode()
    with pair.connect() as one:
        expect_passed(one, ["X-TENANT: blue"], (1, 4), {"x-tenant": "blue"})
        expect_passed(one, [], (0, 0), {})
        expect_passed(one, ["x-tenant:", "other: 1", "Authorization: Bearer x"], (1, 0), {"x-tenant": ""})
        for said in (key, key.rstrip("=")):
            expect_passed(one, [f"key-bin: {said}", "x-tenant: a b"], (2, 7), {"key-bin": key, "x-tenant": "a b"})
        expect_passed(one, ["long: " + "v" * 4000], (1, 4000), {"long": "v" * 4000})
        expect_passed(one, ["x-tenant: blue", "long: v", "Connection: keep-alive, X-Tenant"], (1, 1), {"long": "v"})
        expect_passed(one, ["x-tenant: blue", "Connection: long", "Connection: x-tenant"], (0, 0), {})
        body = json.dumps({"x": VALUES}).encode()
        status, headers, _ = one.ask(post("passing", body, ["X-Tenant: green"], what="generate"))
        expect(status == 200 and headers.get("x-tenant") == "green", f"generate: {status} {headers}")


def check_refused(pair):
    for wanted, *lines in [(400, "x-tenant: a", "X-Tenant: a"), (400, "x-tenant: caf\xe9"), (400, "x-tenant: a\x01b"),
                           (400, "key-bin: AP8"[:-1] + "*"), (400, "key-bin: A"), (431, "long: " + "v" * 4089),
                           (431, "x-tenant: " + "v" * 2048, "long: " + "v" * 2048), (200, "other: caf\xe9")]:
        with pair.connect() as one:
            status, headers, body = asked(one, *lines)
            expect(status == wanted, f"{[each[:40] for each in lines]}: {status} {body}")
            expect("x-tenant" not in headers and "long" not in headers, f"a refusal has none: {headers}")


def check_without_room(pair, uri):
    """Behind a door, a server that accepts no longer requests than the model's input."""
    shapes = os.path.join(pair.folder.name, "passing")
    where = ["--http", "127.0.0.1:0", "--model", "passing=" + uri, "--shapes", shapes, *options(PASSED)]
    with pair.another(*where) as url, Connection(int(url.rsplit(":", 1)[1])) as one:
        expect_passed(one, ["x-tenant: blue"], (1, 4), {"x-tenant": "blue"})
        status, _, body = asked(one, "long: " + "v" * 400)
        expect(status == 431 and b"headers" in body, f"no room: {status} {body}")
        expect_passed(one, [], (0, 0), {})


def check_limited_server(pair, server):
    listens = f"tcp://127.0.0.1:0?insecure=true&{PATIENT}&max_request_bytes=32"
    process = subprocess.Popen([server, listens], stdout=subprocess.PIPE, text=True)
    try:
        at = first_line(process).split()[1]
        check_without_room(pair, f"{at}?insecure=true&{PATIENT}")
    finally:
        process.terminate()
        process.communicate(timeout=60)


def check_names(pair):
    for name in ("Authorization", "cookie", "Connection", "TE", "content-length", "Content-Encoding", "traceparent",
                 "proxy-authorization", "If-None-Match", "Vary", "grpc-timeout", "sec-fetch-mode", "a b", "x:", "",
                 "x" * 65):
        said = pair.refusal("--pass-header", name)
        expect("--pass-header" in said, f"{name}: {said}")


def check_early_end(channel, grpc):
    """Calls with wrong metadata end before they have sent a message."""
    for method in ("ModelInfer", "ModelStreamInfer"):
        never = threading.Event()
        call = channel.stream_stream("/inference.GRPCInferenceService/" + method)(
            iter(never.wait, None), timeout=60, metadata=[("x-tenant", "a"), ("x-tenant", "a")])
        expect(call.code() == grpc.StatusCode.INVALID_ARGUMENT and "twice" in call.details(), f"{method}: {call}")
        never.set()


def talk_grpc(address):
    import grpc
    import numpy
    import tritonclient.grpc as triton
    from tritonclient.grpc import service_pb2

    request = service_pb2.ModelInferRequest(model_name="passing")
    request.inputs.add(name="x", datatype="FP32", shape=[8]).contents.fp32_contents.extend(VALUES)
    coders = {"request_serializer": service_pb2.ModelInferRequest.SerializeToString,
              "response_deserializer": service_pb2.ModelInferResponse.FromString}
    with grpc.insecure_channel(address) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer", **coders)
        for said in ([("x-tenant", "blue"), ("key-bin", b"\x00\xff\x01")], [("x-tenant", "")],
                     [("long", "v" * 4000)], []):
            answer, call = infer.with_call(request, timeout=60, metadata=[*said, ("other", "1")])
            seen = struct.unpack("<8f", answer.raw_output_contents[0])[:2]
            expect(seen == (len(said), sum(len(value) for _, value in said)), f"{said}: {seen}")
            back = [each for each in call.initial_metadata() if each[0] in ("x-tenant", "key-bin", "long", "hidden")]
            expect(sorted(back) == sorted(said), f"{said}: {back}")
        for code, said in [(grpc.StatusCode.INVALID_ARGUMENT, [("x-tenant", "a"), ("x-tenant", "a")]),
                           (grpc.StatusCode.RESOURCE_EXHAUSTED, [("key-bin", b"v" * 4086)])]:
            try:
                infer(request, timeout=60, metadata=said)
                expect(False, f"refused: {code}")
            except grpc.RpcError as failure:
                expect(failure.code() == code, f"{code}: {failure}")
        check_early_end(channel, grpc)
        coders["response_deserializer"] = service_pb2.ModelStreamInferResponse.FromString
        stream = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer", **coders)
        for answer in stream(iter([request, request]), timeout=60, metadata=[("x-tenant", "blue")]):
            seen = struct.unpack("<8f", answer.infer_response.raw_output_contents[0])[:2]
            expect(seen == (1, 4), f"each request of a stream has its metadata: {answer}")
    client = triton.InferenceServerClient(address)
    x = triton.InferInput("x", [8], "FP32")
    x.set_data_from_numpy(numpy.zeros(8, numpy.float32))
    expect(client.infer("passing", [x], headers={"x-tenant": "red"}).as_numpy("y")[1] == 3, "tritonclient[grpc]")


def talk_http(url):
    import numpy
    import tritonclient.http as triton

    client = triton.InferenceServerClient(url)
    x = triton.InferInput("x", [8], "FP32")
    x.set_data_from_numpy(numpy.zeros(8, numpy.float32))
    expect(client.infer("passing", [x], headers={"X-Tenant": "red"}).as_numpy("y")[1] == 3, "tritonclient[http]")
    client.close()


def main():
    if sys.argv[1] in ("http", "grpc"):
        {"http": talk_http, "grpc": talk_grpc}[sys.argv[1]](sys.argv[2])
        return 0
    doors = ("http", *sys.argv[3:])
    with Pair(*sys.argv[1:3], models=["passing"]) as pair, pair.connect() as one:
        expect_passed(one, ["x-tenant: blue", "key-bin: AP8B", "hidden: 1"], (0, 0), {})
        check_names(pair)
    with Pair(*sys.argv[1:3], *options(PASSED), doors=doors, models=["passing"]) as pair:
        check_passed(pair)
        check_refused(pair)
        check_without_room(pair, pair.uri + "&request_bytes=32")
        check_limited_server(pair, sys.argv[2])
        python = client_python()
        if python is None:
            print("skipped in part: PyPI is out of reach, and tritonclient comes from there")
            return SKIPPED
        for door, where in (("http", pair.url.removeprefix("http://")), ("grpc", pair.address))[:len(doors)]:
            done = subprocess.run([python, __file__, door, where], check=False, timeout=100)
            expect(done.returncode == 0, f"the client of {door} is content")
    return 0


if __name__ == "__main__":
    sys.exit(main())
