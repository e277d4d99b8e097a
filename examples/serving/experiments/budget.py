# SPDX-License-Identifier: Apache-2.0
"""Spreads the time of a run over its cells."""

PAPER_REQUESTS = 1000  # of each client
START_UP = 2.0         # s of a cell that go into starting and stopping its processes
SHORTEST = 0.3         # s


class Budget:
    """What a cell leaves of its part goes to those behind it."""
    def __init__(self, seconds, clock):
        self.clock = clock
        self.end = clock() + seconds

    def left(self):
        return max(0.0, self.end - self.clock())

    def duration(self, cells_left):
        """Seconds in which this cell sends requests."""
        return max(SHORTEST, self.left() / max(1, cells_left) - START_UP)


class Fixed:
    """The same for every cell: --quick."""
    def __init__(self, seconds):
        self.seconds = seconds

    def duration(self, _cells_left):
        return self.seconds
