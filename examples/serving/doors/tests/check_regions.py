# SPDX-License-Identifier: Apache-2.0
"""System shared memory of stock tritonclients (http, grpc and both aio) through a door, and clients that cheat with it:
they shorten it, leave it, and name what is not theirs. Skipped where PyPI is out of reach."""
import asyncio
import importlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import time

from check_grpc_streams import Stream
from client_environment import SKIPPED, client_python
from pair import PATIENT, Pair, expect

BYTES = 32  # of the model's eight floats, either way
FOLDER = "/dev/shm/"


class Memory:
    """A shared memory object with room for `places` tensors."""

    def __init__(self, name, places=4):
        from tritonclient.utils import shared_memory
        self.tools = shared_memory
        self.key = f"/accel_door_{os.getpid()}_{name}"
        self.bytes = places * BYTES
        self.handle = shared_memory.create_shared_memory_region(name, self.key, self.bytes)

    def put(self, values, offset=0):
        self.tools.set_shared_memory_region(self.handle, [values], offset)

    def get(self, offset=0):
        import numpy
        return self.tools.get_contents_as_numpy(self.handle, numpy.float32, [8], offset).copy()

    def resize(self, size):
        os.truncate(FOLDER + self.key[1:], size)

    def end(self):
        self.tools.destroy_shared_memory_region(self.handle)


def tensors(kind, source=None, target=None):
    """Input and output in regions: (name, offset[, byte_size]). None: within the messages."""
    import numpy
    x = kind.InferInput("x", [8], "FP32")
    if source:
        x.set_shared_memory(source[0], source[2] if len(source) > 2 else BYTES, source[1])
    else:
        x.set_data_from_numpy(numpy.full(8, 3, numpy.float32))
    y = kind.InferRequestedOutput("y")
    if target:
        y.set_shared_memory(target[0], target[2] if len(target) > 2 else BYTES, target[1])
    return [x], [y]


def refused(word, call):
    from tritonclient import utils
    try:
        call()
    except utils.InferenceServerException as failure:
        expect(word in failure.message(), f"'{word}' is said: {failure}")
        return
    expect(False, f"'{word}' is refused")


def check_ways(kind, client, memory):
    import numpy
    values = numpy.arange(8, dtype=numpy.float32) + 0.5
    memory.put(values, 0)
    memory.put(3 * values, BYTES)
    client.infer("double", *tensors(kind, ("r", BYTES), ("r", 2 * BYTES))[:1],
                 outputs=tensors(kind, None, ("r", 2 * BYTES))[1])
    expect((memory.get(2 * BYTES) == 6 * values).all(), "from one place of the region to another")
    x, y = tensors(kind, ("r", 0))
    expect((client.infer("double", x, outputs=y).as_numpy("y") == 2 * values).all(), "from the region to the message")
    x, y = tensors(kind, None, ("r", 3 * BYTES))
    client.infer("double", x, outputs=y)
    expect((memory.get(3 * BYTES) == 6).all(), "from the message to the region")


def check_streams(grpc, client, memory):
    """ModelStreamInfer takes inputs out of regions. Answers in one piece go there; parts would hide each other."""
    import numpy
    x, y = tensors(grpc, ("r", 0), ("r", BYTES))
    memory.put(numpy.array([3, 10, 0, 0, 0, 0, 0, 0], numpy.float32), 0)
    with Stream(client) as stream:
        for first in (3, 4):
            memory.put(numpy.array([first, 10, 0, 0, 0, 0, 0, 0], numpy.float32), 0)
            stream.ask("double", x, outputs=y)
            _, error = stream.until_final()
            expect(not error and memory.get(BYTES)[0] == 2 * first, f"an answer in the region: {error}")
            stream.ask("parts", x, enable_empty_final_response=True)
            results, error = stream.until_final()
            expect([one.as_numpy("y")[0] for one in results[:-1]] == list(range(10, 10 + first)), f"parts: {error}")
            stream.ask("parts", x, outputs=y)
            _, error = stream.until_final()
            expect("cannot go into shared memory" in str(error), f"parts have no region: {error}")
            stream.ask("double", tensors(grpc, ("nobody", 0))[0])
            _, error = stream.until_final()
            expect("no region 'nobody'" in str(error), f"an unknown region: {error}")
    client.unregister_system_shared_memory("r")
    client.register_system_shared_memory("r", memory.key, memory.bytes)


def status_of(client):
    """The regions as {name: (key, offset, bytes)}."""
    status = client.get_system_shared_memory_status()
    if isinstance(status, list):
        return {one["name"]: (one["key"], one["offset"], one["byte_size"]) for one in status}
    return {name: (one.key, one.offset, one.byte_size) for name, one in status.regions.items()}


def check_table(kind, client, memory):
    client.register_system_shared_memory("part", memory.key, BYTES, offset=BYTES)
    client.register_system_shared_memory("odd", memory.key.lstrip("/"), 7, offset=1)
    expect(status_of(client) == {"r": (memory.key, 0, memory.bytes), "part": (memory.key, BYTES, BYTES),
                                 "odd": (memory.key.lstrip("/"), 1, 7)}, f"the status: {status_of(client)}")
    client.get_system_shared_memory_status("odd")
    refused("no system region", lambda: client.get_system_shared_memory_status("nobody"))
    x, y = tensors(kind, ("part", 0), ("part", 0))
    client.infer("double", x, outputs=y)
    client.unregister_system_shared_memory("part")
    client.unregister_system_shared_memory("nobody")
    refused("no region 'part'", lambda: client.infer("double", x, outputs=y))
    client.unregister_system_shared_memory()
    expect(status_of(client) == {}, "all are gone")
    client.register_system_shared_memory("r", memory.key, memory.bytes)


def check_registrations(client, memory):
    most = 2**63
    for word, name, key, size, offset in [
        ("registered already", "r", memory.key, BYTES, 0),
        ("bytes, but the region ends", "a", memory.key, memory.bytes + 4096, 0),
        ("bytes, but the region ends", "a", memory.key, memory.bytes, 4096),
        ("beyond any memory", "a", memory.key, 2 * most - 8, 16),
        ("beyond any memory", "a", memory.key, 16, most),
        ("at least 1 byte", "a", memory.key, 0, 0),
        ("all regions together", "a", memory.key, 2**40, 0),
        ("cannot be opened", "a", "/accel_door_nothing", BYTES, 0),
        ("is not a valid name", "a", "", BYTES, 0),
        ("is not a valid name", "a", "/../../etc/passwd", BYTES, 0),
        ("is not a valid name", "a", "..", BYTES, 0),
        ("is not a valid name", "a", "/a/b", BYTES, 0),
        ("is not a valid name", "a", memory.key + "\0", BYTES, 0),
        ("is not a valid name", "a", "/" + "x" * 250 + "/", BYTES, 0),
    ]:
        refused(word, lambda n=name, k=key, s=size, o=offset: client.register_system_shared_memory(n, k, s, o))
    refused("accepts no CUDA shared memory", lambda: client.get_cuda_shared_memory_status())


def check_owners(client, memory):
    """Whose memory a door does not touch."""
    folder = f"accel_door_{os.getpid()}_folder"
    link = f"accel_door_{os.getpid()}_link"
    os.mkdir(FOLDER + folder)
    os.symlink("/etc/passwd", FOLDER + link)
    try:
        refused("cannot be opened", lambda: client.register_system_shared_memory("a", folder, 16))
        refused("cannot be opened", lambda: client.register_system_shared_memory("a", link, 16))
    finally:
        os.rmdir(FOLDER + folder)
        os.unlink(FOLDER + link)
    if os.geteuid() != 0:
        return
    path = FOLDER + memory.key[1:]
    os.chown(path, 12345, 12345)
    refused("belongs to another user", lambda: client.register_system_shared_memory("a", memory.key, BYTES))
    os.chmod(path, 0o666)
    client.register_system_shared_memory("a", memory.key, BYTES)
    client.unregister_system_shared_memory("a")
    os.chown(path, 0, 0)


def check_parts(kind, client, memory):
    most = 2**63 - 1
    for word, source, target in [
        ("no region 'nobody'", ("nobody", 0), None),
        ("no region 'nobody'", None, ("nobody", 0)),
        ("shared_memory_byte_size must be 32", ("r", 0, 28), None),
        ("must be 32, not 64", ("r", 0, 64), None),
        ("are not within it", ("r", memory.bytes - BYTES + 1), None),
        ("are not within it", ("r", most), None),
        ("are not within it", None, ("r", most)),
        ("are not within it", None, ("r", 8, most)),
        ("output 'y' has 32 bytes", None, ("r", 0, 28)),
    ]:
        x, y = tensors(kind, source, target)
        refused(word, lambda x=x, y=y: client.infer("double", x, outputs=y))


def infer_slowly(kind, client, x, y, meanwhile):
    """A call, and what happens while it is at the model's server. Returns its failure, if any."""
    import numpy
    one = kind.InferInput("x", [8], "FP32")
    one.set_data_from_numpy(numpy.ones(8, numpy.float32))

    def during():
        client.infer("caught", [one])
        meanwhile()
        client.infer("release", [one])

    if kind.__name__.endswith("grpc"):
        seen = queue.Queue()
        client.async_infer("held", x, outputs=y, callback=lambda result, error: seen.put(error))
        during()
        return seen.get(timeout=60)
    from tritonclient import utils
    pending = client.async_infer("held", x, outputs=y)
    during()
    try:
        pending.get_result()
    except utils.InferenceServerException as failure:
        return failure
    return None


def check_leaving(kind, client, memory):
    """Unregistered during a call: the call ends as it would have."""
    import numpy
    memory.put(numpy.full(8, 5, numpy.float32))
    x, y = tensors(kind, ("r", 0), ("r", BYTES))
    failure = infer_slowly(kind, client, x, y, lambda: client.unregister_system_shared_memory("r"))
    expect(failure is None and (memory.get(BYTES) == 10).all(), f"the region lives until the answer: {failure}")
    client.register_system_shared_memory("r", memory.key, memory.bytes)


def check_shortened(kind, client, memory):
    """Memory that its owner takes away before a call, and during one."""
    x, y = tensors(kind, ("r", 0), ("r", BYTES))
    failure = infer_slowly(kind, client, x, y, lambda: memory.resize(0))
    expect(failure is not None and "short" in str(failure), f"no room for the answer: {failure}")
    for _ in range(3):
        refused("short", lambda: client.infer("double", x, outputs=y))
    expect(os.stat(FOLDER + memory.key[1:]).st_size == 0, "the door does not lengthen it")
    memory.resize(memory.bytes)
    client.unregister_system_shared_memory("r")
    client.register_system_shared_memory("r", memory.key, memory.bytes)
    check_ways(kind, client, memory)


def check_flicker(kind, client, memory):
    """Memory that comes and goes while calls use it: each is right, or refused."""
    import threading
    from tritonclient import utils
    end = threading.Event()

    def flicker():
        while not end.is_set():
            memory.resize(0)
            memory.resize(memory.bytes)

    thread = threading.Thread(target=flicker)
    thread.start()
    x, y = tensors(kind, ("r", 0), ("r", BYTES))
    for _ in range(100):
        try:
            client.infer("double", x, outputs=y)
        except utils.InferenceServerException as failure:
            expected = ("short" in failure.message(), "no region 'r'" in failure.message())
            expect(any(expected), f"the sentence: {failure}")
            client.unregister_system_shared_memory("r")
            try:
                client.register_system_shared_memory("r", memory.key, memory.bytes)
            except utils.InferenceServerException as failure:
                expect("the region ends at" in failure.message(), f"the sentence: {failure}")
    end.set()
    thread.join()
    client.unregister_system_shared_memory("r")
    client.register_system_shared_memory("r", memory.key, memory.bytes)


def check_many(client, memory):
    """Regions are few, and those that are gone make room."""
    for n in range(255):
        client.register_system_shared_memory(f"many{n}", memory.key, BYTES)
    refused("already 256 regions", lambda: client.register_system_shared_memory("more", memory.key, BYTES))
    client.unregister_system_shared_memory()
    client.register_system_shared_memory("r", memory.key, memory.bytes)


async def talk_in_a_loop(kind, address, memory):
    import numpy
    client = kind.InferenceServerClient(address)
    memory.put(numpy.ones(8, numpy.float32))
    await client.register_system_shared_memory("loop", memory.key, memory.bytes)
    x, y = tensors(kind, ("loop", 0), ("loop", BYTES))
    await client.infer("double", x, outputs=y)
    expect((memory.get(BYTES) == 2).all(), "aio")
    await client.unregister_system_shared_memory("loop")
    await client.close()


def talk(protocol, address):
    kind = importlib.import_module(f"tritonclient.{protocol}")
    memory = Memory("one")
    try:
        client = kind.InferenceServerClient(address, **({"concurrency": 2} if protocol == "http" else {}))
        client.register_system_shared_memory("r", memory.key, memory.bytes)
        check_ways(kind, client, memory)
        check_table(kind, client, memory)
        check_registrations(client, memory)
        check_owners(client, memory)
        check_parts(kind, client, memory)
        if protocol == "grpc":
            check_streams(kind, client, memory)
        check_leaving(kind, client, memory)
        check_shortened(kind, client, memory)
        check_flicker(kind, client, memory)
        check_many(client, memory)
        check_ways(kind, client, memory)
        asyncio.run(talk_in_a_loop(importlib.import_module(f"tritonclient.{protocol}.aio"), address, memory))
        client.close()
    finally:
        memory.end()


def not_allowed(protocol, address):
    """A door that was not told to trust clients of its host."""
    kind = importlib.import_module(f"tritonclient.{protocol}")
    client = kind.InferenceServerClient(address)
    for call in (lambda: client.register_system_shared_memory("r", "/x", BYTES),
                 lambda: client.get_system_shared_memory_status(),
                 lambda: client.get_cuda_shared_memory_status(),
                 lambda: client.infer("double", *tensors(kind, ("r", 0))[:1])):
        refused("accepts no shared memory", call)
    client.unregister_system_shared_memory()
    client.unregister_cuda_shared_memory("r")
    client.close()


def talk_at_both(http_address, grpc_address):
    """Both doors of a gateway have one table, and the limits of its configuration: two regions of a page together."""
    import numpy
    from tritonclient import grpc, http
    memory = Memory("both")
    try:
        one, other = http.InferenceServerClient(http_address), grpc.InferenceServerClient(grpc_address)
        for extensions in (one.get_server_metadata()["extensions"], other.get_server_metadata().extensions):
            expect("system_shared_memory" in extensions and "cuda_shared_memory" not in extensions, f"{extensions}")
        one.register_system_shared_memory("r", memory.key, memory.bytes)
        expect(status_of(other) == {"r": (memory.key, 0, memory.bytes)}, f"the other door's: {status_of(other)}")
        memory.put(numpy.ones(8, numpy.float32))
        x, y = tensors(grpc, ("r", 0), ("r", BYTES))
        other.infer("double", x, outputs=y)
        expect((memory.get(BYTES) == 2).all(), "a region that the other door has registered")
        refused("registered already", lambda: other.register_system_shared_memory("r", memory.key, BYTES))
        refused("all regions together", lambda: other.register_system_shared_memory("a", memory.key, 4096))
        other.register_system_shared_memory("last", memory.key, BYTES)
        refused("already 2 regions", lambda: one.register_system_shared_memory("more", memory.key, BYTES))
        other.unregister_system_shared_memory()
        expect(status_of(one) == {}, "all are gone")
    finally:
        memory.end()


def run_client(python, what, *arguments):
    done = subprocess.run([python, __file__, what, *arguments], check=False, timeout=100)
    expect(done.returncode == 0, f"{what} {arguments}")


def check_both_doors(python, gateway, server):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "door.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"shared_memory": "system", "limits": {"regions": 2, "region_bytes": 4096}}, file)
        with Pair(gateway, server, "--config", path, doors=("http", "grpc")) as pair:
            run_client(python, "talk_at_both", address_of(pair, "http"), address_of(pair, "grpc"))


def address_of(pair, protocol):
    return pair.address if protocol == "grpc" else pair.url.removeprefix("http://")


def main():
    clients = {"talk": talk, "not_allowed": not_allowed, "talk_at_both": talk_at_both}
    if sys.argv[1] in clients:
        clients[sys.argv[1]](*sys.argv[2:])
        return 0
    gateway, server, protocol = sys.argv[1:4]
    python = client_python()
    if python is None:
        print("skipped: PyPI is out of reach, and tritonclient comes from there")
        return SKIPPED
    if protocol == "both":
        check_both_doors(python, gateway, server)
        return 0
    # The first reads regions with system calls, the second is lent them.
    for uri in (f"tcp://127.0.0.1:0?insecure=true&{PATIENT}", f"shm://door_{os.getpid()}?{PATIENT}"):
        with Pair(gateway, server, "--shared-memory", "system", doors=(protocol,), uri=uri) as pair:
            run_client(python, "talk", protocol, address_of(pair, protocol))
    with Pair(gateway, server, doors=(protocol,)) as pair:
        run_client(python, "not_allowed", protocol, address_of(pair, protocol))
    return 0


if __name__ == "__main__":
    sys.exit(main())
