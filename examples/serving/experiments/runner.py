# SPDX-License-Identifier: Apache-2.0
"""Measures a cell: a server that runs already or starts, maybe a gateway, and the load; reads what they say."""
import json
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import late
from commands import Commands, Work
from plan import server_of
from processes import Failed, Process
from results import STAGES, distribution_text, row_of
from servers import READY, Servers

MARGIN = 60.0  # s of a load beyond its duration: connecting, warming up, the last answers
FAILURES = 2   # of cells of a server; further ones are not tried
PROGRAMS = ("load", "gateway")


class Runner:
    """`known`: columns that all rows have. Ends its servers when it is left."""
    def __init__(self, commands: Commands, logs=Path("logs"), known=None):
        self.commands, self.logs, self.known = commands, logs, known or {}
        logs.mkdir(parents=True, exist_ok=True)
        self.servers = Servers(lambda cell, fabric, link: replace(self.commands, link=link).server(cell, fabric),
                               self.start, f"experiments-{os.getpid()}")
        self.failures = {}  # {(server, link): [problem]}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.servers.stop_all()

    def start(self, name, command):
        return Process(name, command, self.log(name), {"SOFTNIC_STATS": "1"})

    def run(self, cell, work: Work, number, link="", mates=()):
        """The cell's row of round `number`; with a `problem` where it could not be measured. `mates`: cells of its
        group that follow."""
        self.commands = replace(self.commands, link=cell.link_of(link))
        known = {**self.known, "kind": self.commands.machine.models[cell.model], "link": cell.link_of(link)}
        begin = time.monotonic()
        failures = self.failures.setdefault((server_of(cell), link), [])
        try:
            if len(failures) >= FAILURES:
                raise Failed(f"not tried, because other cells of this server failed: {failures[-1]}")
            self.enter([cell, *mates], link)
            with tempfile.TemporaryDirectory() as folder:
                output = Path(folder) / "load.json"
                figures = (self.run_alone if cell.transport == "local" else self.run_apart)(cell, work, output)
            return row_of(cell, number, **known, **figures, cost=time.monotonic() - begin)
        except (Failed, OSError, ValueError, KeyError) as error:
            problem = " ".join(str(error).split())[:200]
            if len(failures) < FAILURES:
                failures.append(problem)
            self.servers.stop(server_of(cell))
            return row_of(cell, number, **known, problem=problem, cost=time.monotonic() - begin)

    def enter(self, cells, link):
        """Waits until the servers of a new group are ready, so that none loads its model during a measurement."""
        for server in self.servers.enter(cells, link):
            try:
                self.servers.wait(server, self.servers.running[server])
            except (Failed, ValueError, KeyError):
                pass  # the first of its cells starts it again, and says why it fails

    def log(self, name):
        return self.logs / f"{name}.log"

    def log_sizes(self):
        return {name: self.log(name).stat().st_size if self.log(name).exists() else 0 for name in PROGRAMS}

    def said(self, begins):
        """What these programs have said on standard error since."""
        return "".join(self.log(name).read_bytes()[begin:].decode(errors="replace")
                       for name, begin in begins.items() if self.log(name).exists())

    def run_alone(self, cell, work, output):
        return self.run_load(cell, ["local://experiments"], work, output)[0]

    def late_of(self, server):
        if not server or not self.commands.machine.emulated:
            return late.Lateness()
        return late.running(self.commands.programs, server.fabric, server.process.family())

    def run_apart(self, cell, work, output):
        server = self.servers.of(cell)
        begins, before = self.log_sizes(), self.late_of(server)
        # A client of N has one of the first N contexts.
        endpoints = server.endpoints[:cell.clients] if server_of(cell).processes > 1 else server.endpoints
        if "/" not in cell.transport:
            uris = [self.commands.connect_uri(uri, cell.transport) for uri in endpoints]
            figures, calls = self.run_load(cell, uris, work, output, server)
        else:
            with self.start("gateway", self.commands.gateway(cell, endpoints, server.fabric)) as gateway:
                outer = cell.transport.split("/")[0]
                uris = [self.commands.connect_uri(uri, outer) for uri in gateway.document(READY)["endpoints"]]
                figures, calls = self.run_load(cell, uris, work, output, server, gateway)
        return figures | late.figures(late.said(self.said(begins)), self.late_of(server) - before, calls)

    def run_load(self, cell, uris, work, output, server=None, gateway=None):
        """Its figures, and how many calls it has made, those of the warm-up included."""
        begin = {"load": self.log_sizes()["load"]}
        roles = {"server": server.process if server else None, "gateway": gateway}
        before = {role: process.cpu() for role, process in roles.items() if process}
        command = self.commands.load(cell, uris, work, output, server.fabric if server else "")
        with self.start("load", command) as load:
            while load.line(work.duration + MARGIN) is not None:
                pass
            status = load.wait(MARGIN)
        if not output.exists():
            raise Failed(f"load ended with status {status}: {last_sentence(self.said(begin))}")
        seen = json.loads(output.read_text(encoding="utf-8"))
        figures = figures_of(seen)
        calls = seen["requests"] + seen["warm_up_calls"]
        for role in before:
            figures |= cpu_figures(role, roles[role], before[role], calls)
        figures.pop("gateway_device", None)
        if server:
            figures["server_rss"] = server.process.rss()
        return figures, calls


def last_sentence(said):
    lines = [line for line in said.splitlines() if line.startswith("load: ")]
    return lines[-1] if lines else "it said nothing"


def cpu_figures(role, process, before, calls):
    """µs a request, the warm-up's included."""
    after = process.cpu()
    return {f"{role}_{name}": max(0.0, after[name] - before[name]) * 1e6 / calls for name in after}


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
