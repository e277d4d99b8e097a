# SPDX-License-Identifier: Apache-2.0
"""Models of files, each read by model_server, by load and by the doors: one that takes raw images as well, and a
detector, whose answers without elements come through a gateway between transports and another with doors."""
import json
import os
import subprocess
import sys
import tempfile

from client_environment import run_client
from pair import Connection, expect, first_line, post

TCP = "tcp://127.0.0.1:0?insecure=true"
DETECTOR = {
    "name": "detector", "gflops": 0.001,
    "inputs": [{"name": "x", "datatype": "INT64", "shape": [1, 4], "values": 100}],
    "outputs": [{"name": "boxes", "datatype": "INT32", "shape": [-1, 4], "max_bytes": 48},
                {"name": "labels", "datatype": "INT64", "shape": [-1], "max_bytes": 24}]}
PICTURES = {
    "name": "pictures", "image": [6, 5],
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3, 4, 4]}],
    "outputs": [{"name": "y", "datatype": "INT32", "shape": [1, 2]}]}
SEEDS = range(32)  # a synthetic detector finds 0 to 3 boxes


def check_counts(counts, what):
    expect(set(counts) == {0, 1, 2, 3}, f"{what}: {counts} boxes")
    print(f"{what}: {counts.count(0)} of {len(counts)} answers without boxes", flush=True)


def ask(one, seed, binary):
    """How many boxes there are, by HTTP."""
    x = {"name": "x", "datatype": "INT64", "shape": [1, 4], "data": [seed, 0, 0, 0]}
    request = {"inputs": [x], "parameters": {"binary_data_output": binary}}
    status, headers, body = one.ask(post("detector", json.dumps(request).encode()))
    expect(status == 200, f"an answer: {status} {body}")
    length = int(headers.get("inference-header-content-length", len(body)))
    boxes, labels = json.loads(body[:length])["outputs"]
    count = boxes["shape"][0]
    expect(boxes["shape"] == [count, 4] and labels["shape"] == [count], f"shapes: {boxes} {labels}")
    if binary:
        expect(len(body) - length == count * (16 + 8), f"{count} boxes in {len(body) - length} bytes")
    else:
        expect(len(boxes["data"]) == 4 * count and len(labels["data"]) == count, f"data: {boxes} {labels}")
    return count


def talk(http_where, grpc_where):
    import numpy
    import tritonclient.grpc
    import tritonclient.http

    for what, module, where in [("http", tritonclient.http, http_where), ("grpc", tritonclient.grpc, grpc_where)]:
        counts = []
        with module.InferenceServerClient(where) as client:
            for seed in SEEDS:
                x = module.InferInput("x", [1, 4], "INT64")
                x.set_data_from_numpy(numpy.array([[seed, 0, 0, 0]], numpy.int64))
                answer = client.infer("detector", [x])
                boxes, labels = answer.as_numpy("boxes"), answer.as_numpy("labels")
                expect(boxes.shape == (len(labels), 4), f"{what}: {boxes.shape} {labels.shape}")
                counts.append(len(labels))
        check_counts(counts, f"tritonclient.{what}")


def check_images(one):
    """A described model that takes raw images has two names, like one of the table."""
    status, _, body = one.ask(b"GET /v2/models/pictures_image HTTP/1.1\r\nHost: d\r\n\r\n")
    image = {"name": "image", "datatype": "UINT8", "shape": [6, 5, 3]}
    expect(status == 200 and json.loads(body)["inputs"] == [image], f"a raw image: {status} {body}")
    for name, size in [("pictures_image", 6 * 5 * 3), ("pictures", 4 * 3 * 4 * 4)]:
        status, _, body = one.ask(post(name, bytes(size), ["Inference-Header-Content-Length: 0"]))
        expect(status == 200 and json.loads(body)["outputs"][0]["shape"] == [1, 2], f"{name}: {status} {body}")


def check(programs, start, files):
    """The exit status."""
    gateway, server, load = programs
    names = ("detector", "pictures")
    shapes = [word for each in files for word in ("--shapes", each)]
    served = [word for each in names for word in ("--model", each)]
    behind = start(server, TCP, "--json", *shapes, *served)[0] + "?insecure=true"
    ways = [word for each in names for word in ("--to", f"{each}={behind}")]
    between = start(gateway, "--json", "--listen", TCP, *ways)[0] + "?insecure=true"
    served = [word for each in names for word in ("--model", f"{each}={between}")]
    doors = start(gateway, "--json", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", *shapes, *served)
    for uri in (behind, between):
        for name, path in zip(names, files):
            out = subprocess.run([load, uri, "--shapes", path, "--expect", "synthetic", "--clients", "16", "--requests",
                                  "8", "--gpu", "-1", "--json", "-"], stdout=subprocess.PIPE, timeout=120, check=True)
            seen = json.loads(out.stdout)
            expect(seen["requests"] == 128 and seen["wrong"] == 0 and seen["model"] == name, f"load: {seen}")
    http, grpc = (each.split("//")[1] for each in doors)
    with Connection(int(http.rsplit(":", 1)[1])) as one:
        check_images(one)
        for binary in (False, True):
            check_counts([ask(one, seed, binary) for seed in SEEDS], "binary" if binary else "JSON")
    return run_client(__file__, "talk", http, grpc)


def main():
    if sys.argv[1] == "talk":
        talk(*sys.argv[2:4])
        return 0
    processes = []

    def start(*command):
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return json.loads(first_line(processes[-1]))["endpoints"]

    with tempfile.TemporaryDirectory() as folder:
        files = [os.path.join(folder, each["name"]) for each in (DETECTOR, PICTURES)]
        for path, model in zip(files, (DETECTOR, PICTURES)):
            with open(path, "w", encoding="utf-8") as file:
                json.dump(model, file)
        try:
            status = check(sys.argv[1:4], start, files)
        finally:
            for process in reversed(processes):
                process.terminate()
                process.communicate(timeout=60)
    expect(all(each.returncode == 0 for each in processes), "all end in good order")
    return status


if __name__ == "__main__":
    sys.exit(main())
