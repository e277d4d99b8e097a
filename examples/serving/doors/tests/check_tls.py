# SPDX-License-Identifier: Apache-2.0
"""TLS and bearer tokens: who comes in, who does not, and that a door is not open to other machines by mistake."""
import json
import os
import shutil
import signal
import ssl
import struct
import subprocess
import sys
import tempfile
import time

from check_mistakes import LEAVERS, check_continue, check_keep_alive, check_leavers
from pair import Connection, Pair, binary_request, expect, post

TOKEN = "0123456789abcdef"
VALUES = list(range(8))


def write(path, text, mode=0o600):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, mode)
    return path


class Files:
    """A certificate for 127.0.0.1, its key, and tokens."""

    def __init__(self, folder):
        self.certificate, self.key = os.path.join(folder, "certificate"), os.path.join(folder, "key")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-days", "2", "-subj", "/CN=door", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout",
                        self.key, "-out", self.certificate], check=True, stderr=subprocess.DEVNULL)
        os.chmod(self.key, 0o600)
        self.tokens = write(os.path.join(folder, "tokens"), f"# of a test\nanother\n\n{TOKEN}\n")
        self.tls = ("--tls-certificate", self.certificate, "--tls-key", self.key)


def curl(*arguments):
    """(exit status, HTTP status, header and body)."""
    done = subprocess.run(["curl", "-s", "-i", "-m", "20", *arguments], stdout=subprocess.PIPE, check=False)
    words = done.stdout.split(maxsplit=2)
    return done.returncode, int(words[1]) if len(words) > 1 else 0, done.stdout.decode(errors="replace")


def check_curl(pair, files):
    known = ("--cacert", files.certificate)
    bearer = lambda token: ("-H", f"Authorization: {token}")
    metadata = pair.url + "/v2/models/double"
    expect(pair.url.startswith("https://"), pair.url)
    for scheme in ("Bearer", "bearer"):
        expect(curl(*known, *bearer(f"{scheme} {TOKEN}"), metadata)[:2] == (0, 200), f"a good token, {scheme}")
    for wrong in (f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN, "Bearer # of a test", "Bearer",
                  "Bearer " + "x" * 300):
        _, status, text = curl(*known, *bearer(wrong), metadata)
        expect(status == 401 and 'WWW-Authenticate: Bearer error="invalid_token"' in text, f"{wrong}: {text}")
    for path in ("/v2/models/double", "/v2", "/v2/models/nobody", "/nothing", "/v2/models/stats",
                 "/v2/models/double/ready"):
        _, status, text = curl(*known, pair.url + path)
        expect(status == 401 and "WWW-Authenticate: Bearer\r\n" in text, f"{path} without a token: {text}")
    status, text = curl(*known, "-d", "{}", pair.url + "/v2/models/double/infer")[1:]
    expect(status == 401 and '{"error":' in text, f"no inference without a token: {text}")
    for path in ("/v2/health/live", "/v2/health/ready"):
        expect(curl(*known, pair.url + path)[:2] == (0, 200), f"{path} is open")
    expect(curl(metadata)[0] == 60, "curl does not know the certificate by itself")
    expect(curl(*known, "--tls-max", "1.2", pair.url + "/v2/health/live")[:2] == (0, 200), "TLS 1.2")
    expect(curl(*known, "--tlsv1.0", "--tls-max", "1.1", "--ciphers", "DEFAULT@SECLEVEL=0",
                pair.url + "/v2/health/live")[0] == 35, "no TLS 1.1")
    raw = os.path.join(pair.folder.name, "raw")
    with open(raw, "wb") as file:
        file.write(struct.pack("<8f", *VALUES))
    _, status, text = curl(*known, *bearer(f"Bearer {TOKEN}"), "-H", "Inference-Header-Content-Length: 0",
                           "--data-binary", "@" + raw, metadata + "/infer")
    expect(status == 200 and "[0,2,4" in text, f"an inference: {text}")


def check_no_handshake(pair):
    with Connection(pair.port) as plain:
        status, _, body = plain.ask(b"GET /v2 HTTP/1.1\r\nHost: d\r\n\r\n")
        expect(status == 400 and "https://" in json.loads(body)["error"], f"HTTP without TLS: {status} {body}")
        plain.socket.shutdown(1)
        expect(plain.closed(), "closed behind it")
    with Connection(pair.port) as noise:
        noise.send(b"\x80" * 500)
        while noise.socket.recv(100):
            pass
    began = time.monotonic()
    stalled = [Connection(pair.port) for _ in range(20)]
    for n, one in enumerate(stalled):
        one.send(b"\x16\x03\x01\x02\x00\x01"[:n % 7])
    for one in stalled:
        expect(one.closed(), "a handshake that stalls ends")
        one.socket.close()
    expect(0.3 < time.monotonic() - began, "at its time")


def check_bodies(pair):
    with pair.connect() as one:
        one.send(binary_request("double", VALUES)[:-4])
        expect(one.answer()[0] == 408, "a slow body")
    with pair.connect() as one:
        answer = one.ask(post("double", b"x" * 20_000, ["Inference-Header-Content-Length: 0"], length=10 ** 9))
        expect(answer[0] == 413 and one.closed(), f"too large: {answer}")
    with pair.connect() as one:
        one.send(b"GET /v2 HTTP/1.1\r\nHost: d\r\nConnection: close\r\n\r\n")
        expect(one.answer()[0] == 200, "the last answer")
        one.socket.suppress_ragged_eofs = False
        expect(one.closed(), "TLS says that nothing follows")


def check_refusals(pair, files):
    public = ("--http", "0.0.0.0:0")
    for options, words in [((), ("--tls-certificate, --tls-key and --tokens", "--insecure")),
                           (files.tls, ("give --tokens,",)),
                           (("--tokens", files.tokens), ("give --tls-certificate and --tls-key,",))]:
        said = pair.refusal(*public, *options)
        expect(said.count("\n") == 1 and all(w in said for w in words), f"reached by others: {said}")
    local = ("--http", "127.0.0.1:0")
    folder = pair.folder.name
    certificate = write(os.path.join(folder, "other"), "no certificate\n")
    with open(files.key, encoding="utf-8") as file:
        key = file.read()
    for options, words in [
        (("--tokens", write(os.path.join(folder, "a"), TOKEN, 0o604)), "chmod 600"),
        (("--tokens", write(os.path.join(folder, "b"), "# none\n")), "no token"),
        (("--tokens", write(os.path.join(folder, "c"), "good\ntwo words\n")), "line 2"),
        (("--tokens", folder), "is not a file"),
        (("--tokens", os.path.join(folder, "nothing")), "cannot be read"),
        (("--tls-certificate", files.certificate, "--tls-key", write(os.path.join(folder, "d"), key, 0o644)), "chmod"),
        (("--tls-certificate", certificate, "--tls-key", files.key), "other is not a valid certificate"),
        (("--tls-certificate", files.certificate, "--tls-key", write(os.path.join(folder, "e"), "-")),
         "e is not a valid key"),
        (("--tls-certificate", files.certificate), "--tls-key"),
    ]:
        said = pair.refusal(*local, *options)
        expect(words in said, f"{options}: {said}")


def check_configuration(pair, files):
    """The file says it all, but options win, also over its models of the same name."""
    folder = pair.folder.name
    tensors = lambda name: [{"name": name, "datatype": "FP32", "shape": [8]}]
    model = {"uri": "tcp://127.0.0.1:1", "target": "double", "inputs": tensors("x"), "outputs": tensors("y")}
    document = {"http": "127.0.0.1:1", "models": {"twice": model, "again": {**model, "uri": pair.uri}},
                "tls": {"certificate": files.certificate, "key": files.key}, "tokens": "list",
                "limits": {"idle_timeout": "2s"}}
    write(os.path.join(folder, "list"), TOKEN)
    path = write(os.path.join(folder, "door.json"), json.dumps(document))
    with pair.another("--config", path, "--http", "127.0.0.1:0", "--model", "twice=" + pair.uri) as url:
        bearer = ("--cacert", files.certificate, "-H", f"Authorization: Bearer {TOKEN}")
        for name in ("twice", "again"):
            request = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [8], "data": VALUES}]}
            _, status, text = curl(*bearer, "-d", json.dumps(request), f"{url}/v2/models/{name}/infer")
            expect(status == 200 and "[0,2,4" in text, f"{name}: {text}")
        expect(curl(*bearer[:2], url + "/v2")[1] == 401, "the file's tokens")
    said = pair.refusal("--config", write(path, '{"limts": {}}'))
    expect(said == f"gateway: {path}: limts: this key is unknown; the nearest known key is 'limits'\n", said)
    bare = subprocess.run([pair.plain[0], "--http", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True, check=False)
    expect("'models'" in bare.stderr, "a door without models")


def told(errors, what="stay in use"):
    """How often the door has said this: by itself, that files without sense change nothing."""
    return os.pread(errors.fileno(), 1 << 16, 0).count(what.encode())


def wait_until(condition, what):
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    expect(condition(), what)


def check_renewal(programs):
    """Changed files are read again, also at SIGHUP. Where one is not good, all stays as it was."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as errors:
        files = Files(folder)
        context = ssl.create_default_context(cafile=files.certificate)
        with Pair(*programs, *files.tls, "--tokens", files.tokens, context=context, errors=errors) as pair:
            ask = lambda token: curl("--cacert", files.certificate, "-H", f"Authorization: Bearer {token}",
                                     pair.url + "/v2")
            with pair.connect() as old:
                is_live = lambda: old.ask(b"GET /v2/health/live HTTP/1.1\r\nHost: door\r\n\r\n")[0] == 200
                expect(is_live(), "the old connection")
                for count, token in enumerate(("second", "third")):
                    Files(folder)
                    write(files.tokens, token)
                    wait_until(lambda token=token: ask(token)[1] == 200, f"changed files are read: {token}")
                    expect(ask(TOKEN)[1] == 401, "the old token")
                    write(files.tokens, "two words")
                    wait_until(lambda count=count: told(errors) > count, "it says that the tokens are not good")
                    expect(ask(token)[1] == 200 and is_live(), "a file without sense changes nothing")
            write(files.tokens, "fourth")
            pair.door.send_signal(signal.SIGHUP)
            wait_until(lambda: told(errors, "SIGHUP: read the certificate and tokens again") == 1, "SIGHUP is answered")
            expect(ask("fourth")[1] == 200, "SIGHUP: the tokens are read again")


def check_open_to_others(programs, files):
    """With both, or told by name, it listens for all."""
    with Pair(*programs, "--http", "0.0.0.0:0", *files.tls, "--tokens", files.tokens) as pair:
        expect(pair.url.startswith("https://0.0.0.0:"), pair.url)
    with Pair(*programs, "--http", "0.0.0.0:0", "--insecure") as pair:
        expect(pair.url.startswith("http://0.0.0.0:"), pair.url)


def main():
    if not shutil.which("curl") or not shutil.which("openssl"):
        print("there is no curl or no openssl")
        return 77
    programs = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        files = Files(folder)
        context = ssl.create_default_context(cafile=files.certificate)
        with Pair(*programs, *files.tls, "--tokens", files.tokens, "--handshake-timeout", "400ms") as pair:
            check_curl(pair, files)
            check_no_handshake(pair)
            check_refusals(pair, files)
            check_configuration(pair, files)
        with Pair(*programs, *files.tls, "--body-timeout", "500ms", context=context) as pair:
            for check in (check_keep_alive, check_continue, check_leavers, check_bodies):
                check(pair)
                print(check.__name__, "good", flush=True)
        expect(pair.summary["cancelled"] >= LEAVERS, f"calls of leavers are cancelled: {pair.summary}")
        check_open_to_others(programs, files)
        check_renewal(programs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
