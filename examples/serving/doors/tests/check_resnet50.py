# SPDX-License-Identifier: Apache-2.0
"""ResNet50 on a GPU behind both doors, over tcp and over shm. Stock tritonclients (http, grpc and both aio) send images
in messages and in CUDA shared memory, and get what torch itself answers for the same file. Skipped without a GPU,
PyTorch, LibTorch in the build, or tritonclient."""
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile

from client_environment import SKIPPED, run_client
from pair import expect
from service import TCP, Service

MODEL = "resnet50"
SHAPE = [1, 3, 224, 224]
FRAME = [500, 546, 3]  # a raw image
CLASSES = 1000
IMAGES = 6
CLOSE = 0.02  # of the largest score: TF32 differs by less
STARTING = 120  # seconds


def reference(model, folder):
    """By torch: writes images, a frame, and the scores that they have to have."""
    import torch

    torch.manual_seed(5)
    network = torch.jit.load(model, map_location="cuda").eval()
    # Noise alone would always get about the same scores.
    ramp = torch.linspace(-2, 2, SHAPE[-1])
    plain = [torch.full(SHAPE[1:], 1.0), ramp.expand(SHAPE[1:]), ramp.view(1, -1, 1).expand(SHAPE[1:])]
    images = torch.stack(plain + [torch.randn(SHAPE[1:]) * scale for scale in (0.3, 1, 3)])
    frame = torch.randint(0, 256, FRAME, dtype=torch.uint8)
    frame[:, : FRAME[1] // 2, 0] = 200
    small = torch.nn.functional.interpolate(frame.permute(2, 0, 1)[None].float(), SHAPE[2:], mode="bilinear")
    mean = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
    deviation = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)
    with torch.no_grad():
        scores = [network(one.cuda()).cpu() for one in [*images[:, None], (small / 255 - mean) / deviation]]
    for name, tensor in (("images", images), ("frame", frame), ("scores", torch.stack(scores))):
        tensor.contiguous().numpy().tofile(os.path.join(folder, name))


def read_reference(folder):
    """Images, their scores, a frame, and its scores."""
    import numpy

    kinds = {"images": numpy.float32, "scores": numpy.float32, "frame": numpy.uint8}
    images, scores, frame = (numpy.fromfile(os.path.join(folder, name), kind) for name, kind in kinds.items())
    scores = scores.reshape(IMAGES + 1, 1, CLASSES)
    for i in range(IMAGES + 1):
        for other in scores[i + 1:]:
            expect(abs(scores[i] - other).max() > 2 * CLOSE * abs(scores[i]).max(), "another image has other scores")
    return images.reshape(IMAGES, *SHAPE), scores[:-1], frame.reshape(FRAME), scores[-1]


def check_scores(got, wanted, what):
    expect(got is not None and got.shape == wanted.shape, f"{what}: {wanted.shape} scores")
    far = abs(got - wanted).max() / abs(wanted).max()
    expect(far < CLOSE, f"{what}: {far:.1e} off")  # NaN is not less


def input_of(module, name, values):
    kinds = {"float32": "FP32", "uint8": "UINT8"}
    one = module.InferInput(name, list(values.shape), kinds[str(values.dtype)])
    one.set_data_from_numpy(values)
    return one


def check_messages(module, client, images, scores, frame, frame_scores, what):
    for image, wanted in zip(images, scores):
        answer = client.infer(MODEL, [input_of(module, "input0", image)])
        check_scores(answer.as_numpy("output0"), wanted, what)
    answer = client.infer(MODEL + "_image", [input_of(module, "image", frame)])
    check_scores(answer.as_numpy("output0"), frame_scores, what + ", a raw image")


def check_regions(module, client, images, scores, what):
    """Images and scores lie in GPU memory of this process: both of them, the image alone, the scores alone."""
    import numpy
    from tritonclient.utils import cuda_shared_memory as cuda

    sizes = {"source": images[0].nbytes, "target": scores[0].nbytes}
    memory = {name: cuda.create_shared_memory_region(name, size, 0) for name, size in sizes.items()}
    for name, handle in memory.items():
        client.register_cuda_shared_memory(name, cuda.get_raw_handle(handle), 0, sizes[name])
    ways = [(True, True), (True, False), (False, True)]
    for number, (image, wanted) in enumerate(zip(images, scores)):
        x, y = input_of(module, "input0", image), module.InferRequestedOutput("output0")
        from_gpu, to_gpu = ways[number % len(ways)]
        if from_gpu:
            cuda.set_shared_memory_region(memory["source"], [image])
            x = module.InferInput("input0", SHAPE, "FP32")
            x.set_shared_memory("source", sizes["source"])
        if to_gpu:
            cuda.set_shared_memory_region(memory["target"], [numpy.zeros_like(wanted)])
            y.set_shared_memory("target", sizes["target"])
        answer = client.infer(MODEL, [x], outputs=[y])
        in_place = (memory["target"], numpy.float32, list(wanted.shape))
        got = cuda.get_contents_as_numpy(*in_place) if to_gpu else answer.as_numpy("output0")
        check_scores(got, wanted, f"{what}, CUDA shared memory, image {number}")
    client.unregister_cuda_shared_memory()


async def many_at_once(module, where, images, scores, what):
    async with module.InferenceServerClient(where) as client:
        inputs = [input_of(module, "input0", each) for each in images] * 4
        answers = await asyncio.gather(*(client.infer(MODEL, [one]) for one in inputs))
    for answer, wanted in zip(answers, [*scores] * 4):
        check_scores(answer.as_numpy("output0"), wanted, what)


def talk(folder, *places):
    import tritonclient.grpc
    import tritonclient.grpc.aio
    import tritonclient.http
    import tritonclient.http.aio

    images, scores, frame, frame_scores = read_reference(folder)
    modules = (tritonclient.http, tritonclient.grpc) * (len(places) // 2)
    for module, where in zip(modules, places):
        what = f"{module.__name__} at {where}"
        with module.InferenceServerClient(where) as client:
            expect(client.is_model_ready(MODEL), f"{what}: the model is ready")
            check_messages(module, client, images, scores, frame, frame_scores, what)
            check_regions(module, client, images, scores, what)
        asyncio.run(many_at_once(module.aio, where, images, scores, what + ", aio"))
        print(f"{what}: right", flush=True)


def torch_python():
    """A python whose torch sees a GPU, or None."""
    ask = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    for each in {sys.executable: 0, shutil.which("python3"): 0}:
        if each and subprocess.run([each, "-c", ask], stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return each
    return None


def model_file(python, export, folder):
    """The file of the folder ACCEL_MODELS, or one that is made for this test."""
    there = os.path.join(os.environ.get("ACCEL_MODELS", folder), MODEL + ".pt")
    if os.path.exists(there):
        return there
    subprocess.run([python, export, "--out", folder, "--only", MODEL], check=True, timeout=STARTING)
    return os.path.join(folder, MODEL + ".pt")


def main():
    if sys.argv[1] in ("talk", "reference"):
        {"talk": talk, "reference": reference}[sys.argv[1]](*sys.argv[2:])
        return 0
    gateway, server, with_torch, export = sys.argv[1:]
    if with_torch != "ON":
        print("skipped: model_server is built without LibTorch (ACCEL_EXAMPLES_TORCH)")
        return SKIPPED
    python = torch_python()
    if python is None:
        print("skipped: there is no GPU, or no PyTorch that sees it")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        model = model_file(python, export, folder)
        subprocess.run([python, __file__, "reference", model, folder], check=True, timeout=STARTING)
        with Service(gateway, server, f"{MODEL}={model}", (TCP, f"shm://{MODEL}_{os.getpid()}"), ("--on", "gpu"),
                     ("--shared-memory", "cuda")) as service:
            places = [each for pair in service.places for each in pair]
            return run_client(__file__, "talk", folder, *places, timeout=200, further=["cuda-bindings"])


if __name__ == "__main__":
    sys.exit(main())
