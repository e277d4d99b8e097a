# SPDX-License-Identifier: Apache-2.0
"""A gateway with doors and the server behind it, for the tests, and HTTP by hand."""
import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile

MODELS = ["double", "slow", "held", "caught", "left", "release", "failing", "short", "nan", "parts", "words", "echo",
          "flood", "reflect", "cut", "traced", "laden", "passing", "empty"]
ECHOED = 16384  # floats


# Nobody dies in most tests: a process that a busy machine holds up is not lost.
PATIENT = "peer_timeout=20s"

LARGE = 1 << 20  # numbers of an answer of `large`


def description(name, size=8):
    size = ECHOED if name == "echo" else size
    tensors = lambda what, count: [{"name": what, "datatype": "FP32", "shape": [count]}]
    texts = lambda what, count: [{"name": what, "datatype": "UINT8", "shape": [count], "text": True}]
    if name in ("words", "flood"):
        longest = 65536 if name == "flood" else 64
        return {"name": name, "decoupled": True, "inputs": texts("text_input", 64),
                "outputs": texts("text_output", longest)}
    if name in ("reflect", "cut"):
        strings = [{"name": "s", "datatype": "BYTES", "shape": [-1], "max_bytes": 4096}]
        numbers = [{"name": "n", "datatype": "FP32", "shape": [-1, 2], "max_bytes": 4096}]
        both = strings + numbers if name == "reflect" else strings
        return {"name": name, "inputs": both, "outputs": both}
    if name == "empty":
        return {"name": name, "inputs": tensors("x", size),
                "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2], "max_bytes": 64}]}
    return {"name": name, "decoupled": name == "parts", "inputs": tensors("x", size),
            "outputs": tensors("y", LARGE if name == "large" else size)}


def first_line(process):
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"a program ended before it was ready: {process.args}")
    return line


def reached(server, uri):
    """Where a server that listens at this URI is reached."""
    return "?".join([first_line(server).split()[1], *uri.split("?")[1:]])


class Pair:
    """A gateway with these doors in front of `server`; both end with the block. `options` are further ones of the
    gateway; with `context`, clients speak TLS. `url` and `port` are the HTTP door's, `address` is gRPC's. `large` of
    the `models` has a channel of its own, with four slots; the others have `slots`."""

    def __init__(self, gateway, server, *options, context=None, doors=("http",), models=MODELS,
                 uri=f"tcp://127.0.0.1:0?insecure=true&{PATIENT}", slots=None, errors=None):
        self.context = context
        self.folder = tempfile.TemporaryDirectory()
        self.server = subprocess.Popen([server, uri], stdout=subprocess.PIPE, text=True)
        uri = reached(self.server, uri)
        self.plain = [gateway, "--json"]
        self.uri = uri
        for name in models:
            path = os.path.join(self.folder.name, name)
            with open(path, "w", encoding="utf-8") as file:
                json.dump(description(name), file)
            own = 4 if name == "large" else slots
            where = uri + ("&" if "?" in uri else "?") + f"slots={own}" if own else uri
            self.plain += ["--model", f"{name}={where}", "--shapes", path]
        where = [word for each in doors if "--" + each not in options for word in ("--" + each, "127.0.0.1:0")]
        self.door = subprocess.Popen([*self.plain, *where, *options], stdout=subprocess.PIPE, stderr=errors, text=True)
        line = first_line(self.door)
        self.scrapes = None
        if line.startswith("metrics "):
            self.scrapes = line.split()[1]
            line = first_line(self.door)
        endpoints = {each.split(":")[0].removesuffix("s"): each for each in json.loads(line)["endpoints"]}
        self.url = endpoints.get("http")
        self.port = int(self.url.rsplit(":", 1)[1]) if self.url else None
        self.address = endpoints["grpc"].split("//")[1] if "grpc" in endpoints else None
        self.summary = None
        self.ending = False

    def __enter__(self):
        return self

    def end_door(self):
        """Asks it to end, once: a second signal would end its --drain-delay."""
        if not self.ending and self.door.poll() is None:
            self.door.send_signal(signal.SIGTERM)
        self.ending = True

    def __exit__(self, *_):
        self.end_door()
        if self.server.poll() is None:
            self.server.send_signal(signal.SIGTERM)
        out, _ = self.door.communicate(timeout=60)
        self.server.communicate(timeout=60)
        self.folder.cleanup()
        if self.door.returncode != 0:
            raise SystemExit(f"the gateway ended with {self.door.returncode}")
        self.summary = json.loads(out.splitlines()[-1])

    def connect(self, window=None, source=None):
        return Connection(self.port, self.context, window, source)

    @contextlib.contextmanager
    def another(self, *options):
        """The URL of another door with these options."""
        process = subprocess.Popen([self.plain[0], "--json", *options], stdout=subprocess.PIPE, text=True)
        try:
            yield json.loads(first_line(process))["endpoints"][0]
        finally:
            process.terminate()
            process.communicate(timeout=60)

    def refusal(self, *options):
        """What another door with these options says before it ends by itself."""
        done = subprocess.run([*self.plain, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=60, check=False)
        expect(done.returncode != 0, f"refused: {options}")
        return done.stdout

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.door.pid}/fd"))


class Connection:
    """A socket that speaks HTTP/1.1; bytes are sent as they are given. `window`: bytes that it takes unread, as far as
    the kernel allows; by itself that would be megabytes. `source`: the address that it comes from."""

    def __init__(self, port, context=None, window=None, source=None):
        self.socket = socket.socket()
        if source:
            self.socket.bind((source, 0))
        if window:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        self.socket.settimeout(60)
        self.socket.connect(("127.0.0.1", port))
        if context:
            self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")
        self.unread = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def _more(self):
        got = self.socket.recv(65536)
        if not got:
            raise EOFError
        self.unread += got

    def closed(self):
        """True once the door has closed the connection."""
        try:
            return not self.unread and self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def answer(self):
        """(status, headers, body) of the next answer; EOFError: the door has closed the connection."""
        while b"\r\n\r\n" not in self.unread:
            self._more()
        head, self.unread = self.unread.split(b"\r\n\r\n", 1)
        first, *lines = head.decode().split("\r\n")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
        length = int(headers.get("content-length", 0))
        while len(self.unread) < length:
            self._more()
        body, self.unread = self.unread[:length], self.unread[length:]
        return int(first.split()[1]), headers, body

    def chunks(self):
        """The chunks of an answer, one after the other; EOFError: the door has closed the connection within."""
        while True:
            while b"\r\n" not in self.unread:
                self._more()
            size, self.unread = self.unread.split(b"\r\n", 1)
            length = int(size, 16)
            while len(self.unread) < length + 2:
                self._more()
            chunk, self.unread = self.unread[:length], self.unread[length + 2:]
            if not length:
                return
            yield chunk

    def events(self):
        """The documents of server-sent events, as they come."""
        for chunk in self.chunks():
            expect(chunk.startswith(b"data: ") and chunk.endswith(b"\n\n"), f"an event: {chunk}")
            yield json.loads(chunk[6:])

    def ask(self, data):
        self.send(data)
        return self.answer()

    def begin(self, data, left_out=0):
        """Sends a request, without its last bytes; the door has begun to take it."""
        head, body = data.split(b"\r\n\r\n", 1)
        expect(self.ask(head + b"\r\nExpect: 100-continue\r\n\r\n")[0] == 100, "the door takes it")
        self.send(body[:len(body) - left_out])


def post(model, body, headers=(), length=None, what="infer"):
    length = len(body) if length is None else length
    lines = [f"POST /v2/models/{model}/{what} HTTP/1.1", "Host: door", f"Content-Length: {length}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def binary_request(model, values, **changes):
    """A request with binary tensors both ways; `changes` replace members of its input."""
    data = struct.pack(f"<{len(values)}f", *values)
    one = {"name": "x", "datatype": "FP32", "shape": [len(values)], "parameters": {"binary_data_size": len(data)}}
    one.update(changes)
    head = json.dumps({"inputs": [one], "parameters": {"binary_data_output": True}}).encode()
    return post(model, head + data, [f"Inference-Header-Content-Length: {len(head)}"])


def binary_values(headers, body):
    data = body[int(headers["inference-header-content-length"]):]
    return struct.unpack(f"<{len(data) // 4}f", data)


def expect(holds, what):
    if not holds:
        print(f"not so: {what}", file=sys.stderr)
        sys.exit(1)
