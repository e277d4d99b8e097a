# SPDX-License-Identifier: Apache-2.0
"""Measures a cell: starts a server, maybe a gateway, and the load, and reads what they say."""
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

from probe import model_file
from processes import Failed, Process
from results import STAGES, distribution_text, row_of

VERBS = {"rdma", "gdr", "gpu"}
READY = 180.0     # s until a server has loaded its models
MARGIN = 60.0     # s of a load beyond its duration: connecting, warming up, the last answers
WARM_UP = 5       # calls of each client
LATE = re.compile(r"late messages (\d+) of (\d+)")
PROGRAMS = ("load", "server", "gateway")


class Runner:
    """`programs`: their folder; `models`: the folder of files, or None; `pacing`: tcp and zmq know the option."""
    def __init__(self, programs, machine, models=None, pacing=False, logs=Path("logs"), gflops=None):
        self.programs, self.machine, self.models, self.pacing, self.logs = programs, machine, models, pacing, logs
        self.gflops = gflops
        logs.mkdir(parents=True, exist_ok=True)

    # Command lines.

    def launcher(self, transports):
        """In front of a program that uses verbs, where there is no adapter."""
        if not self.machine.emulated or not VERBS & set(transports):
            return []
        link = ["--link", self.machine.link] if self.machine.link else []
        # An emulated adapter that spins is late less often, where it does not take a core from the others.
        mode = ["--mode", "spin"] if self.machine.cores >= 8 else []
        return [self.programs / "softnic", "run", "--fabric", f"experiments-{os.getpid()}", *mode, *link, "--"]

    def options(self, transport):
        """Behind a URI of either end."""
        if transport == "shm":
            return ""
        rate = self.machine.link.split(",")[0]
        paced = f"&pacing={rate}" if rate and self.pacing and transport in ("tcp", "zmq") else ""
        return "?insecure=true" + paced

    def listen_uri(self, transport, role):
        if transport == "shm":
            return f"shm://experiments-{os.getpid()}-{role}"
        return f"{transport}://127.0.0.1:0{self.options(transport)}"

    def spec(self, model):
        kind = self.machine.models[model]
        return f"{model}={model_file(self.models, model) if kind == 'file' else kind}"

    def place(self, cell):
        """How the model is executed."""
        streams = str(cell.streams) if cell.streams else ""
        if not self.machine.gpu:
            return ["--on", "host", "--streams", streams or str(cell.clients)]
        if cell.transport.split("/")[-1] == "gpu":
            return ["--on", "gpu-resident", *(["--resident-raw"] if cell.raw else [])]
        return ["--on", "gpu", "--streams", streams or "client"]

    def synthetic_options(self):
        return ["--synthetic-gflops", str(self.gflops)] if self.gflops else []

    def server_command(self, cell):
        transport = cell.transport.split("/")[-1]
        contexts = ["--contexts", str(cell.clients)] if cell.sharing != "streams" else []
        return [*self.launcher([transport]), self.programs / "model_server", self.listen_uri(transport, "server"),
                "--model", self.spec(cell.model), *self.place(cell), *contexts, *self.synthetic_options(), "--json"]

    def connect_uri(self, endpoint, transport):
        """A server with slots in GPU memory is reached by rdma: the wire is the same."""
        scheme, _, place = endpoint.partition("://")
        return f"{'rdma' if scheme in ('gdr', 'gpu') else scheme}://{place}{self.options(transport)}"

    def gateway_command(self, cell, endpoints):
        outer, inner = cell.transport.split("/")
        servers = [f"{cell.model}={self.connect_uri(uri, inner)}" for uri in endpoints]
        return [*self.launcher([inner, outer]), self.programs / "gateway", "--listen",
                self.listen_uri(outer, "gateway"), *[word for each in servers for word in ("--to", each)], "--json"]

    def load_command(self, cell, uris, requests, duration, output):
        kind = self.machine.models[cell.model]
        expect = {"synthetic": "synthetic", "builtin": "auto", "file": "shape"}[kind]
        outer = cell.transport.split("/")[0]
        in_process = ["--in-process", self.spec(cell.model), *self.place(cell), *self.synthetic_options()] \
            if outer == "local" else []
        return [*self.launcher([outer]), self.programs / "load", *uris, "--model", cell.model,
                "--expect", expect, "--clients", str(cell.clients), "--requests", str(requests), "--duration",
                f"{duration * 1000:.0f}ms", "--warm-up", str(WARM_UP), "--json", output, *in_process,
                *(["--raw"] if cell.raw else []),
                *(["--priority-clients", str(cell.priority_clients)] if cell.priority_clients else [])]

    # Running.

    def start(self, name, command):
        return Process(name, command, self.log(name), {"SOFTNIC_STATS": "1"})

    def run(self, cell, requests, duration):
        """The cell's row; with a `problem` where it could not be measured."""
        known = {"kind": self.machine.models[cell.model], "link": self.machine.link}
        begins = self.log_sizes()
        try:
            with Mps(cell.sharing == "mps"), tempfile.TemporaryDirectory() as folder:
                output = Path(folder) / "load.json"
                if cell.transport == "local":
                    figures = self.run_alone(cell, requests, duration, output)
                else:
                    figures = self.run_apart(cell, requests, duration, output)
            return row_of(cell, **known, **figures, **late_figures(self.said(begins)))
        except (Failed, OSError, ValueError, KeyError) as error:
            return row_of(cell, **known, problem=" ".join(str(error).split())[:200])

    def log(self, name):
        return self.logs / f"{name}.log"

    def log_sizes(self):
        return {name: self.log(name).stat().st_size if self.log(name).exists() else 0 for name in PROGRAMS}

    def said(self, begins):
        """What all programs have said on standard error since."""
        return "".join(self.log(name).read_bytes()[begin:].decode(errors="replace")
                       for name, begin in begins.items() if self.log(name).exists())

    def run_alone(self, cell, requests, duration, output):
        return self.run_load(cell, ["local://experiments"], requests, duration, output)

    def run_apart(self, cell, requests, duration, output):
        with self.start("server", self.server_command(cell)) as server:
            endpoints = server.document(READY)["endpoints"]
            if "/" not in cell.transport:
                uris = [self.connect_uri(uri, cell.transport) for uri in endpoints]
                return self.run_load(cell, uris, requests, duration, output, server)
            with self.start("gateway", self.gateway_command(cell, endpoints)) as gateway:
                outer = cell.transport.split("/")[0]
                uris = [self.connect_uri(uri, outer) for uri in gateway.document(READY)["endpoints"]]
                return self.run_load(cell, uris, requests, duration, output, server, gateway)

    def run_load(self, cell, uris, requests, duration, output, server=None, gateway=None):
        begin = {"load": self.log_sizes()["load"]}
        before = [None if each is None else each.cpu() for each in (server, gateway)]
        with self.start("load", self.load_command(cell, uris, requests, duration, output)) as load:
            while load.line(duration + MARGIN) is not None:
                pass
            status = load.wait(MARGIN)
        if not output.exists():
            raise Failed(f"load ended with status {status}: {last_sentence(self.said(begin))}")
        seen = json.loads(output.read_text(encoding="utf-8"))
        figures = figures_of(seen)
        calls = seen["requests"] + WARM_UP * cell.clients
        if server:
            figures |= cpu_figures("server", server, before[0], calls)
            figures["server_rss"] = server.rss()
        if gateway:
            figures |= {key: value for key, value in cpu_figures("gateway", gateway, before[1], calls).items()
                        if key != "gateway_device"}
        return figures


def last_sentence(said):
    lines = [line for line in said.splitlines() if line.startswith("load: ")]
    return lines[-1] if lines else "it said nothing"


def cpu_figures(role, process, before, calls):
    """µs a request, the warm-up's included."""
    after = process.cpu()
    return {f"{role}_{name}": max(0.0, after[name] - before[name]) * 1e6 / calls for name in after}


def late_figures(said):
    """Of messages that the emulation was too slow for, as softnic counts them at each program's end."""
    late, timed = (sum(int(found[i]) for found in LATE.findall(said)) for i in (0, 1))
    return {"late_percent": 100 * late / timed} if timed else {}


def figures_of(seen):
    """Columns of a load's JSON."""
    total = seen["total_us"]
    classes = seen.get("classes", {})
    out = {"requests": seen["requests"], "wrong": seen["wrong"], "failed": sum(seen["errors"].values()),
           "seconds": seen["seconds"], "rate": seen["rate"], "total_mean": total["mean"], "total_p50": total["p50"],
           "total_p99": total["p99"], "total_cov": total["cov"], "inference_cov": seen["inference_us"]["cov"],
           "client_user": seen["cpu_user_us_per_request"], "client_kernel": seen["cpu_kernel_us_per_request"],
           "client_rss": seen["rss_mib"], "gpu_memory": seen.get("gpu_memory_mib"),
           "gpu_utilisation": seen.get("gpu_utilisation"),
           "inference_distribution": distribution_text(seen["inference_distribution_us"])}
    out |= {f"{stage}_mean": seen[f"{stage}_us"]["mean"] for stage in STAGES}
    out |= {f"{name}_mean": classes[name]["total_us"]["mean"] for name in ("high", "normal") if name in classes}
    if "first_error" in seen and seen["requests"] == out["failed"]:
        out["problem"] = seen["first_error"][:200]
    return out


class Mps:
    """NVIDIA's multi-process service, while it is wanted."""
    def __init__(self, wanted):
        self.wanted = wanted

    def control(self, *arguments, words=None):
        subprocess.run(["nvidia-cuda-mps-control", *arguments], input=words, text=True, timeout=30, check=True,
                       stdout=subprocess.DEVNULL)

    def __enter__(self):
        if self.wanted:
            try:
                self.control("-d")
            except (OSError, subprocess.SubprocessError) as error:
                raise Failed(f"nvidia-cuda-mps-control does not start: {error}") from error
        return self

    def __exit__(self, *_):
        if self.wanted:
            try:
                self.control(words="quit\n")
            except (OSError, subprocess.SubprocessError):
                pass


