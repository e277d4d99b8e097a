# SPDX-License-Identifier: Apache-2.0
"""door in front of model_server with the digits network: test images by HTTP, and the scores that they have to have."""
import csv
import json
import os
import struct
import subprocess
import sys

from pair import Connection, expect, first_line, post

SIDE = 8
BRIGHTEST = 16
HEADER, RECORD = 28, SIDE * SIDE + 1


def test_images(folder):
    """[(pixels, label, scores)]."""
    with open(os.path.join(folder, "test_images.bin"), "rb") as file:
        data = file.read()
    out = []
    with open(os.path.join(folder, "reference_scores.csv"), encoding="utf-8") as file:
        for row in csv.reader(file):
            at = HEADER + int(row[0]) * RECORD
            out.append((data[at:at + RECORD - 1], data[at + RECORD - 1], [float(score) for score in row[1:]]))
    return out


def frame(pixels, scale=24, height=480, width=640):
    """The image on a page, as a camera sees it: ink is dark."""
    rows = [bytearray(b"\xf0" * width * 3) for _ in range(height)]
    top, left = (height - SIDE * scale) // 2, (width - SIDE * scale) // 2
    for y in range(SIDE * scale):
        for x in range(SIDE * scale):
            ink = pixels[y // scale * SIDE + x // scale]
            rows[top + y][3 * (left + x):3 * (left + x) + 3] = bytes([240 - ink * 14]) * 3
    return b"".join(rows)


def scores(answer):
    status, _, body = answer
    expect(status == 200, f"an answer: {status} {body[:200]}")
    return json.loads(body)["outputs"][0]["data"]


def raw(model, data):
    return post(model, data, ["Inference-Header-Content-Length: 0"])


def check_tensors(one, images):
    for pixels, _, wanted in images:
        values = [pixel / BRIGHTEST for pixel in pixels]
        got = scores(one.ask(raw("digits", struct.pack("<64f", *values))))
        expect(max(abs(a - b) for a, b in zip(got, wanted)) < 1e-4, f"{got} for {wanted}")
    numbers = [pixel / BRIGHTEST for pixel in images[0][0]]
    request = {"inputs": [{"name": "input0", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": numbers}]}
    got = scores(one.ask(post("digits", json.dumps(request).encode())))
    expect(abs(max(got) - max(images[0][2])) < 1e-4, "the same by numbers in JSON")


def check_frames(one, images):
    right = 0
    for pixels, label, _ in images:
        got = scores(one.ask(raw("digits_image", frame(pixels))))
        right += got.index(max(got)) == label
    expect(right >= 0.8 * len(images), f"{right} of {len(images)} frames are read right")
    status, _, body = one.ask(raw("digits_image", b"\xf0" * (480 * 640 * 3)))
    expect(status == 400 and b"error" in body, f"a blank page: {status} {body}")
    expect(one.ask(raw("digits_image", b"\xf0" * 100))[0] == 400, "too short a page")


def main():
    door, server, folder = sys.argv[1:4]
    images = test_images(folder)
    expect(len(images) >= 10, "test images")
    behind = subprocess.Popen([server, "tcp://127.0.0.1:0?insecure=true", "--model", "digits=builtin", "--json"],
                              stdout=subprocess.PIPE, text=True)
    front = None
    try:
        uri = json.loads(first_line(behind))["endpoints"][0]
        uri += "" if "insecure" in uri else "?insecure=true"
        front = subprocess.Popen([door, "--http", "127.0.0.1:0", "--json", "--model", "digits=" + uri],
                                 stdout=subprocess.PIPE, text=True)
        url = json.loads(first_line(front))["endpoints"][0]
        with Connection(int(url.rsplit(":", 1)[1])) as one:
            check_tensors(one, images)
            check_frames(one, images[:10])
    finally:
        for process in (front, behind):
            if process:
                process.terminate()
                process.communicate(timeout=30)
    expect(front.returncode == 0 and behind.returncode == 0, "both end in good order")
    return 0


if __name__ == "__main__":
    sys.exit(main())
