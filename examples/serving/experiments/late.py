# SPDX-License-Identifier: Apache-2.0
"""What the emulated adapter was too slow for: messages that came behind their time on the modelled link."""
import itertools
import re
import subprocess
from dataclasses import dataclass

from results import Row
from svg_shapes import time_text

SAID = re.compile(r"late messages (\d+) of (\d+), (\d+) us behind the link")  # at a program's end
SECONDS = 10


@dataclass(frozen=True)
class Lateness:
    """Of `messages` so many were late; all of them together came so many µs behind the link."""
    late: int = 0
    messages: int = 0
    behind_us: float = 0.0

    def __add__(self, other):
        return Lateness(self.late + other.late, self.messages + other.messages, self.behind_us + other.behind_us)

    def __sub__(self, before):
        return Lateness(max(0, self.late - before.late), max(0, self.messages - before.messages),
                        max(0.0, self.behind_us - before.behind_us))

    @property
    def percent(self):
        """None without a message."""
        return 100 * self.late / self.messages if self.messages else None


def said(text):
    """Of programs that have ended."""
    return sum((Lateness(int(late), int(messages), float(behind)) for late, messages, behind in SAID.findall(text)),
               Lateness())


def of_processes(table, processes):
    """Of running processes, out of `softnic stats`: node, process, messages, late ones, %, s behind the link, …"""
    out = Lateness()
    for line in table.splitlines():
        words = line.split()
        if len(words) >= 6 and words[1].isdigit() and int(words[1]) in processes:
            out += Lateness(int(words[3]), int(words[2]), float(words[5]) * 1e6)
    return out


def running(programs, fabric, processes):
    """Nothing without an emulated adapter."""
    try:
        done = subprocess.run([str(programs / "softnic"), "stats", "--fabric", fabric], capture_output=True, text=True,
                              timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return Lateness()
    return of_processes(done.stdout, set(processes)) if done.returncode == 0 else Lateness()


def figures(ended, servers, calls):
    """`ended`: of the clients, and of a gateway; what comes late at the servers are requests."""
    both = ended + servers
    return {"late_percent": both.percent,
            "late_request_us": servers.behind_us / calls if both.messages and calls else None,
            "late_response_us": ended.behind_us / calls if both.messages and calls else None}


WORST = 1.0  # percent: beyond it a row says nothing about the link by itself


def too_many(row):
    return row["late_percent"] is not None and row["late_percent"] > WORST


def behind_us(row):
    """What a request lost by messages behind the link, in the mean, at most; None where that was not measured."""
    parts = row["late_request_us"], row["late_response_us"]
    return None if None in parts else sum(parts)


def on_time(row):
    """A round's row as if no message had been late. No stage goes below 0."""
    out = Row(row)
    for stage in ("request", "response"):
        column = f"{stage}_mean"
        if out[column]:
            out[column] = max(0.0, out[column] - row[f"late_{stage}_us"])
    for column in ("total_mean", "high_mean", "normal_mean"):
        if out[column]:
            out[column] = max(0.0, out[column] - behind_us(row))
    return out


def variants(cells):
    """The cells with each of the late ones as it was, and as it would be on time: the truth lies between them. Nothing
    where it is not known by how much one was late."""
    late = [bool(cell and too_many(cell)) for cell in cells]
    if any(behind_us(row) is None for cell in itertools.compress(cells, late) for row in cell.rows.values()):
        return
    choices = [(cell, cell.with_rows(on_time)) if slow else (cell,) for cell, slow in zip(cells, late)]
    yield from map(list, itertools.product(*choices))


def text(row):
    """How late its messages were; empty: not too late."""
    if not too_many(row):
        return ""
    by = behind_us(row)
    return f"{row['late_percent']:.1f} % late" + ("" if by is None else f", by {time_text(by)} a request")
