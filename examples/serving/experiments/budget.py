# SPDX-License-Identifier: Apache-2.0
"""Spreads the time of a run over its cells."""

PAPER_REQUESTS = 1000  # of each client
LEAST_REQUESTS = 100   # of a cell, all clients together
SHORTEST = 1.0         # s in which a cell sends requests
SETTLE = 0.8           # s of a warm-up, at most; at least a quarter
# What is assumed until it was seen, in s.
CELL = 2.0             # of a cell beside its measurement: its clients connect and warm up, processes end
START = 5.0            # until a server of one process has loaded its model
FURTHER_PROCESS = 0.25  # of START, for each further process of a server: they start beside each other


def weight(processes):
    """Of a server's start: 1 is one of one process."""
    return 1 + (processes - 1) * FURTHER_PROCESS


class Mean:
    """Of what was seen; the assumed value counts like one more."""
    def __init__(self, assumed):
        self.sum, self.count = assumed, 1.0

    def add(self, value, count=1.0):
        self.sum += value
        self.count += count

    @property
    def value(self):
        return self.sum / self.count


class Budget:
    """What a cell leaves of its part goes to those behind it. `spent`: seconds of earlier runs of the same matrix."""
    def __init__(self, seconds, clock, spent=0.0):
        self.clock = clock
        self.end = clock() + seconds - spent
        self.cell, self.start = Mean(CELL), Mean(START)

    def left(self):
        return max(0.0, self.end - self.clock())

    def expected(self, cells, starts):
        """Seconds that these cost beside the measurements; `starts`: weights, added up."""
        return cells * self.cell.value + starts * self.start.value

    def duration(self, cells, starts):
        """Seconds in which the next of so many cells sends requests."""
        return max(SHORTEST, (self.left() - self.expected(cells, starts)) / max(1, cells))

    def saw(self, whole, measured, started, weights):
        """A cell took `whole` seconds, `measured` of them with requests, `started` for servers of these weights."""
        self.cell.add(max(0.0, whole - measured - started))
        if weights:
            self.start.add(started, weights)


class Fixed:
    """The same for every cell: --quick."""
    def __init__(self, seconds):
        self.seconds = seconds

    def expected(self, cells, _starts):
        return cells * self.seconds

    def duration(self, _cells, _starts):
        return self.seconds

    def saw(self, *_seen):
        pass
