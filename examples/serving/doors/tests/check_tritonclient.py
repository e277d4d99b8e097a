# SPDX-License-Identifier: Apache-2.0
"""A stock tritonclient[http] from PyPI against the door, in a virtual environment of the test's own. Skipped where PyPI
is out of reach."""
import asyncio
import subprocess
import sys

from client_environment import SKIPPED, client_python
from open_shapes import check_documents, check_open_shapes
from pair import Pair, expect


def check_infer(http, numpy, client, binary):
    values = numpy.arange(8, dtype=numpy.float32) + 0.25
    x = http.InferInput("x", [8], "FP32")
    x.set_data_from_numpy(values, binary_data=binary)
    for outputs in (None, [http.InferRequestedOutput("y", binary_data=binary)]):
        answer = client.infer("double", [x], outputs=outputs, request_id="one")
        expect((answer.as_numpy("y") == 2 * values).all(), "the answer's numbers")
        expect(answer.get_response()["id"] == "one", "the request's id")


def check_errors(http, numpy, utils, client):
    x = http.InferInput("x", [4], "FP32")
    x.set_data_from_numpy(numpy.zeros(4, numpy.float32))
    for model, word in (("double", "shape"), ("nobody", "no model")):
        try:
            client.infer(model, [x])
            expect(False, "a mistake is an exception")
        except utils.InferenceServerException as failure:
            expect(word in failure.message(), f"the sentence: {failure}")


def check_compression(http, numpy, client):
    values = numpy.arange(16384, dtype=numpy.float32) % 100
    x = http.InferInput("x", [16384], "FP32")
    y = http.InferRequestedOutput("y")
    for request, response in (("gzip", "gzip"), ("deflate", "deflate"), ("gzip", None), (None, "deflate")):
        for binary in (True, False):
            x.set_data_from_numpy(values, binary_data=binary)
            answer = client.infer("echo", [x], outputs=[y], request_compression_algorithm=request,
                                  response_compression_algorithm=response)
            expect((answer.as_numpy("y") == values).all(), f"compressed: {request} {response} {binary}")


def check_generate(url):
    """As the documentation of the extension shows it, with the client's own HTTP."""
    import geventhttpclient

    document = '{"text_input": "what a day", "parameters": {}}'
    client = geventhttpclient.HTTPClient.from_url(f"http://{url}")
    path = "/v2/models/words/generate"
    expect(client.post(path, body='{"text_input": "one"}').read() ==
           b'{"model_name":"words","model_version":"1","text_output":"one"}', "generate")
    events = client.post(path + "_stream", body=document).read().decode().split("\n\n")
    expect(len(events) == 4 and '"text_output":"day"' in events[2] and not events[3], f"generate_stream: {events}")
    expect(client.post("/v2/models/reflect/generate", body='{"s": "a", "n": [[1, 2]]}').read() ==
           b'{"model_name":"reflect","model_version":"1","s":"a","n":[1,2]}', "a string is BYTES, and a list its shape")
    client.close()


async def check_aio(url):
    import numpy
    import tritonclient.http.aio as http

    async with http.InferenceServerClient(url) as client:
        values = numpy.arange(16384, dtype=numpy.float32) % 100
        x = http.InferInput("x", [16384], "FP32")
        x.set_data_from_numpy(values)
        for coding in (None, "gzip", "deflate"):
            answer = await client.infer("echo", [x], outputs=[http.InferRequestedOutput("y")],
                                        request_compression_algorithm=coding, response_compression_algorithm=coding)
            expect((answer.as_numpy("y") == values).all(), f"aio, {coding}")


def talk(url):
    import numpy
    import tritonclient.http as http
    from tritonclient import utils

    client = http.InferenceServerClient(url, concurrency=8)
    expect(client.is_server_live() and client.is_server_ready() and client.is_model_ready("double"), "it is ready")
    expect(client.get_server_metadata()["name"] == "accel_transport", "the server's name")
    expect(client.get_model_metadata("double", "1")["inputs"][0]["name"] == "x", "the model's input")
    expect(client.get_model_config("double")["max_batch_size"] == 0, "the model's configuration")
    for binary in (True, False):
        check_infer(http, numpy, client, binary)
    check_errors(http, numpy, utils, client)
    x = http.InferInput("x", [8], "FP32")
    x.set_data_from_numpy(numpy.ones(8, numpy.float32))
    pending = [client.async_infer("slow", [x]) for _ in range(8)]
    expect(all((each.get_result().as_numpy("y") == 2).all() for each in pending), "eight at once")
    count = client.get_inference_statistics("double")["model_stats"][0]["inference_stats"]["success"]["count"]
    expect(count == 4, f"four inferences were counted: {count}")
    check_compression(http, numpy, client)
    check_documents(lambda one: one["shape"], lambda one: one["datatype"],
                    client.get_model_metadata("reflect")["inputs"])
    for binary in (True, False):
        check_open_shapes(http, numpy, utils, client, binary_data=binary)
    check_generate(url)
    asyncio.run(check_aio(url))
    client.close()


def main():
    if len(sys.argv) == 2:
        talk(sys.argv[1])
        return 0
    python = client_python()
    if python is None:
        print("skipped: PyPI is out of reach, and tritonclient comes from there")
        return SKIPPED
    with Pair(*sys.argv[1:3]) as pair:
        done = subprocess.run([python, __file__, pair.url.removeprefix("http://")], check=False, timeout=100)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
