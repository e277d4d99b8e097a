# SPDX-License-Identifier: Apache-2.0
"""TLS and bearer tokens of the gRPC door, with a stock tritonclient[grpc] from PyPI. Skipped where PyPI is out of
reach."""
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from check_tls import TOKEN, Files, write
from client_environment import SKIPPED, client_python
from pair import Pair, expect


def refused(word, call):
    from tritonclient import utils
    try:
        call()
    except utils.InferenceServerException as failure:
        expect(word in str(failure), f"'{word}' is said: {failure}")
        return
    expect(False, f"'{word}' is refused")


def talk(address, certificate, token):
    """With a good token everything; without one, whether the door is healthy."""
    import numpy
    from tritonclient import grpc
    client = grpc.InferenceServerClient(address, ssl=True, root_certificates=certificate)
    good = {"authorization": f"Bearer {token}"}
    x = grpc.InferInput("x", [8], "FP32")
    x.set_data_from_numpy(numpy.ones(8, numpy.float32))
    expect((client.infer("double", [x], headers=good).as_numpy("y") == 2).all(), "an inference")
    expect(client.get_server_metadata(headers=good).name == "accel_transport", "the metadata")
    expect(client.is_server_live() and client.is_server_ready(), "health is open to all")
    for call in (lambda **more: client.infer("double", [x], **more), lambda **more: client.get_server_metadata(**more),
                 lambda **more: client.get_system_shared_memory_status(**more)):
        refused("UNAUTHENTICATED] a token is required", call)
        for wrong in (f"Bearer {token}x", f"Bearer {token[:-1]}", f"Basic {token}", token):
            refused("this token is not known", lambda c=call, w=wrong: c(headers={"authorization": w}))
    client.close()
    refused("UNAVAILABLE", grpc.InferenceServerClient(address).get_server_metadata)


def main():
    if len(sys.argv) == 5 and sys.argv[1] == "talk":
        talk(*sys.argv[2:])
        return 0
    if not shutil.which("openssl"):
        print("there is no openssl")
        return SKIPPED
    python = client_python()
    if python is None:
        print("skipped: PyPI is out of reach, and tritonclient comes from there")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        files = Files(folder)
        with Pair(*sys.argv[1:3], "--grpc", "0.0.0.0:0", *files.tls, "--tokens", files.tokens, doors=("grpc",)) as pair:
            address = "127.0.0.1:" + pair.address.rsplit(":", 1)[1]
            talk_to = lambda token: subprocess.run([python, __file__, "talk", address, files.certificate, token],
                                                   check=False, timeout=100).returncode == 0
            expect(talk_to(TOKEN), "the client is content")
            write(files.tokens, "second")
            pair.door.send_signal(signal.SIGHUP)
            deadline = time.monotonic() + 60
            while not talk_to("second") and time.monotonic() < deadline:
                time.sleep(0.02)
            expect(talk_to("second") and not talk_to(TOKEN), "SIGHUP: the tokens are read again")
            for options in ((), files.tls, ("--tokens", files.tokens)):
                said = pair.refusal("--grpc", "0.0.0.0:0", *options)
                expect("reachable from other machines" in said, f"{options}: {said}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
