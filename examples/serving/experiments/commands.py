# SPDX-License-Identifier: Apache-2.0
"""The command lines of a cell's programs."""
from dataclasses import dataclass
from pathlib import Path

from matrix import CLIENTS, VERBS, Machine
from plan import server_of
from probe import model_file

WARM_UP = 5  # calls of each client, again and again until they take the same time
SPINNING_CORES = 8
# Calls of CUDA that wait for the whole GPU wait as long, for each of 3 kernels: well below the 470 ms of ack_retries.
COPIES_STAY_MS = 50


@dataclass(frozen=True)
class Work:
    """How long a cell is measured in a round."""
    duration: float = 0.4     # s
    settle: float = 0.4       # s of the warm-up at most, at least a quarter
    requests: int = 1000      # of each client at most, as the paper's
    least: int = 40           # of all clients together, also where they take longer

    def at_least(self, clients):
        """Of each."""
        return min(self.requests, -(-self.least // clients))


@dataclass
class Commands:
    """`models`: the folder of files, or None; `pacing`: tcp and zmq know the option."""
    programs: Path
    machine: Machine
    models: Path = None
    pacing: bool = False
    link: str = ""

    def launcher(self, transports, fabric, processes=1):
        """In front of a program that uses verbs, where there is no adapter."""
        if not self.machine.emulated or not VERBS & set(transports):
            return []
        link = ["--link", self.link] if self.link else []
        # An emulated adapter that spins is late less often, where it does not take a core from the others.
        mode = ["--mode", "spin"] if self.machine.cores >= SPINNING_CORES * processes else []
        # Nor has a message to wait for the start of its copy kernel, where that stays between requests.
        stay = ["--cuda-stay", str(COPIES_STAY_MS)] if self.machine.gpu else []
        return [self.programs / "softnic", "run", "--fabric", fabric, *mode, *link, *stay, "--"]

    def options(self, transport):
        """Behind a URI of either end."""
        if transport == "shm":
            return ""
        rate = self.link.split(",")[0]
        paced = f"&pacing={rate}" if rate and self.pacing and transport in ("tcp", "zmq") else ""
        return "?insecure=true" + paced

    def listen_uri(self, transport, fabric):
        """`fabric`: a name that no other server has."""
        if transport == "shm":
            return f"shm://{fabric}"
        return f"{transport}://127.0.0.1:0{self.options(transport)}"

    def spec(self, model):
        kind = self.machine.models[model]
        return f"{model}={kind if kind in ('builtin', 'synthetic') else model_file(self.models, model)}"

    def place(self, cell):
        """How the model is executed. Threads on the host that have no client sleep."""
        if not self.machine.gpu:
            return ["--on", "host", "--streams", str(cell.streams or CLIENTS[-1])]
        if cell.transport.split("/")[-1] == "gpu":
            return ["--on", "gpu-resident", *(["--resident-raw"] if cell.raw else [])]
        gpu = ["--gpu", str(cell.gpus - 1)] if cell.gpus > 1 else []
        return ["--on", "gpu", *gpu, "--streams", str(cell.streams or "client")]

    def server(self, cell, fabric):
        server = server_of(cell)
        contexts = ["--contexts", str(server.processes)] if server.processes > 1 else []
        return [*self.launcher([server.transport], fabric, server.processes), self.programs / "model_server",
                self.listen_uri(server.transport, fabric), "--model", self.spec(cell.model), *self.place(cell),
                *contexts, "--json"]

    def connect_uri(self, endpoint, transport):
        """A server with slots in GPU memory is reached by rdma: the wire is the same."""
        scheme, _, place = endpoint.partition("://")
        return f"{'rdma' if scheme in ('gdr', 'gpu') else scheme}://{place}{self.options(transport)}"

    def gateway(self, cell, endpoints, fabric):
        outer, inner = cell.transport.split("/")
        servers = [f"{cell.model}={self.connect_uri(uri, inner)}" for uri in endpoints]
        return [*self.launcher([inner, outer], fabric), self.programs / "gateway", "--listen",
                self.listen_uri(outer, f"{fabric}-gateway"), *[word for each in servers for word in ("--to", each)],
                "--json"]

    def load(self, cell, uris, work, output, fabric):
        expect = {"synthetic": "synthetic", "builtin": "auto"}.get(self.machine.models[cell.model], "shape")
        outer = cell.transport.split("/")[0]
        in_process = ["--in-process", self.spec(cell.model), *self.place(cell)] if outer == "local" else []
        return [*self.launcher([outer], fabric), self.programs / "load", *uris, "--model", cell.model,
                "--expect", expect, "--clients", str(cell.clients), "--requests", str(work.requests),
                "--duration", f"{work.duration * 1000:.0f}ms", "--at-least", str(work.at_least(cell.clients)),
                "--warm-up", str(WARM_UP), "--settle", f"{work.settle * 1000:.0f}ms", "--json", output, *in_process,
                *(["--raw"] if cell.raw else []), *(["--preprocess-on", "0"] if cell.gpus else []),
                *(["--from-host"] if cell.by_host else []),
                *(["--priority-clients", str(cell.priority_clients)] if cell.priority_clients else [])]
