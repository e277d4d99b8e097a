# SPDX-License-Identifier: Apache-2.0
"""A door under load has two servers of one model. They restart in turn, eight times, and then one unloads the model. No
request may fail. Then both unload it, and readiness follows the model. While both restart at once, requests are told
that no server is there. For a longer run: python3 check_restarts.py GATEWAY MODEL_SERVER http|grpc REQUESTS"""
import collections
import http.client
import json
import signal
import struct
import subprocess
import sys
import threading
import time
import urllib.request

from client_environment import SKIPPED, client_python
from pair import PATIENT, expect, first_line

RESTARTS = 8
QUERY = f"insecure=true&{PATIENT}"
CLIENTS = 8
PATIENCE = 300  # seconds, for hangs alone
UNAVAILABLE = {"http": "503 Retry-After: 1", "grpc": "[StatusCode.UNAVAILABLE]"}
IMAGE = [float(i % 16) / 16 for i in range(64)]


started = []


def start(command, **pipes):
    started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **pipes))
    return started[-1]


class Server:
    """model_server at a fixed URI; a life ends with SIGTERM."""

    def __init__(self, program):
        self.program = program
        self.uri = "tcp://127.0.0.1:0?" + QUERY
        self.start()

    def start(self):
        self.process = start([self.program, self.uri, "--model", "digits", "--control", "--json",
                              "--metrics", "127.0.0.1:0"], stdin=subprocess.PIPE)
        self.scrapes = first_line(self.process).split()[1]
        self.uri = json.loads(first_line(self.process))["endpoints"][0] + "?" + QUERY

    def obey(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        said = first_line(self.process)
        expect(command.split()[0] in said, f"{command}: {said}")

    def used(self):
        """It has answered a request in this life."""
        with urllib.request.urlopen(self.scrapes, timeout=PATIENCE) as answer:
            lines = answer.read().decode().splitlines()
        return any(line.startswith("accel_calls_total") and 'target="digits"' in line for line in lines)

    def end(self):
        """Questions about its models are no errors."""
        self.process.terminate()
        out, _ = self.process.communicate(timeout=PATIENCE)
        expect(self.process.returncode == 0, "a server ends well")
        summary = json.loads(out.splitlines()[-1])
        expect(summary["errors"] == 0, f"nobody makes a mistake: {summary}")


def http_caller(address):
    """A function that asks once and says what came; of one thread. All answers have to be the same."""
    line = http.client.HTTPConnection(address, timeout=PATIENCE)
    body = struct.pack("<64f", *IMAGE)
    answers = set()

    def ask():
        line.request("POST", "/v2/models/digits/infer", body, {"Inference-Header-Content-Length": "0"})
        got = line.getresponse()
        text = got.read()
        if got.status != 200:
            later = got.getheader("Retry-After")
            return f"{got.status} {f'Retry-After: {later} ' if later else ''}{text.decode()[:200]}"
        answers.add(text)
        return "ok" if len(answers) == 1 else f"another answer: {text}"
    return ask


def grpc_caller(address):
    import numpy
    from tritonclient import grpc, utils
    client = grpc.InferenceServerClient(address)
    x = grpc.InferInput("input0", [1, 1, 8, 8], "FP32")
    x.set_data_from_numpy(numpy.array(IMAGE, numpy.float32).reshape(1, 1, 8, 8))
    answers = set()

    def ask():
        try:
            answers.add(client.infer("digits", [x], client_timeout=PATIENCE).as_numpy("output0").tobytes())
            return "ok" if len(answers) == 1 else "another answer"
        except utils.InferenceServerException as failure:
            return str(failure)[:200]
    return ask


def load(door, address):
    """A process of clients: a line for each 100 answers, until its input ends; then what came, as JSON."""
    counted, lock, ending = collections.Counter(), threading.Lock(), threading.Event()

    def work():
        ask = {"http": http_caller, "grpc": grpc_caller}[door](address)
        while not ending.is_set():
            said = ask()
            with lock:
                counted[said] += 1
                if counted.total() % 100 == 0:
                    print(counted.total(), flush=True)
    threads = [threading.Thread(target=work) for _ in range(CLIENTS)]
    for each in threads:
        each.start()
    sys.stdin.read()
    ending.set()
    for each in threads:
        each.join()
    print(json.dumps(counted), flush=True)


class Load:
    """The process of `load`."""

    def __init__(self, python, door, address):
        self.process = start([python, __file__, "load", door, address], stdin=subprocess.PIPE)
        self.done = 0

    def go_on(self, requests):
        """Returns after so many further ones."""
        wanted = self.done + requests
        while self.done < wanted:
            # What was answered earlier stands in the pipe.
            self.done = int(first_line(self.process))

    def end(self):
        out, _ = self.process.communicate(timeout=PATIENCE)
        return json.loads(out.splitlines()[-1])


def health(python, address):
    """Of the gRPC door: the server's, the model's, and what health checks say."""
    out = subprocess.check_output([python, __file__, "health", address], text=True)
    return json.loads(out)


def say_health(address):
    import grpc as plain
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from tritonclient import grpc
    client = grpc.InferenceServerClient(address)
    stub = health_pb2_grpc.HealthStub(plain.insecure_channel(address))
    checked = [stub.Check(health_pb2.HealthCheckRequest(service=name)).status for name in ("", "digits")]
    serving = health_pb2.HealthCheckResponse.SERVING
    print(json.dumps([client.is_server_ready(), client.is_model_ready("digits"), *(s == serving for s in checked)]))


def http_health(address):
    out = []
    for path in ("/v2/health/ready", "/v2/models/digits/ready"):
        line = http.client.HTTPConnection(address, timeout=PATIENCE)
        line.request("GET", path)
        out.append(line.getresponse().status == 200)
    return out


def eventually(condition):
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def await_use(servers):
    """The door is connected to each of them."""
    expect(eventually(lambda: all(each.used() for each in servers)), "both servers are used")


def restart_in_turn(servers, clients, share):
    for i in range(RESTARTS):
        await_use(servers)
        clients.go_on(share)
        servers[i % 2].end()
        servers[i % 2].start()
    await_use(servers)


def check_restart_of_both(door, clients, ask, ready, servers):
    """Under load, without which they ended before they had requests."""
    clients.go_on(100)
    for each in servers:
        each.process.terminate()
    for each in servers:
        each.end()
    said = ask()
    expect(said.startswith(UNAVAILABLE[door]), f"no server is there: {said}")
    expect(eventually(lambda: not any(ready())), "and nothing is ready")
    for each in servers:
        each.start()
    expect(eventually(lambda: all(ready())), "it is ready again")
    clients.go_on(100)
    await_use(servers)
    seen = clients.end()
    print(f"{door}, while both restart: {json.dumps(seen)}")
    expect(all(said == "ok" or said.startswith(UNAVAILABLE[door]) for said in seen), f"typed failures: {seen}")


def check_unloads(ask, ready, servers):
    """Nobody asks for the model while its readiness changes. One server has unloaded it already."""
    expect(all(ready()), "one server has the model")
    servers[1].obey("unload digits")
    expect(eventually(lambda: not any(ready())), "it is no longer ready, without a request")
    # The door may still wait before it connects to the first again.
    expect(eventually(lambda: "not loaded" in ask()), "both servers say that they have no model")
    servers[0].obey("load digits")
    expect(eventually(lambda: all(ready())), "it is ready without a request")
    expect(ask() == "ok", "and answers")


def run(gateway, program, door, requests, python):
    servers = [Server(program), Server(program)]
    command = [gateway, f"--{door}", "127.0.0.1:0", "--json"]
    for each in servers:
        command += ["--model", "digits=" + each.uri + "&call_timeout=60s"]
    front = start(command)
    address = json.loads(first_line(front))["endpoints"][0].split("//")[1]
    if door == "http":
        ask, ready = http_caller(address), lambda: http_health(address)
    else:
        ask = lambda: subprocess.check_output([python, __file__, "ask", address], text=True).strip()
        ready = lambda: health(python, address)
    clients = Load(python, door, address)
    share = requests // (RESTARTS + 2)
    restart_in_turn(servers, clients, share)
    clients.go_on(share)
    servers[0].obey("unload digits")
    clients.go_on(share)
    seen = clients.end()
    print(f"{door}: {json.dumps(seen)}")
    expect(set(seen) == {"ok"} and seen["ok"] >= requests, f"no request failed: {seen}")
    check_unloads(ask, ready, servers)
    servers[1].obey("load digits")
    check_restart_of_both(door, Load(python, door, address), ask, ready, servers)
    front.send_signal(signal.SIGTERM)
    out, _ = front.communicate(timeout=PATIENCE)
    expect(front.returncode == 0, "the gateway ends well")
    print(out.splitlines()[-1])
    for each in servers:
        each.end()


def main():
    words = sys.argv[1:]
    if words[0] == "load":
        return load(*words[1:])
    if words[0] == "health":
        return say_health(*words[1:])
    if words[0] == "ask":
        return print(grpc_caller(words[1])())
    python = client_python() if words[2] == "grpc" else sys.executable
    if python is None:
        print("skipped: PyPI is out of reach, and tritonclient comes from there")
        return SKIPPED
    try:
        return run(*words[:3], int(words[3]) if len(words) > 3 else 4000, python)
    finally:
        for each in started:  # those that a failure has left
            each.kill()


if __name__ == "__main__":
    sys.exit(main())
