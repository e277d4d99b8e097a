# SPDX-License-Identifier: Apache-2.0
"""TLS and bearer tokens of the gRPC door, with a stock tritonclient[grpc] from PyPI. Skipped where PyPI is out of
reach."""
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile

from check_tls import TOKEN, Files, told, wait_until, write
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


def stay(address, certificate):
    """One connection, and a call for each line. Its client knows this certificate alone."""
    from tritonclient import grpc
    with grpc.InferenceServerClient(address, ssl=True, root_certificates=certificate) as client:
        for _ in sys.stdin:
            print(client.is_server_live(), flush=True)


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def check_certificate(pair, files, address, errors, python):
    """New connections get the new certificate, old ones go on; where a file is not good, nothing changes."""
    host, port = address.split(":")
    shown = lambda: ssl.get_server_certificate((host, int(port)))
    with subprocess.Popen([python, __file__, "stay", address, files.certificate], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as old:
        def is_live():
            old.stdin.write("\n")
            old.stdin.flush()
            return old.stdout.readline() == "True\n"
        expect(is_live(), "the old connection")
        for _ in range(2):
            before = text_of(files.certificate)
            Files(os.path.dirname(files.certificate))
            wait_until(lambda: shown() == text_of(files.certificate), "the changed certificate is read")
            expect(shown() != before and is_live(), "the old connection goes on")
        good, key = text_of(files.certificate), text_of(files.key)
        with tempfile.TemporaryDirectory() as folder:
            another = text_of(Files(folder).key)
        for path, text, mode in [(files.certificate, "no certificate", 0o600), (files.key, another, 0o600),
                                 (files.certificate, good, 0o600), (files.key, "no key", 0o600),
                                 (files.key, key, 0o644)]:
            count = told(errors)
            write(path, text, mode)
            wait_until(lambda: told(errors) > count, f"it says that {path} is not good")
            expect(shown() == good and is_live(), "a file that is not good changes nothing")
        os.chmod(files.key, 0o600)
        old.stdin.close()


def main():
    if sys.argv[1] in CLIENTS:
        CLIENTS[sys.argv[1]](*sys.argv[2:])
        return 0
    if not shutil.which("openssl"):
        print("there is no openssl")
        return SKIPPED
    python = client_python()
    if python is None:
        print("skipped: PyPI is out of reach, and tritonclient comes from there")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as errors:
        files = Files(folder)
        with Pair(*sys.argv[1:3], "--grpc", "0.0.0.0:0", *files.tls, "--tokens", files.tokens, doors=("grpc",),
                  errors=errors) as pair:
            address = "127.0.0.1:" + pair.address.rsplit(":", 1)[1]
            talk_to = lambda token: subprocess.run([python, __file__, "talk", address, files.certificate, token],
                                                   check=False, timeout=100).returncode == 0
            expect(talk_to(TOKEN), "the client is content")
            write(files.tokens, "second")
            pair.door.send_signal(signal.SIGHUP)
            wait_until(lambda: talk_to("second"), "SIGHUP: the tokens are read again")
            expect(not talk_to(TOKEN), "the old token")
            check_certificate(pair, files, address, errors, python)
            expect(talk_to(TOKEN), "a client that knows the last certificate, and a token of the last file")
            for options in ((), files.tls, ("--tokens", files.tokens)):
                said = pair.refusal("--grpc", "0.0.0.0:0", *options)
                expect("reachable from other machines" in said, f"{options}: {said}")
    return 0


CLIENTS = {"talk": talk, "stay": stay}

if __name__ == "__main__":
    sys.exit(main())
