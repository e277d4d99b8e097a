# SPDX-License-Identifier: Apache-2.0
"""A model of model_server behind the doors of gateways, for the tests."""
import json
import subprocess

from pair import expect, first_line

TCP = "tcp://127.0.0.1:0?insecure=true"


class Service:
    """model_server with one model (NAME=SPEC) at these URIs, and before each a gateway with both doors; all end with
    the block. `places` are the doors' addresses, (http, grpc) for each URI; `http` and `grpc` are the first ones."""

    def __init__(self, gateway, server, model, uris=(TCP,), serve=(), doors=()):
        self.processes = []
        name = model.split("=")[0]
        behind = self._start(server, *uris, "--model", model, *serve, "--json")
        self.places = [self._front(gateway, f"{name}={uri}", doors) for uri in behind["endpoints"]]
        self.http, self.grpc = self.places[0]

    def _front(self, gateway, model, doors):
        if "=tcp:" in model and "insecure" not in model:
            model += "?insecure=true"
        ends = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
        opened = self._start(gateway, *ends, "--json", "--model", model, *doors)["endpoints"]
        return tuple(each.split("//")[1] for each in opened)

    def _start(self, *command):
        self.processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return json.loads(first_line(self.processes[-1]))

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        for process in reversed(self.processes):
            process.terminate()
            process.communicate(timeout=30)
        expect(kind or all(each.returncode == 0 for each in self.processes), "all end in good order")
