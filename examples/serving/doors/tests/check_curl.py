# SPDX-License-Identifier: Apache-2.0
"""Every endpoint of the door, asked with curl."""
import json
import os
import shutil
import struct
import subprocess
import sys

from pair import MODELS, Pair, expect


def curl(*arguments):
    """(status, body)."""
    done = subprocess.run(["curl", "-s", "-m", "20", "-w", "\n%{http_code}", *arguments], stdout=subprocess.PIPE,
                          check=True)
    body, _, status = done.stdout.rpartition(b"\n")
    return int(status), body


def check_documents(url):
    model = "/v2/models/double"
    ready = b'{"name":"double","ready":true}'
    for path, wanted in (("/v2/health/live", b'{"live":true}'), ("/v2/health/ready", b'{"ready":true}'),
                         (model + "/ready", ready), (model + "/versions/1/ready", ready)):
        expect(curl(url + path) == (200, wanted), path)
    expect("binary_tensor_data" in json.loads(curl(url + "/v2")[1])["extensions"], "the server's extensions")
    model = json.loads(curl(url + "/v2/models/double")[1])
    expect(model["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [8]}], "the model's inputs")
    expect(model["versions"] == ["1"], "the model's versions")
    configuration = json.loads(curl(url + "/v2/models/double/config")[1])
    expect(configuration["max_batch_size"] == 0, "the batch size")
    expect(configuration["input"][0]["data_type"] == "TYPE_FP32", "the type in the configuration")


def check_numbers(url):
    values = [1, 2, 3, 4, 5, 6, 7, 8.5]
    request = {"id": "7", "inputs": [{"name": "x", "datatype": "FP32", "shape": [8], "data": values}]}
    status, body = curl("-H", "Content-Type: application/json", "-d", json.dumps(request),
                        url + "/v2/models/double/infer")
    answer = json.loads(body)
    expect(status == 200 and answer["id"] == "7" and answer["model_name"] == "double", f"an answer: {body}")
    expect(answer["outputs"][0]["data"] == [2, 4, 6, 8, 10, 12, 14, 17], "the answer's numbers")


def check_raw(url, folder):
    path = os.path.join(folder, "raw")
    with open(path, "wb") as file:
        file.write(struct.pack("<8f", *range(8)))
    status, body = curl("-H", "Inference-Header-Content-Length: 0", "-H", "Expect: 100-continue", "--data-binary",
                        "@" + path, url + "/v2/models/double/versions/1/infer")
    expect(status == 200, f"a raw request: {body}")
    expect(json.loads(body)["outputs"][0]["data"] == [0, 2, 4, 6, 8, 10, 12, 14], "the raw request's answer")


def check_statistics(url):
    stats = json.loads(curl(url + "/v2/models/double/stats")[1])["model_stats"]
    expect(stats[0]["inference_stats"]["success"]["count"] == 2, f"the counts: {stats}")
    everything = json.loads(curl(url + "/v2/models/stats")[1])["model_stats"]
    expect(sorted(each["name"] for each in everything) == sorted(MODELS), "all models' statistics")


def main():
    if not shutil.which("curl"):
        print("there is no curl")
        return 77
    with Pair(*sys.argv[1:3]) as pair:
        check_documents(pair.url)
        check_numbers(pair.url)
        check_raw(pair.url, pair.folder.name)
        check_statistics(pair.url)
    expect(pair.summary["errors"] == 0, f"no errors: {pair.summary}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
