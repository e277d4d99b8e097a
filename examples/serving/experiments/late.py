# SPDX-License-Identifier: Apache-2.0
"""Messages that the emulated adapter was too slow for: later than the modelled link would have brought them."""
import re
import subprocess

SAID = re.compile(r"late messages (\d+) of (\d+)")  # at a program's end
SECONDS = 10


def said(text):
    """(late, of how many) that ended programs have said."""
    found = SAID.findall(text)
    return tuple(sum(int(each[i]) for each in found) for i in (0, 1))


def of_processes(table, processes):
    """The same of running processes, out of `softnic stats`: node, process, messages, late ones, …"""
    late = timed = 0
    for line in table.splitlines():
        words = line.split()
        if len(words) >= 4 and words[1].isdigit() and int(words[1]) in processes:
            timed, late = timed + int(words[2]), late + int(words[3])
    return late, timed


def running(programs, fabric, processes):
    """Nothing without an emulated adapter."""
    try:
        done = subprocess.run([str(programs / "softnic"), "stats", "--fabric", fabric], capture_output=True, text=True,
                              timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0, 0
    return of_processes(done.stdout, set(processes)) if done.returncode == 0 else (0, 0)


def percent(*counts):
    """Of pairs (late, of how many); None without a message."""
    late, timed = (sum(each[i] for each in counts) for i in (0, 1))
    return 100 * late / timed if timed else None


WORST = 1.0  # percent: beyond it a row says nothing about the link


def too_many(row):
    return row["late_percent"] is not None and row["late_percent"] > WORST
