# SPDX-License-Identifier: Apache-2.0
"""Model servers that go on from cell to cell, as long as their group."""
import subprocess
from dataclasses import dataclass, field

from plan import group_of, server_of
from processes import Failed, Process

READY = 120.0  # s until a server has loaded its models


class Mps:
    """NVIDIA's multi-process service, while it is wanted."""
    def __init__(self, wanted):
        self.wanted = wanted

    def control(self, *arguments, words=None):
        subprocess.run(["nvidia-cuda-mps-control", *arguments], input=words, text=True, timeout=30, check=True,
                       stdout=subprocess.DEVNULL)

    def start(self):
        if self.wanted:
            try:
                self.control("-d")
            except (OSError, subprocess.SubprocessError) as error:
                raise Failed(f"nvidia-cuda-mps-control does not start: {error}") from error

    def stop(self):
        if self.wanted:
            try:
                self.control(words="quit\n")
            except (OSError, subprocess.SubprocessError):
                pass


@dataclass
class Running:
    process: Process
    fabric: str
    mps: Mps
    endpoints: list = field(default_factory=list)  # empty until it is ready


class Servers:
    """`command`: of (cell, fabric, link); `open_process`: a Process of (name, command)."""
    def __init__(self, command, open_process, name):
        self.command, self.open_process, self.name = command, open_process, name
        self.group, self.running, self.count = None, {}, 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop_all()

    def stop_all(self):
        """They end beside each other."""
        for one in self.running.values():
            if one.process.child.poll() is None:
                one.process.child.terminate()
        for server in list(self.running):
            self.stop(server)

    def stop(self, server):
        one = self.running.pop(server, None)
        if one:
            one.process.__exit__()
            one.mps.stop()

    def enter(self, cells, link):
        """Ends what does not belong to the group of these cells. For a new group, starts the servers of all of them
        beside each other; returns which."""
        group = (link, group_of(cells[0]))
        if group == self.group:
            return []
        self.stop_all()
        self.group = group
        wanted = {server_of(cell): cell for cell in reversed(cells) if server_of(cell)}
        for cell in wanted.values():
            self.start(cell)
        return list(wanted)

    def of(self, cell):
        """The server of a cell of this group, ready; one that has ended is started again."""
        server = server_of(cell)
        one = self.running.get(server)
        if one and one.endpoints and one.process.child.poll() is not None:
            self.stop(server)
            one = None
        if not one:
            one = self.start(cell)
        if not one.endpoints:
            self.wait(server, one)
        return one

    def start(self, cell):
        self.count += 1
        fabric = f"{self.name}-{self.count}"
        mps = Mps(cell.sharing == "mps")
        mps.start()
        try:
            command = self.command(cell, fabric, cell.link_of(self.group[0]))
            one = Running(self.open_process("server", command), fabric, mps)
        except BaseException:
            mps.stop()
            raise
        self.running[server_of(cell)] = one
        return one

    def wait(self, server, one):
        try:
            one.endpoints = one.process.document(READY)["endpoints"]
        except (Failed, ValueError, KeyError):
            self.stop(server)
            raise
