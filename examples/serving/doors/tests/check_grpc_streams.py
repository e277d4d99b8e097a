# SPDX-License-Identifier: Apache-2.0
"""ModelStreamInfer with a stock tritonclient[grpc], also its aio client: parts and their order, finals, mistakes within
a stream, clients that read slowly or leave. Skipped where PyPI is out of reach."""
import asyncio
import contextlib
import json
import queue
import subprocess
import sys
import threading
import time

from check_grpc import SERVICE, an_input, grpc_pair
from client_environment import SKIPPED, client_python
from pair import expect, first_line


# Seconds. Long enough for a client that a busy machine holds up.
PART_TIMEOUT = 3
WRITE_TIMEOUT = 2


def parts_input(grpc, numpy, count, first=0.0, wait_ms=0, fails=0, ends=0, name="x"):
    return an_input(grpc, numpy, numpy.array([count, first, wait_ms, fails, ends, 0, 0, 0], numpy.float32), name)


def is_final(response):
    return response.parameters["triton_final_response"].bool_param


class Stream:
    """A stream of a client, and what came: (result, error)."""

    def __init__(self, client, **options):
        self.client, self.came = client, queue.Queue()
        client.start_stream(callback=lambda result, error: self.came.put((result, error)), **options)

    def ask(self, model, inputs, **options):
        self.client.async_stream_infer(model, inputs, **options)

    def next(self):
        return self.came.get(timeout=60)

    def until_final(self):
        """Results up to the final one; with an error it is (results, error)."""
        out = []
        while True:
            result, error = self.next()
            if error:
                return out, error
            out.append(result)
            if is_final(result.get_response()):
                return out, None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.stop_stream()


def check_parts(grpc, numpy, client):
    with Stream(client) as stream:
        for ends, empty, wanted in [(0, True, 6), (1, False, 6), (1, True, 6)]:
            stream.ask("parts", [parts_input(grpc, numpy, 5, 10, ends=ends)], request_id="a",
                       enable_empty_final_response=empty)
            results, error = stream.until_final()
            responses = [r.get_response() for r in results]
            expect(not error and len(results) == wanted, f"{wanted} responses: {len(results)} {error}")
            expect([is_final(r) for r in responses] == [False] * 5 + [True], "one final, the last")
            expect([r.as_numpy("y")[0] for r in results[:5]] == [10, 11, 12, 13, 14], "each part once, in order")
            expect(all(r.id == "a" and r.model_name == "parts" for r in responses), "the request's id")
            last = results[5].as_numpy("y")
            expect(last[0] == -1 if ends else last is None, f"the end: {last}")
        stream.ask("parts", [parts_input(grpc, numpy, 3)], request_id="b")
        values = [stream.next()[0].as_numpy("y")[0] for _ in range(3)]
        stream.ask("double", [an_input(grpc, numpy)], request_id="c")
        results, _ = stream.until_final()
        expect(values == [0, 1, 2] and len(results) == 1, "no empty final for those who do not ask for it")
        text = numpy.zeros(64, numpy.uint8)
        text[:9] = list(b"one three")
        words = grpc.InferInput("text_input", [64], "UINT8")
        words.set_data_from_numpy(text)
        stream.ask("words", [words], enable_empty_final_response=True)
        results, _ = stream.until_final()
        expect([bytes(r.as_numpy("text_output")) for r in results[:-1]] == [b"one", b"three"], "parts say their shapes")


def check_order(grpc, numpy, client):
    """Answers in one piece come in the order of their requests, also where the first takes longest; parts between."""
    with Stream(client) as stream:
        for n, model in enumerate(["slow", "double", "failing", "double"]):
            stream.ask(model, [an_input(grpc, numpy, numpy.full(8, n, numpy.float32))], request_id=str(n))
        for n in range(4):
            result, error = stream.next()
            good = "on fire" in str(error) if n == 2 else result.get_response().id == str(n)
            expect(good, f"answer {n}: {result and result.get_response().id} {error}")


def check_many(grpc, numpy, client, model, requests):
    """More requests than may be open at once: nobody gets another's parts."""
    with Stream(client) as stream:
        for n in range(requests):
            stream.ask(model, [parts_input(grpc, numpy, 10, 1000 * n)], request_id=str(n),
                       enable_empty_final_response=True)
        seen = {str(n): [] for n in range(requests)}
        finals = 0
        while finals < requests:
            result, error = stream.next()
            expect(not error, f"an error: {error}")
            response = result.get_response()
            if is_final(response):
                finals += 1
            else:
                seen[response.id].append(result.as_numpy("y")[0])
        expect(all(seen[str(n)] == [1000.0 * n + i for i in range(10)] for n in range(requests)), "each its own parts")
        expect(stream.came.empty(), "exactly one final for each")


def check_mistakes(grpc, numpy, utils, client):
    """Each is told by its message, and the stream goes on."""
    x = an_input(grpc, numpy)
    with Stream(client) as stream:
        for model, inputs, word in [
            ("nobody", [x], "no model"),
            ("double", [an_input(grpc, numpy, name="z")], "no input"),
            ("double", [an_input(grpc, numpy, numpy.zeros(4, numpy.float32))], "shape"),
            ("failing", [x], "on fire"),
            ("short", [x], "not the outputs"),
            ("parts", [parts_input(grpc, numpy, 0, fails=1)], "on fire"),
        ]:
            stream.ask(model, inputs, request_id="m")
            _, error = stream.until_final()
            expect(error and word in error.message(), f"{word}: {error}")
        stream.ask("parts", [parts_input(grpc, numpy, 3, fails=1)])
        results, error = stream.until_final()
        expect(len(results) == 3 and "on fire" in error.message(), f"an error behind the parts: {len(results)} {error}")
        for slower in (1, 3, 9):  # a busy machine may need longer for the first part
            stream.ask("parts", [parts_input(grpc, numpy, 9, wait_ms=100 * slower)], timeout=250_000 * slower)
            results, error = stream.until_final()
            expect(len(results) <= 3 and "timed_out" in error.message(), f"a deadline: {len(results)} {error}")
            if results:
                break
        expect(results, "parts before the deadline come")
        stream.ask("parts", [parts_input(grpc, numpy, 2, wait_ms=1000 * PART_TIMEOUT + 500)])
        results, error = stream.until_final()
        expect(not results and "timed_out" in error.message(), f"no part for too long: {error}")
        stream.ask("double", [x], request_id="good")
        results, error = stream.until_final()
        expect(not error and results[0].get_response().id == "good", "the stream goes on")


def check_messages(address):
    """Messages that no stock client sends, and a stream that ends while requests are open."""
    import grpc
    from tritonclient.grpc import service_pb2

    with grpc.insecure_channel(address) as channel:
        infer = channel.stream_stream(SERVICE + "ModelStreamInfer")
        answers = list(infer(iter([b"\x0a\xff", b"", b"\x0a\x06double"]), timeout=60))
        answers = [service_pb2.ModelStreamInferResponse.FromString(a) for a in answers]
        expect(len(answers) == 3 and all(a.error_message for a in answers), f"malformed messages: {answers}")
        expect(all(is_final(a.infer_response) for a in answers), "an error is the final of its request")
        expect(list(infer(iter([]), timeout=60)) == [], "an empty stream")
        try:
            list(infer(iter([b"\x0a\x06double\x3a\x80\x80\x40" + bytes(1 << 20)]), timeout=60))
            expect(False, "a message that is too long ends the stream")
        except grpc.RpcError as failure:
            expect(failure.code().name == "RESOURCE_EXHAUSTED", f"too long: {failure.code()}")


def wait_for(holds, what, seconds=60):
    deadline = time.monotonic() + seconds
    while not holds():
        expect(time.monotonic() < deadline, what)
        time.sleep(0.05)


@contextlib.contextmanager
def slow_client(address):
    """A stream whose client has read one answer of endless ones, and then reads no more."""
    import grpc as raw
    from tritonclient.grpc import service_pb2

    request = service_pb2.ModelInferRequest(model_name="flood", raw_input_contents=[bytes(64)])
    request.inputs.add(name="text_input", datatype="UINT8").shape.append(64)
    held = threading.Event()

    def requests():
        yield request.SerializeToString()
        held.wait(60)

    options = [("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0)]
    with raw.insecure_channel(address, options=options) as channel:
        answers = channel.stream_stream(SERVICE + "ModelStreamInfer")(requests())
        next(answers)
        try:
            yield answers
        finally:
            held.set()


def check_slow(address):
    """A client that does not read is let go once its time is over."""
    import grpc as raw

    with slow_client(address) as answers:
        time.sleep(3 * WRITE_TIMEOUT)
        try:
            for _ in answers:
                pass
            expect(False, "a slow client is let go")
        except raw.RpcError as failure:
            expect(failure.code().name == "CANCELLED", f"a slow client: {failure.code()} {failure.details()}")


def others(address):
    """While a client that has time does not read, others are served."""
    import numpy
    import tritonclient.grpc as grpc

    with slow_client(address) as answers, grpc.InferenceServerClient(address) as client:
        for _ in range(20):
            client.infer("double", [an_input(grpc, numpy)])
        answers.cancel()


def check_leavers(grpc, numpy, address):
    """More streams are left in the middle than may be open at once; afterwards all can be again."""
    for n in range(30):
        with grpc.InferenceServerClient(address) as client:
            stream = Stream(client)
            for _ in range(4):
                stream.ask("parts", [parts_input(grpc, numpy, 1e6, wait_ms=1)])
            if n % 2:
                stream.next()
            client.stop_stream(cancel_requests=True)
    with grpc.InferenceServerClient(address) as client:
        check_many(grpc, numpy, client, "parts", 8)


async def check_aio(grpc, aio, numpy, address):
    """Two requests at once, with the aio client."""
    async def requests():
        for n in range(2):
            yield {"model_name": "parts", "inputs": [parts_input(grpc, numpy, 5, 100 * n)], "request_id": str(n),
                   "enable_empty_final_response": True}

    async with aio.InferenceServerClient(address) as client:
        seen = {"0": [], "1": []}
        async for result, error in client.stream_infer(requests()):
            expect(error is None, f"aio: {error}")
            response = result.get_response()
            if not is_final(response):
                seen[response.id].append(float(result.as_numpy("y")[0]))
        expect(seen == {"0": [0, 1, 2, 3, 4], "1": [100, 101, 102, 103, 104]}, f"aio: {seen}")


def talk(address):
    import numpy
    import tritonclient.grpc as grpc
    import tritonclient.grpc.aio as aio
    from tritonclient import utils

    client = grpc.InferenceServerClient(address)
    expect(client.get_model_config("parts").config.model_transaction_policy.decoupled, "it says that it has parts")
    expect(not client.get_model_config("double").config.model_transaction_policy.decoupled, "and others do not")
    for check in (lambda: check_parts(grpc, numpy, client), lambda: check_order(grpc, numpy, client),
                  lambda: check_many(grpc, numpy, client, "parts", 50),
                  lambda: check_mistakes(grpc, numpy, utils, client), lambda: check_messages(address),
                  lambda: check_slow(address), lambda: check_leavers(grpc, numpy, address),
                  lambda: asyncio.run(check_aio(grpc, aio, numpy, address))):
        began = time.monotonic()
        check()
        print(check.__code__.co_names[0], f"good, {time.monotonic() - began:.1f} s", flush=True)
    client.close()


def last_stream(address):
    """A stream that is open while the door ends: its request is answered, then it ends."""
    import numpy
    import tritonclient.grpc as grpc

    client = grpc.InferenceServerClient(address)
    with Stream(client) as stream:
        stream.ask("parts", [parts_input(grpc, numpy, 10, wait_ms=50)], enable_empty_final_response=True)
        stream.next()
        print("ready", flush=True)
        results, error = stream.until_final()
        expect(len(results) == 10 and not error, f"a drain answers what is open: {len(results)} {error}")
        expect("closing" in str(stream.next()[1]), "then the stream ends")


def silent_stream(address):
    """A stream without requests ends."""
    import tritonclient.grpc as grpc

    client = grpc.InferenceServerClient(address)
    with Stream(client) as stream:
        expect("no request" in str(stream.next()[1]), "a silent stream ends")


def main():
    clients = {"talk": talk, "others": others, "last_stream": last_stream, "silent_stream": silent_stream}
    if len(sys.argv) == 3 and sys.argv[1] in clients:
        clients[sys.argv[1]](sys.argv[2])
        return 0
    python = client_python()
    if python is None:
        print("skipped: PyPI is out of reach, and tritonclient comes from there")
        return SKIPPED
    with grpc_pair(*sys.argv[1:3], "--write-timeout", f"{WRITE_TIMEOUT}s", "--part-timeout",
                   f"{PART_TIMEOUT}s", "--drain-timeout", "100s") as pair:
        done = subprocess.run([python, __file__, "talk", pair.address], check=False, timeout=100)
        expect(done.returncode == 0, "the client is content")
        last = subprocess.Popen([python, __file__, "last_stream", pair.address], stdout=subprocess.PIPE, text=True)
        first_line(last)
        pair.end_door()
        expect(last.wait(timeout=60) == 0, "the last stream is answered")
        pair.door.wait(timeout=60)  # an open stream does not hold it until the end of --drain-timeout
    with grpc_pair(*sys.argv[1:3], "--write-timeout", "600s") as other:
        done = subprocess.run([python, __file__, "others", other.address], check=False, timeout=60)
        expect(done.returncode == 0, "others do not wait for a slow client")
    with grpc_pair(*sys.argv[1:3], "--stream-timeout", "1s") as other:
        done = subprocess.run([python, __file__, "silent_stream", other.address], check=False, timeout=60)
        expect(done.returncode == 0, "a silent stream ends")
    expect(pair.summary["cancelled"] >= 30, f"calls of leavers are cancelled: {pair.summary}")
    print(json.dumps(pair.summary))
    return 0


if __name__ == "__main__":
    sys.exit(main())
