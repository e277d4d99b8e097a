# SPDX-License-Identifier: Apache-2.0
"""CUDA shared memory through the HTTP door, with the driver's library alone (libcuda): a tensor in GPU memory goes to
the model, and the answer comes back there. Skipped without a GPU."""
import base64
import ctypes
import json
import struct
import sys

from pair import Pair, expect

SKIPPED = 77
BYTES = 32
ROOM = 4096


class Gpu:
    """The first GPU, and a block of its memory. OSError: there is none."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.memory = ctypes.c_uint64()
        self._do("cuInit", 0)
        self._do("cuDeviceGet", ctypes.byref(device), 0)
        self._do("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._do("cuCtxSetCurrent", context)
        self._do("cuMemAlloc_v2", ctypes.byref(self.memory), ctypes.c_size_t(ROOM))

    def _do(self, name, *arguments):
        code = getattr(self.cuda, name)(*arguments)
        if code != 0:
            raise OSError(f"{name}: {code}")

    def handle(self):
        out = ctypes.create_string_buffer(64)
        self._do("cuIpcGetMemHandle", out, self.memory)
        return out.raw

    def put(self, offset, values):
        data = struct.pack(f"<{len(values)}f", *values)
        self._do("cuMemcpyHtoD_v2", ctypes.c_uint64(self.memory.value + offset), data, ctypes.c_size_t(len(data)))

    def get(self, offset, count):
        out = ctypes.create_string_buffer(4 * count)
        self._do("cuMemcpyDtoH_v2", out, ctypes.c_uint64(self.memory.value + offset), ctypes.c_size_t(4 * count))
        return list(struct.unpack(f"<{count}f", out.raw))


def ask(pair, method, path, document=None):
    body = json.dumps(document).encode() if document is not None else b""
    with pair.connect() as connection:
        head = f"{method} {path} HTTP/1.1\r\nHost: door\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        status, _, answer = connection.ask(head + body)
    return status, json.loads(answer) if answer else None


def place(offset, size=BYTES):
    return {"shared_memory_region": "g", "shared_memory_offset": offset, "shared_memory_byte_size": size}


def infer(pair, source, target):
    x = {"name": "x", "datatype": "FP32", "shape": [8]}
    x.update({"data": [3.0] * 8} if source is None else {"parameters": place(source)})
    y = {"name": "y", "parameters": {} if target is None else place(target)}
    return ask(pair, "POST", "/v2/models/double/infer", {"inputs": [x], "outputs": [y]})


def check(pair, gpu):
    folder = "/v2/cudasharedmemory/region/g/"
    wanted = {"raw_handle": {"b64": base64.b64encode(gpu.handle()).decode()}, "device_id": 0, "byte_size": ROOM}
    status, answer = ask(pair, "POST", folder + "register", wanted)
    expect(status == 200, f"it is registered: {answer}")
    status, answer = ask(pair, "GET", folder + "status")
    expect(answer == [{"name": "g", "device_id": 0, "byte_size": ROOM}], f"its status: {answer}")
    gpu.put(0, [float(n) for n in range(8)])
    for target in (1024, 2048):
        status, answer = infer(pair, 0, target)
        expect(status == 200, f"GPU to GPU: {answer}")
        expect(gpu.get(target, 8) == [2.0 * n for n in range(8)], f"the answer on the GPU: {gpu.get(target, 8)}")
    status, answer = infer(pair, None, 512)
    expect(status == 200 and gpu.get(512, 8) == [6.0] * 8, f"from a message to the GPU: {answer}")
    status, answer = infer(pair, 0, None)
    expect(answer["outputs"][0]["data"] == [2.0 * n for n in range(8)], f"from the GPU to a message: {answer}")
    expect(infer(pair, ROOM - 16, None)[0] == 400, "a part that ends behind the region")
    wanted["raw_handle"]["b64"] = base64.b64encode(bytes(64)).decode()
    expect(ask(pair, "POST", "/v2/cudasharedmemory/region/h/register", wanted)[0] == 400, "a handle of nothing")
    expect(ask(pair, "POST", folder + "unregister")[0] == 200, "it is unregistered")
    expect(infer(pair, 0, None)[0] == 400, "and gone")


def main():
    try:
        gpu = Gpu()
    except OSError as why:
        print(f"skipped: there is no GPU ({why})")
        return SKIPPED
    with Pair(*sys.argv[1:3], "--shared-memory", "cuda") as pair:
        check(pair, gpu)
    return 0


if __name__ == "__main__":
    sys.exit(main())
