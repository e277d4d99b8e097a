# SPDX-License-Identifier: Apache-2.0
"""Results, a line of CSV for each cell and round. A run that was interrupted goes on after the last whole line."""
import csv
import io
import math
import os

from matrix import Cell

STAGES = ("request", "queue", "copy", "preprocessing", "inference", "response")
FIXED = ["model", "transport", "raw", "clients", "streams", "sharing", "priority_clients", "gpus", "by_host", "round"]
# `round`: from 1; each measures all cells once. `device`: what computed. `run`: its number in run.json. `quick`: 1
# where few requests were wanted.
WORDS = ["kind", "link", "device", "run", "quick", "problem", "inference_distribution"]
NUMBERS = (["requests", "wrong", "failed", "seconds", "rate", "total_mean", "total_p50", "total_p99", "total_cov"]
           + [f"{stage}_mean" for stage in STAGES]
           + ["inference_cov", "high_mean", "normal_mean", "client_user", "client_kernel", "server_user",
              "server_kernel", "server_device", "gateway_user", "gateway_kernel", "client_rss", "server_rss",
              "gpu_memory", "gpu_utilisation", "late_percent", "late_request_us",
              "late_response_us", "cost"])  # `cost`: s that the cell took, with all starts
COLUMNS = FIXED + WORDS + NUMBERS


class Malformed(Exception):
    """The file is not what the experiments write; the text says where."""


class Row(dict):
    """Figures of one cell, by column; durations in µs. Numbers that were not measured are None."""
    @property
    def cell(self):
        return Cell(self["model"], self["transport"], self["raw"] == "1", int(self["clients"]), int(self["streams"]),
                    self["sharing"], int(self["priority_clients"]), int(self["gpus"]), self["by_host"] == "1")

    @property
    def key(self):
        return self.cell.key, self["link"]

    @property
    def place(self):
        """A later row of the same place counts in its stead."""
        return (*self.key, self["device"], self["quick"], self["round"])

    @property
    def good(self):
        return not self["problem"] and bool(self["requests"])


def row_of(cell, number, **figures):
    """`number`: of the round."""
    unknown = set(figures) - set(WORDS + NUMBERS)
    if unknown:
        raise KeyError(f"no columns: {sorted(unknown)}")
    row = Row({name: "" for name in WORDS} | {name: None for name in NUMBERS})
    row.update(model=cell.model, transport=cell.transport, raw="1" if cell.raw else "0", clients=str(cell.clients),
               streams=str(cell.streams), sharing=cell.sharing, priority_clients=str(cell.priority_clients),
               gpus=str(cell.gpus), by_host="1" if cell.by_host else "0", round=str(number))
    row.update(figures)
    return row


def distribution_text(points):
    """[[percent, µs]] as "5:1.2 10:1.3"."""
    return " ".join(f"{percent:g}:{value:.3f}" for percent, value in points)


def distribution_of(words):
    return [tuple(float(part) for part in point.split(":")) for point in words.split()]


def line_of(row):
    out = io.StringIO()
    cells = [row[name] for name in COLUMNS]
    csv.writer(out, lineterminator="\n").writerow(
        ["" if value is None else f"{value:.6g}" if isinstance(value, float) else value for value in cells])
    return out.getvalue()


def header():
    return ",".join(COLUMNS) + "\n"


def _number(value, name, place):
    if value == "":
        return None
    try:
        number = float(value)
    except ValueError as error:
        raise Malformed(f"{place}: {name} is {value!r}, not a number") from error
    if not math.isfinite(number) or number < 0:
        raise Malformed(f"{place}: {name} is {value!r}, not a number of at least 0")
    return number


def _checked(values, place):
    if len(values) != len(COLUMNS):
        raise Malformed(f"{place}: {len(values)} columns in place of {len(COLUMNS)}")
    row = Row(zip(COLUMNS, values))
    for name in NUMBERS:
        row[name] = _number(row[name], name, place)
    for name in ("clients", "streams", "priority_clients", "gpus", "round"):
        if not row[name].isdigit():
            raise Malformed(f"{place}: {name} is {row[name]!r}, not a number")
    for name in ("raw", "by_host"):
        if row[name] not in ("0", "1"):
            raise Malformed(f"{place}: {name} is {row[name]!r}, not 0 or 1")
    try:
        distribution_of(row["inference_distribution"])
    except ValueError as error:
        raise Malformed(f"{place}: inference_distribution is not a list of percent:µs") from error
    return row


def read(content):
    """{place: its row}; the last row of a place counts."""
    lines = list(csv.reader(io.StringIO(content)))
    if lines and set(COLUMNS) - set(lines[0]) == {"round"}:
        raise Malformed("line 1: results of before there were rounds: give another folder with --out and measure again")
    if not lines or lines[0] != COLUMNS:
        raise Malformed("line 1: not the columns of these experiments: give another folder with --out")
    rows = {}
    for number, values in enumerate(lines[1:], 2):
        put(rows, _checked(values, f"line {number}"))
    return rows


def put(rows, row):
    """In the order in which they were measured."""
    rows.pop(row.place, None)
    rows[row.place] = row


class Store:
    """The file `results.csv` of a folder."""
    def __init__(self, folder):
        self.path = folder / "results.csv"
        folder.mkdir(parents=True, exist_ok=True)
        content = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        # A line that was cut off by an interruption is measured again.
        content = content[:content.rfind("\n") + 1]
        self.rows = read(content) if content else {}
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(content or header())

    def done(self, cell, link, number, like):
        """Whether this round was measured, and well. `like`: the columns `kind`, `device` and `quick` that a row of
        this run would have; a full row counts for a quick run as well."""
        places = [(cell.key, cell.link_of(link), like["device"], quick, str(number)) for quick in {"", like["quick"]}]
        return any(row is not None and row.good and row["kind"] == like["kind"] for row in map(self.rows.get, places))

    def add(self, row):
        put(self.rows, row)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(line_of(row))
            file.flush()
            os.fsync(file.fileno())
