# SPDX-License-Identifier: Apache-2.0
"""A stock tritonclient[grpc] from PyPI against the gRPC door, in a virtual environment of the test's own: answers,
mistakes, deadlines, cancellation, strings by hand, and a drain. Skipped where PyPI is out of reach."""
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time

from client_environment import SKIPPED, client_python
from grpc_traces import check_traces
from open_shapes import check_documents as check_open_documents, check_open_shapes
from pair import Pair, expect, first_line

SLOTS = 32
SERVICE = "/inference.GRPCInferenceService/"


def grpc_pair(gateway, server, *options):
    return Pair(gateway, server, *options, doors=("grpc",))


def an_input(grpc, numpy, values=None, name="x"):
    values = numpy.ones(8, numpy.float32) if values is None else values
    out = grpc.InferInput(name, list(values.shape), "FP32")
    out.set_data_from_numpy(values)
    return out


def check_documents(client):
    expect(client.is_server_live() and client.is_server_ready() and client.is_model_ready("double"), "it is ready")
    expect(client.get_server_metadata().name == "accel_transport", "the server's name")
    one = client.get_model_metadata("double", "1").inputs[0]
    expect((one.name, one.datatype, list(one.shape)) == ("x", "FP32", [8]), "the model's input")
    configuration = client.get_model_config("double").config
    expect(configuration.max_batch_size == 0 and list(configuration.input[0].dims) == [8], "the configuration")


def check_infer(grpc, numpy, client):
    values = numpy.arange(8, dtype=numpy.float32) + 0.25
    for outputs in (None, [grpc.InferRequestedOutput("y")]):
        answer = client.infer("double", [an_input(grpc, numpy, values)], outputs=outputs, request_id="one")
        expect((answer.as_numpy("y") == 2 * values).all(), "the answer's numbers")
        expect(answer.get_response().id == "one", "the request's id")
    count = client.get_inference_statistics("double").model_stats[0].inference_stats.success.count
    expect(count == 2, f"two inferences were counted: {count}")


def check_mistakes(grpc, numpy, utils, client):
    x = an_input(grpc, numpy)
    short = an_input(grpc, numpy, numpy.zeros(4, numpy.float32))
    expect(client.infer("empty", [x]).as_numpy("y").shape == (0, 2), "an output without elements")
    for code, word, call in [
        ("INVALID_ARGUMENT", "decoupled", lambda: client.infer("parts", [x])),
        ("INVALID_ARGUMENT", "shape", lambda: client.infer("double", [short])),
        ("NOT_FOUND", "no model", lambda: client.get_model_metadata("nobody")),
        ("UNIMPLEMENTED", "sequences", lambda: client.infer("double", [x], sequence_id=3)),
        ("UNIMPLEMENTED", "no such method", lambda: client.load_model("double")),
        ("INTERNAL", "on fire", lambda: client.infer("failing", [x])),
        ("DEADLINE_EXCEEDED", "", lambda: client.infer("slow", [x], timeout=50_000)),
        ("DEADLINE_EXCEEDED", "", lambda: client.infer("slow", [x], client_timeout=0.05)),
    ]:
        try:
            call()
            expect(False, f"{code} {word}: a mistake is an exception")
        except utils.InferenceServerException as failure:
            expect(code in failure.status() and word in failure.message(), f"{code} {word}: {failure}")


def check_compression(grpc, numpy, utils, client, address):
    """Requests and answers; one that is too long is refused once it is inflated."""
    values = numpy.arange(16384, dtype=numpy.float32) % 100
    for coding in ("gzip", "deflate"):
        for number, model in ((values, "echo"), (values[:8], "double")):
            answer = client.infer(model, [an_input(grpc, numpy, number)], compression_algorithm=coding)
            expect((answer.as_numpy("y") == number * (1 if model == "echo" else 2)).all(), f"{coding}, {model}")
        try:
            client.infer("double", [an_input(grpc, numpy, numpy.zeros(30_000_000, numpy.float32))],
                         compression_algorithm=coding)
            expect(False, "a bomb is refused")
        except utils.InferenceServerException as failure:
            said = "RESOURCE_EXHAUSTED" in failure.status() and "decompression" in failure.message()
            expect(said, f"a bomb: {failure}")
    plain, packed = sent_to(address, grpc, numpy, values, None), sent_to(address, grpc, numpy, values, "gzip")
    expect(packed < plain / 3, f"the answer is compressed as the request was: {packed} of {plain} bytes")


def sent_to(address, grpc, numpy, values, coding):
    """How many bytes a client gets for an answer."""
    host, port = address.rsplit(":", 1)
    listener = socket.create_server(("127.0.0.1", 0))
    count = [0]

    def pump(one, other, counted):
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                count[0] += len(data) if counted else 0
                other.sendall(data)
        other.close()

    def serve():
        taken, _ = listener.accept()
        door = socket.create_connection((host, int(port)))
        threading.Thread(target=pump, args=(taken, door, False), daemon=True).start()
        pump(door, taken, True)

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    with grpc.InferenceServerClient(f"127.0.0.1:{listener.getsockname()[1]}") as client:
        answer = client.infer("echo", [an_input(grpc, numpy, values)], compression_algorithm=coding)
        expect((answer.as_numpy("y") == values).all(), "through the counter")
    listener.close()
    return count[0]


def check_strings_by_hand(address):
    """bytes_contents, which no stock client sends, and raw contents that are no strings."""
    import grpc
    from tritonclient.grpc import service_pb2
    with grpc.insecure_channel(address) as channel:
        infer = channel.unary_unary(SERVICE + "ModelInfer",
                                    request_serializer=service_pb2.ModelInferRequest.SerializeToString,
                                    response_deserializer=service_pb2.ModelInferResponse.FromString)
        request = service_pb2.ModelInferRequest(model_name="reflect")
        s = request.inputs.add(name="s", datatype="BYTES", shape=[2])
        s.contents.bytes_contents.extend([b"a", b"\xff"])
        request.inputs.add(name="n", datatype="FP32", shape=[1, 2]).contents.fp32_contents.extend([1, 2])
        answer = infer(request, timeout=60)
        expect(answer.raw_output_contents[0] == b"\1\0\0\0a\1\0\0\0\xff", f"strings: {answer}")
        expect(list(answer.outputs[0].shape) == [2] and answer.outputs[0].datatype == "BYTES", f"strings: {answer}")
        numbers = bytes(8)
        for n in request.inputs:
            n.ClearField("contents")
        for strings in [b"\1\0\0\0a\2\0\0\0b", b"\1\0\0\0a\xff\xff\xff\xffbc", b"\1\0\0\0a\0\0\0", bytes(12), b""]:
            del request.raw_input_contents[:]
            request.raw_input_contents.extend([strings, numbers])
            try:
                infer(request, timeout=60)
                expect(False, f"{strings} are refused")
            except grpc.RpcError as failure:
                expect(failure.code().name == "INVALID_ARGUMENT" and "2 elements of BYTES" in failure.details(),
                       f"{strings}: {failure.details()}")


def ended_with(stream):
    import grpc
    try:
        for _ in stream:
            pass
    except grpc.RpcError as failure:
        return failure.code().name
    return "OK"


def check_watch(address):
    """grpc.health.v1.Health/Watch with the stock package; then more watches than a door takes, and a bad question."""
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    states = health_pb2.HealthCheckResponse
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watch = lambda name="": stub.Watch(health_pb2.HealthCheckRequest(service=name), timeout=60)
        for name, wanted in [("", states.SERVING), ("inference.GRPCInferenceService", states.SERVING),
                             ("double", states.SERVING), ("nobody", states.SERVICE_UNKNOWN)]:
            one = watch(name)
            told = next(one).status
            expect(told == wanted and one.is_active(), f"the state of {name} at once: {told}")
            one.cancel()
        by_hand = channel.unary_stream("/grpc.health.v1.Health/Watch")
        expect(ended_with(by_hand(b"\x0a\xff", timeout=60)) == "INVALID_ARGUMENT", "a question that is none")
        silent = channel.stream_stream("/grpc.health.v1.Health/Watch")(iter(threading.Event().wait, True), timeout=20)
        expect(ended_with(silent) == "DEADLINE_EXCEEDED", "a client that asks nothing")
    check_most_watches(address)


def check_most_watches(address):
    import grpc
    with grpc.insecure_channel(address) as channel:
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")
        first = []
        while len(first) < 128:  # the door hears late of those that have ended
            first.append(watch(b"", timeout=60))
            try:
                next(first[-1])
            except grpc.RpcError as failure:
                expect(failure.code().name == "RESOURCE_EXHAUSTED", f"128 may watch: {failure}")
                first.pop()
                time.sleep(0.05)
        expect(ended_with(watch(b"", timeout=60)) == "RESOURCE_EXHAUSTED", "and no more")
        for each in first:
            each.cancel()


def watcher(address):
    """Watches while a server is lost, and then the door ends."""
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    states = health_pb2.HealthCheckResponse
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        names = ["", "double", "nobody"]
        streams = [stub.Watch(health_pb2.HealthCheckRequest(service=name), timeout=60) for name in names]
        told = [next(each).status for each in streams]
        expect(told == [states.SERVING, states.SERVING, states.SERVICE_UNKNOWN], f"the state at once: {told}")
        print("watching", flush=True)
        if sys.stdin.readline() == "the server ends\n":
            told = [next(each).status for each in streams[:2]]
            expect(told == [states.NOT_SERVING] * 2, f"a change is told: {told}")
            print("told", flush=True)
        else:
            rest = [[each.status for each in take_all(stream)] for stream in streams]
            expect(rest == [[states.NOT_SERVING]] * 2 + [[]], f"a drain is told: {rest}")
            return
        expect(all(ended_with(stream) == "UNAVAILABLE" for stream in streams), "the door's end is told")


def take_all(stream):
    """The messages until the door ends."""
    import grpc
    try:
        yield from stream
    except grpc.RpcError as failure:
        expect(failure.code().name == "UNAVAILABLE", f"the door's end is told: {failure}")


def check_leavers(grpc, numpy, client):
    """More calls are cancelled than there are slots; afterwards all slots are free again."""
    x = an_input(grpc, numpy)
    for _ in range(40):
        call = client.async_infer("held", [x], callback=lambda result, error: None)
        client.infer("caught", [x])
        call.cancel()
        client.infer("left", [x])
        client.infer("release", [x])
    check_many(grpc, numpy, client, "held", SLOTS - 1, lambda: release_all(grpc, numpy, client, SLOTS - 1))


def release_all(grpc, numpy, client, count):
    """Answers calls of `held` once that number is at the server."""
    count = an_input(grpc, numpy, numpy.full(8, count, numpy.float32))
    client.infer("caught", [count])
    client.infer("release", [count])


def check_many(grpc, numpy, client, model, count, meanwhile=lambda: None):
    """So many at once, each with its own numbers."""
    answers, whole = {}, threading.Semaphore(0)

    def take(number, result, error):
        answers[number] = error if error else result.as_numpy("y")[0]
        whole.release()

    for n in range(count):
        values = numpy.full(8, n, numpy.float32)
        client.async_infer(model, [an_input(grpc, numpy, values)],
                           callback=lambda result, error, n=n: take(n, result, error))
    meanwhile()
    for _ in range(count):
        expect(whole.acquire(timeout=60), "each call has its answer")
    expect(all(answers[n] == 2 * n for n in range(count)), f"nobody gets another's answer: {answers}")


def talk(address):
    import numpy
    import tritonclient.grpc as grpc
    from tritonclient import utils

    client = grpc.InferenceServerClient(address)
    check_documents(client)
    check_infer(grpc, numpy, client)
    check_mistakes(grpc, numpy, utils, client)
    check_compression(grpc, numpy, utils, client, address)
    check_open_documents(lambda one: one.shape, lambda one: one.datatype, client.get_model_metadata("reflect").inputs)
    check_open_shapes(grpc, numpy, utils, client)
    check_strings_by_hand(address)
    check_traces(address)
    check_watch(address)
    check_many(grpc, numpy, client, "double", 500)
    check_leavers(grpc, numpy, client)
    client.close()


def without_server(address):
    import numpy
    import tritonclient.grpc as grpc
    from tritonclient import utils

    client = grpc.InferenceServerClient(address)
    expect(client.is_server_live() and not client.is_server_ready(), "it lives, and is not ready")
    try:
        client.infer("double", [an_input(grpc, numpy)])
        expect(False, "there is no server")
    except utils.InferenceServerException as failure:
        expect("UNAVAILABLE" in failure.status(), f"without a server: {failure}")


def last_call(address):
    """A call that is open while the door ends."""
    import numpy
    import tritonclient.grpc as grpc

    client = grpc.InferenceServerClient(address)
    expect(client.is_server_live(), "it is there")
    print("ready", flush=True)
    expect((client.infer("slow", [an_input(grpc, numpy)]).as_numpy("y") == 2).all(), "a drain answers what is open")


def start_watcher(python, pair):
    out = subprocess.Popen([python, __file__, "watcher", pair.address], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                           text=True)
    first_line(out)
    return out


def main():
    clients = {"talk": talk, "last_call": last_call, "without_server": without_server, "watcher": watcher}
    if len(sys.argv) == 3 and sys.argv[1] in clients:
        clients[sys.argv[1]](sys.argv[2])
        return 0
    python = client_python()
    if python is None:
        print("skipped: PyPI is out of reach, and tritonclient comes from there")
        return SKIPPED
    with grpc_pair(*sys.argv[1:3], "--body-timeout", "1s") as pair:
        done = subprocess.run([python, __file__, "talk", pair.address], check=False, timeout=100)
        expect(done.returncode == 0, "the client is content")
        last = subprocess.Popen([python, __file__, "last_call", pair.address], stdout=subprocess.PIPE, text=True)
        first_line(last)
        watching = start_watcher(python, pair)
        watching.stdin.write("the door ends\n")
        watching.stdin.flush()
        time.sleep(0.1)
        pair.end_door()
        expect(last.wait(timeout=60) == 0, "the last call is answered")
        expect(watching.wait(timeout=60) == 0, "who watches hears of a drain")
    with grpc_pair(*sys.argv[1:3]) as other:
        watching = start_watcher(python, other)
        other.server.terminate()
        other.server.wait()
        watching.stdin.write("the server ends\n")
        watching.stdin.flush()
        expect(watching.stdout.readline() == "told\n", "who watches hears of a server that is lost")
        done = subprocess.run([python, __file__, "without_server", other.address], check=False, timeout=60)
        expect(done.returncode == 0, "a server that is lost is told")
    expect(watching.wait(timeout=60) == 0, "who watches hears of the door's end")
    expect(pair.summary["cancelled"] >= 40, f"calls of leavers are cancelled: {pair.summary}")
    print(json.dumps(pair.summary))
    return 0


if __name__ == "__main__":
    sys.exit(main())
