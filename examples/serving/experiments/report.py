# SPDX-License-Identifier: Apache-2.0
"""Writes report.md and its pictures from the results."""
import statistics
import textwrap
from dataclasses import replace

import late as lateness
import links as links_of
import matrix
from budget import LEAST_REQUESTS, PAPER_REQUESTS, SETTLE, SHORTEST
from claims import CLAIMS, FAILS, HOLDS, NOT_JUDGED, UNKNOWN, WEAKER, View
from late import WORST, too_many
from pictures import draw
from svg_shapes import time_text

WIDTH = 120  # of a line of prose


def wrapped(line):
    """Tables, headings, pictures and tags stay whole; lines of a list go on behind their dash."""
    if line[:1] in ("|", "#", "!", "<"):
        return line
    return textwrap.fill(line, WIDTH, break_long_words=False, break_on_hyphens=False,
                         subsequent_indent="  " if line.startswith("- ") else "")


def table(titles, rows):
    out = ["| " + " | ".join(titles) + " |", "|" + " --- |" * len(titles)]
    return out + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows] + [""]


# The run.

def times_text(dates):
    return dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"


def commands_text(runs):
    """Each command once, with how often and when it was given."""
    dates = {}
    for run in runs:
        dates.setdefault(run.command, []).append(run.date)
    return [f"- `{command}` ({f'{len(when)} times, ' if len(when) > 1 else ''}{times_text(when)})"
            for command, when in dates.items()]


def models_text(machine):
    """How the models were run."""
    names = {}
    for name, kind in machine.models.items():
        names.setdefault(kind, []).append(name)
    what = {"aoti": "compiled by AOTInductor", "torchscript": "TorchScript, whose kernels the host launches one by one",
            "builtin": "built in", "synthetic": "synthetic: they wait for as long as their GFLOPS take, with the sizes "
            "of the paper's, and answer with a hash of their input"}
    return "; ".join(f"{', '.join(sorted(members))}: {what.get(kind, kind)}" for kind, members in sorted(names.items()))


def run_text(machine, runs, rows, others):
    """The paragraphs about where, when and how; `others`: rows of other devices, which are not shown."""
    good = [row for row in rows if row.good]
    out = [f"Measured on {machine.gpu or 'a machine without a GPU'} ({machine.cpu}, {machine.cores} cores):", ""]
    out += commands_text(runs) + [""]
    if good:
        requests = [row["requests"] for row in good]
        minutes = sum(row["cost"] or 0.0 for row in rows) / 60
        out += [f"{len(good)} cells in {minutes:.1f} minutes. A cell has {min(requests):.0f} to {max(requests):.0f} "
                f"requests, in the median {statistics.median(requests):.0f}. A client sends the paper's "
                f"{PAPER_REQUESTS} where they fit the time. A cell lasts {SHORTEST:g} s and {LEAST_REQUESTS} requests "
                f"at least. Before it, calls are made until two series of them take the same time, for {SETTLE:g} s "
                "at most. Cells of a figure are measured in turn, one transport after another.", ""]
    quick = sum(1 for row in good if row["quick"])
    if quick:
        out += [f"{quick} cells are quick ones, with few requests and a short warm-up: a full run measures them again.",
                ""]
    processors = sorted({run.machine.cpu for run in runs})
    if len(processors) > 1:
        out += [f"The runs had different processors: {', '.join(processors)}.", ""]
    if others:
        names = ", ".join(sorted({row["device"] for row in others}))
        out += [f"{len(others)} cells of another device ({names}) are in the same folder, and not in this report.", ""]
    return out


def machine_text(machine, links):
    emulated = "on softnic, an emulated adapter: their times are the link model's, if there is one, else the " \
               "emulation's, and say nothing about hardware" if machine.emulated else "on an adapter of this machine"
    rows = [("processor", f"{machine.cpu}, {machine.cores} cores"), ("GPU", machine.gpu or "none"),
            ("transports", ", ".join(machine.transports)),
            ("link", f"{' and '.join(links)} (modelled)" if any(links) else "as fast as this machine"),
            ("models", models_text(machine))]
    if set(machine.transports) & {"rdma", "gdr", "gpu"}:
        rows.append(("rdma, gdr, gpu", emulated))
    rows.append(("MPS", "used" if machine.mps else "not installed"))
    return table(("", ""), rows)


# Figures.

def claims_text(figure, view):
    rows = []
    for claim in CLAIMS[figure.id]:
        here, verdict = claim.check(view)
        rows.append((claim.paper, here or "–", verdict))
    return table(("paper", "here", ""), rows) if rows else []


def late_cells_text(rows):
    late = [row for row in rows if too_many(row)]
    if not late:
        return []
    whose = ", ".join(sorted({row["transport"] for row in late}))
    return [f"In {len(late)} of {len(rows)} cells ({whose}) the emulation was too slow for more than {WORST:g} % of "
            "the messages. Claims about them are judged where the time by which the messages were late changes no "
            "verdict.", ""]


def figures_text(rows):
    titles = ("model", "transport", "request", "clients", "requests", "mean", "p50", "p99", "CoV", "wrong", "notes")
    lines = []
    for row in rows:
        cell = row.cell
        notes = [row["problem"], lateness.text(row), f"{cell.streams} streams" if cell.streams else "",
                 cell.sharing if cell.sharing != "streams" else "", "quick" if row["quick"] else "",
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


def drawn_over(figure, rows, link):
    """The figure whose pictures name the link."""
    title = links_of.title([link]) if any(row["link"] for row in rows) else ""
    return replace(figure, id=f"{figure.id}-{links_of.tag(link)}", title=figure.title + title) if link else figure


def figure_text(figure, rows, left_out, view, folder):
    out = [f"## {figure.id}: {figure.title}", ""]
    if left_out:
        reasons = "; ".join(f"{count} cells: {reason}" for reason, count in sorted(left_out.items()))
        out += [f"Left out: {reasons}.", ""]
    drawn = drawn_over(figure, rows, view.link)
    for name, picture in draw(drawn, [row for row in rows if row.good]):
        (folder / name).write_text(picture, encoding="utf-8")
        out += [f"![{drawn.title}]({name})", ""]
    out += claims_text(figure, view) + late_cells_text(rows)
    return out + (figures_text(rows) if rows else [])


def summary(figures, view):
    verdicts = [claim.check(view)[1] for figure in figures for claim in CLAIMS[figure.id]]
    count = {verdict: verdicts.count(verdict) for verdict in set(verdicts)}
    judged = [f"{count.get(verdict, 0)} {what}" for verdict, what in
              ((HOLDS, "hold"), (WEAKER, "hold, but weaker"), (FAILS, "do not hold"))]
    total = sum(count.get(verdict, 0) for verdict in (HOLDS, WEAKER, FAILS))
    out = f"Claims: {total} were judged, of which {judged[0]}, {judged[1]}, and {judged[2]}."
    if count.get(NOT_JUDGED):
        out += f" {count[NOT_JUDGED]} more were not judged, because the emulation was too slow for their cells."
    if count.get(UNKNOWN):
        out += f" {count[UNKNOWN]} were not measured."
    return out


INTRODUCTION = "What Hanafy et al. (IWQoS 2023) and Girondi et al. (EdgeSys 2024) measured, measured again. Each " \
    "figure has its picture, what the paper says, and what was seen here. A claim holds where the change has the " \
    "paper's direction and is at least half as large; others say what they need. Where one does not hold, or is " \
    "weaker, the stages say why."


def write(folder, figures, rows, links, machine, runs):
    """`rows`: {(key, link): row}; `links`: the first is the figures', others are compared with it; none: all that there
    are. Returns the report's path."""
    mine = {key: row for key, row in rows.items() if row["device"] == machine.device}
    others = [row for row in rows.values() if row["device"] != machine.device]
    links = links or links_of.of_rows(mine.values()) or [""]
    view, (cells, left_out) = View(mine, links[0]), matrix.cells_of(figures, machine)
    shown = [row for row in mine.values() if row.cell.key in {cell.key for cell in cells}]
    out = [f"# The experiments{links_of.title(links)}", ""] + run_text(machine, runs.of_rows(shown), shown, others)
    out += [INTRODUCTION, ""] + links_of.paper_text(links[0]) + [summary(figures, view), ""]
    out += links_of.late_text(shown, links)
    out += ["## The machine", ""] + machine_text(machine, links)
    wrong = sum(row["wrong"] or 0 for row in shown)
    out += [f"Wrong answers in all: {wrong:.0f}. A closed loop: each client has one call in flight.", ""]
    for figure in figures:
        members = [mine.get((cell.key, cell.link_of(links[0]))) for cell in figure.cells()]
        out += figure_text(figure, [row for row in members if row], left_out.get(figure.id, {}), view, folder)
    out += links_of.text(cells, mine, links, table, folder)
    path = folder / "report.md"
    path.write_text("\n".join(wrapped(line) for line in out), encoding="utf-8")
    return path
