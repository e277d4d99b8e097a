# SPDX-License-Identifier: Apache-2.0
"""Stock tritonclient against the digits service: every test image over http, grpc, http.aio and grpc.aio. The scores
are those of the network in numpy that the weights come from."""
import asyncio
import os
import sys

from check_digits import BRIGHTEST, HEADER, RECORD, frame, test_images
from client_environment import run_client
from service import Service
from pair import expect


def all_images(folder):
    """Pixels (count, 8, 8), and labels."""
    import numpy

    with open(os.path.join(folder, "test_images.bin"), "rb") as file:
        data = file.read()
    count = (len(data) - HEADER) // RECORD
    records = numpy.frombuffer(data, numpy.uint8, count * RECORD, HEADER).reshape(count, RECORD)
    return records[:, :-1].reshape(count, 8, 8), records[:, -1]


def reference(folder, tensors):
    """The scores of each image; those of the file are among them."""
    import numpy

    sys.path.insert(0, os.path.join(folder, "training"))
    import cnn
    import files

    scores, _ = cnn.forward(files.read_weights(os.path.join(folder, "weights.bin"), cnn.SHAPES), tensors)
    known = numpy.array([wanted for _, _, wanted in test_images(folder)])
    expect(numpy.abs(scores[:len(known)] - known).max() < 1e-5, "the network in numpy says what the file says")
    return scores


def inputs_of(module, tensors):
    """One list of inputs for each image."""
    out = []
    for each in tensors:
        one = module.InferInput("input0", [1, 1, 8, 8], "FP32")
        one.set_data_from_numpy(each.reshape(1, 1, 8, 8))
        out.append([one])
    return out


def check_scores(answers, wanted, what):
    import numpy

    got = numpy.array([each.as_numpy("output0").reshape(-1) for each in answers])
    expect(got.shape == wanted.shape, f"{what}: an answer for each image")
    far = numpy.abs(got - wanted).max(axis=1)
    expect((far < 1e-4).all(), f"{what}: image {far.argmax()} is {far.max()} off")
    print(f"{what}: {len(got)} images, at most {far.max():.1e} off", flush=True)


def one_by_one(module, where, tensors, wanted, what):
    with module.InferenceServerClient(where) as client:
        expect(client.is_model_ready("digits"), f"{what}: the model is ready")
        check_scores([client.infer("digits", each) for each in inputs_of(module, tensors)], wanted, what)


async def many_at_once(module, inputs, where, wanted, what):
    """Up to 32 at once, as the service has slots."""
    room = asyncio.Semaphore(32)

    async def one(client, each):
        async with room:
            return await client.infer("digits", each)

    async with module.InferenceServerClient(where) as client:
        check_scores(await asyncio.gather(*(one(client, each) for each in inputs)), wanted, what)


def check_frames(module, where, pixels, labels):
    """Raw images, as a camera sees them."""
    import numpy

    right = 0
    with module.InferenceServerClient(where) as client:
        for image, label in zip(pixels, labels):
            values = numpy.frombuffer(frame(image.tobytes()), numpy.uint8).reshape(480, 640, 3)
            one = module.InferInput("image", list(values.shape), "UINT8")
            one.set_data_from_numpy(values)
            right += client.infer("digits_image", [one]).as_numpy("output0").argmax() == label
    expect(right >= 0.8 * len(labels), f"{right} of {len(labels)} frames are read right")


def talk(http_where, grpc_where, folder):
    import numpy
    import tritonclient.grpc
    import tritonclient.grpc.aio
    import tritonclient.http
    import tritonclient.http.aio

    pixels, labels = all_images(folder)
    tensors = pixels.astype(numpy.float32) / BRIGHTEST
    wanted = reference(folder, tensors)
    for what, module, where in [("http", tritonclient.http, http_where), ("grpc", tritonclient.grpc, grpc_where)]:
        one_by_one(module, where, tensors, wanted, what)
        check_frames(module, where, pixels[:5], labels[:5])
        asyncio.run(many_at_once(module.aio, inputs_of(module, tensors), where, wanted, what + ".aio"))


def main():
    if sys.argv[1] == "talk":
        talk(*sys.argv[2:5])
        return 0
    *programs, folder = sys.argv[1:]
    with Service(*programs, "digits=builtin") as digits:
        return run_client(__file__, "talk", digits.http, digits.grpc, folder)


if __name__ == "__main__":
    sys.exit(main())
