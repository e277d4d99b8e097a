# SPDX-License-Identifier: Apache-2.0
"""The files that the C++ side reads; README.md documents their formats."""

import struct
import zlib

VERSION = 1


def _write_checked(path, body):
    with open(path, "wb") as file:
        file.write(body + struct.pack("<I", zlib.crc32(body)))


def write_weights(path, parameters):
    body = struct.pack("<8sII", b"ADWEIGHT", VERSION, len(parameters))
    for value in parameters.values():
        body += struct.pack("<4I", *(value.shape + (1,) * (4 - value.ndim)))
    for value in parameters.values():
        body += value.astype("<f4").tobytes()
    _write_checked(path, body)


def write_images(path, images, labels):
    body = struct.pack("<8sIIIII", b"ADIMAGES", VERSION, len(images), 8, 8, 16)
    for image, label in zip(images, labels):
        body += image.astype("u1").tobytes() + bytes([int(label)])
    _write_checked(path, body)


def write_reference_scores(path, indices, scores):
    """One line an image: its index in test_images.bin, then its ten scores."""
    with open(path, "w", encoding="ascii") as file:
        for index, row in zip(indices, scores):
            file.write(",".join([str(index)] + [f"{score:.8f}" for score in row]) + "\n")


def read_weights(path, shapes):
    """What `write_weights` has written, by the names of `shapes`. Needs numpy."""
    import numpy as np

    with open(path, "rb") as file:
        body = file.read()[: -struct.calcsize("<I")]
    values = np.frombuffer(body, "<f4", offset=struct.calcsize("<8sII") + len(shapes) * struct.calcsize("<4I"))
    parameters, at = {}, 0
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        parameters[name] = values[at : at + size].reshape(shape)
        at += size
    return parameters
