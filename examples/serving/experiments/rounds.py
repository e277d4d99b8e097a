# SPDX-License-Identifier: Apache-2.0
"""Cells as the means of their rounds, and 95 % intervals: a bootstrap draws rounds, the same ones for all cells that
are compared."""
import itertools
import math
import random
from dataclasses import dataclass
from functools import lru_cache

from results import NUMBERS, Row, distribution_of, distribution_text

ENOUGH = 5      # rounds for a verdict
EXACT = 7       # up to this number of rounds all resamples are enumerated, else DRAWS of them are drawn
DRAWS = 2000
CONFIDENCE = 0.95


class Measured(Row):
    """A cell over one link: the means of its good rounds, column by column. `rows`: at least one."""
    def __init__(self, rows):
        super().__init__()
        self.drawn, self.known = rows, {}

    def __bool__(self):
        return True  # a column appears when it is asked for

    @property
    def rows(self):
        """{number of the round: row}"""
        return {int(row["round"]): row for row in self.drawn}

    def __missing__(self, column):
        values = [row[column] for row in self.drawn if row[column] is not None]
        if column == "inference_distribution":
            value = mean_distribution([distribution_of(words) for words in values])
        elif column in NUMBERS:
            value = mean(values)
        else:
            value = values[-1]
        self[column] = value
        return value

    def over(self, numbers):
        """The means of these rounds, which may repeat."""
        if numbers not in self.known:
            rows = self.rows
            self.known[numbers] = Measured([rows[number] for number in numbers])
        return self.known[numbers]

    def with_rows(self, change):
        return Measured([change(row) for row in self.drawn])


def mean(values):
    return sum(values) / len(values) if values else None


def mean_distribution(rounds):
    """Percentile by percentile."""
    return distribution_text((points[0][0], mean([at for _, at in points])) for points in zip(*rounds))


def measured(rows, device):
    """{(key, link): Measured} of this device. Quick rows count where there are no others, and a row counts only with
    the kind of model of the cell's last one; a cell without a good round has its last row."""
    cells = {}
    for row in rows:
        if row["device"] == device:
            cells.setdefault(row.key, []).append(row)
    out = {}
    for key, mine in cells.items():
        full = [row for row in mine if not row["quick"]] or mine
        good = [row for row in full if row.good and row["kind"] == full[-1]["kind"]]
        out[key] = Measured(good or full[-1:])
    return out


@lru_cache(maxsize=None)
def resamples(numbers):
    """[(drawn rounds, probability)]"""
    count = len(numbers)
    if count > EXACT:
        draw = random.Random(count)
        return [(tuple(draw.choices(numbers, k=count)), 1 / DRAWS) for _ in range(DRAWS)]
    ways = lambda drawn: math.factorial(count) / math.prod(math.factorial(drawn.count(i)) for i in set(drawn))
    return [(drawn, ways(drawn) / count**count)
            for drawn in itertools.combinations_with_replacement(numbers, count)]


@dataclass(frozen=True)
class Estimate:
    """With the interval's ends; of one round it has no width, and says nothing."""
    value: float
    low: float
    high: float
    rounds: int

    def interval_text(self, text):
        """Empty after one round."""
        return f" [{text(self.low)}, {text(self.high)}]" if self.rounds > 1 else ""

    def text(self, text):
        return text(self.value) + self.interval_text(text)


def ends(weighted):
    """Of (value, probability)."""
    out, below, tail = [], 0.0, (1 - CONFIDENCE) / 2
    for value, probability in sorted(weighted):
        below += probability
        if len(out) == 0 and below >= tail - 1e-12:
            out.append(value)
        if below >= 1 - tail - 1e-12:
            return out[0], value
    return out[0], value


def estimate(of, cells):
    """`of` turns the cells' means into a number, or nothing. Cells may be None; the rounds that all others have
    count."""
    shared = tuple(sorted(set.intersection(*(set(cell.rows) for cell in cells if cell is not None))))
    if not shared:
        return None
    at = lambda numbers: of([cell if cell is None else cell.over(numbers) for cell in cells])
    weighted = [(at(numbers), probability) for numbers, probability in resamples(shared)]
    if any(value is None for value, _ in weighted):
        return None
    return Estimate(at(shared), *ends(weighted), len(shared))


def estimate_of(row, column):
    """Of one cell's column."""
    return estimate(lambda rows: rows[0][column], [row])
