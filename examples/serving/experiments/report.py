# SPDX-License-Identifier: Apache-2.0
"""Writes report.md and its pictures from the results."""
import textwrap

from claims import CLAIMS, View
from pictures import draw
from svg_shapes import time_text

WORST_LATE = 1.0  # percent


WIDTH = 120  # of a line of prose


def wrapped(line):
    return line if line[:1] in ("|", "#", "!", "<") else textwrap.fill(line, WIDTH, break_long_words=False)


def table(titles, rows):
    out = ["| " + " | ".join(titles) + " |", "|" + " --- |" * len(titles)]
    return out + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows] + [""]


def machine_text(machine):
    emulated = "on softnic, an emulated adapter: their times are the link model's, if there is one, else the " \
               "emulation's, and say nothing about hardware" if machine.emulated else "on an adapter of this machine"
    synthetic = sorted(name for name, kind in machine.models.items() if kind == "synthetic")
    rows = [("processor", f"{machine.cpu}, {machine.cores} cores"), ("GPU", machine.gpu or "none"),
            ("transports", ", ".join(machine.transports)),
            ("link", f"{machine.link} (modelled)" if machine.link else "as fast as this machine")]
    if set(machine.transports) & {"rdma", "gdr", "gpu"}:
        rows.append(("rdma, gdr, gpu", emulated))
    if synthetic:
        rows.append(("synthetic", ", ".join(synthetic) + ": models that wait for as long as their GFLOPS take, with "
                     "the sizes of the paper's, and answer with a hash of their input"))
    rows.append(("MPS", "used" if machine.mps else "not installed"))
    return table(("", ""), rows)


def claims_text(figure, view):
    rows = []
    for claim in CLAIMS[figure.id]:
        here, verdict = claim.check(view)
        rows.append((claim.paper, here or "–", verdict))
    return table(("paper", "here", ""), rows) if rows else []


def late_text(row):
    late = row["late_percent"]
    return "" if late is None or late <= WORST_LATE else f"{late:.1f} % late"


def late_cells_text(rows):
    late = [row["transport"] for row in rows if late_text(row)]
    if not late:
        return []
    whose = ", ".join(sorted(set(late)))
    return [f"In {len(late)} cells ({whose}) the emulation was too slow for more than "
            f"{WORST_LATE:g} % of the messages: they take longer than the link, and claims about them mean little.", ""]


def figures_text(rows):
    titles = ("model", "transport", "request", "clients", "requests", "mean", "p50", "p99", "CoV", "wrong", "notes")
    lines = []
    for row in rows:
        cell = row.cell
        notes = [row["problem"], late_text(row), f"{cell.streams} streams" if cell.streams else "",
                 cell.sharing if cell.sharing != "streams" else "",
                 f"{row['failed']:.0f} failed" if row["failed"] else ""]
        what = (cell.model, cell.transport, "raw" if cell.raw else "tensors", cell.clients)
        said = "; ".join(filter(None, notes))
        if not row["requests"]:
            lines.append((*what, 0, "–", "–", "–", "–", "–", said))
            continue
        lines.append((*what, f"{row['requests']:.0f}", time_text(row["total_mean"]), time_text(row["total_p50"]),
                      time_text(row["total_p99"]), f"{row['total_cov']:.2f}", f"{row['wrong']:.0f}",
                      said))
    return ["<details><summary>All figures</summary>", ""] + table(titles, lines) + ["</details>", ""]


def figure_text(figure, rows, left_out, folder):
    out = [f"## {figure.id}: {figure.title}", ""]
    if left_out:
        reasons = "; ".join(f"{count} cells: {reason}" for reason, count in sorted(left_out.items()))
        out += [f"Left out: {reasons}.", ""]
    pictures = draw(figure, [row for row in rows if row.good])
    for name, picture in pictures:
        (folder / name).write_text(picture, encoding="utf-8")
        out += [f"![{figure.title}]({name})", ""]
    out += claims_text(figure, View({row.cell.key: row for row in rows})) + late_cells_text(rows)
    return out + (figures_text(rows) if rows else [])


def summary(figures, view):
    counts = {}
    for figure in figures:
        for claim in CLAIMS[figure.id]:
            verdict = claim.check(view)[1]
            counts[verdict] = counts.get(verdict, 0) + 1
    return ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))


def write(folder, figures, rows, left_out, machine):
    """`rows`: {key: row}; `left_out`: {figure: {reason: how many cells}}. Returns the report's path."""
    view = View(rows)
    out = ["# The experiments", "",
           "What Hanafy et al. (IWQoS 2023) and Girondi et al. (EdgeSys 2024) measured, measured again. Each figure "
           "has its picture, what the paper says, and what was seen here. A claim holds where the change has the "
           "paper's direction and is at least half as large; others say what they need.", "",
           f"Claims: {summary(figures, view)}.", ""]
    out += ["## The machine", ""] + machine_text(machine)
    wrong = sum(row["wrong"] or 0 for row in rows.values())
    out += [f"Wrong answers in all: {wrong:.0f}. A closed loop: each client has one call in flight. Numbers "
            "of requests are those that fitted the time.", ""]
    for figure in figures:
        members = [rows[cell.key] for cell in figure.cells() if cell.key in rows]
        out += figure_text(figure, members, left_out.get(figure.id, {}), folder)
    path = folder / "report.md"
    path.write_text("\n".join(wrapped(line) for line in out), encoding="utf-8")
    return path


