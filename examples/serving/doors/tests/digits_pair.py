# SPDX-License-Identifier: Apache-2.0
"""The digits service behind a door, for the tests."""
import json
import subprocess

from pair import expect, first_line


class Digits:
    """model_server with the digits network behind both doors of a gateway; all end with the block."""

    def __init__(self, gateway, server):
        self.processes = []
        behind = self._start(server, "tcp://127.0.0.1:0?insecure=true", "--model", "digits=builtin", "--json")
        uri = behind["endpoints"][0]
        model = "digits=" + uri + ("" if "insecure" in uri else "?insecure=true")
        ends = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
        http, grpc = self._start(gateway, *ends, "--json", "--model", model)["endpoints"]
        self.http = http.removeprefix("http://")
        self.grpc = grpc.removeprefix("grpc://")

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
