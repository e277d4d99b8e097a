# SPDX-License-Identifier: Apache-2.0
"""Writes report.md and its pictures from the results: a page that says it all, the papers' figures, and how it was
measured."""
import statistics
import textwrap
from dataclasses import replace

import front
import late as lateness
import links as links_of
import matrix
from claims import CLAIMS, View
from commands import Work
from late import WORST, too_many
from pictures import draw
from reasons import OVERLAP, overlap
from rounds import estimate_of, measured
from svg_shapes import time_text

WIDTH = 120  # of a line of prose


def wrapped(line):
    """Tables, headings, pictures and tags stay whole; lines of a list go on after their dash."""
    if line[:1] in ("|", "#", "!", "<"):
        return line
    return textwrap.fill(line, WIDTH, break_long_words=False, break_on_hyphens=False,
                         subsequent_indent="  " if line.startswith("- ") else "")


def table(titles, rows):
    out = ["| " + " | ".join(titles) + " |", "|" + " --- |" * len(titles)]
    return out + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows] + [""]


def folded(title, lines):
    return [f"<details><summary>{title}</summary>", "", *lines, "</details>", ""]


# How it was measured.

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
    what = {"aoti": "compiled by AOTInductor", "torchscript": "TorchScript", "builtin": "built in",
            "synthetic": "synthetic: they wait for as long as their GFLOPS take, with the sizes of the paper's, and "
            "answer with a hash of their input"}
    return "; ".join(f"{', '.join(sorted(members))}: {what.get(kind, kind)}" for kind, members in sorted(names.items()))


def rounds_text(rows):
    """Of single rounds: how many, how long they took, and what was sent in them."""
    costs, full = {}, Work()
    for row in rows:
        costs[row["round"]] = costs.get(row["round"], 0.0) + (row["cost"] or 0.0) / 60
    requests = [row["requests"] for row in rows if row.good]
    if not requests:
        return []
    return [f"{len(costs)} rounds of up to {len({row.key for row in rows})} cells; a round took "
            f"{min(costs.values()):.1f} to {max(costs.values()):.1f} minutes. In a round a cell has "
            f"{min(requests):.0f} to {max(requests):.0f} requests, in the median {statistics.median(requests):.0f}: a "
            f"client sends the paper's {full.requests} if they fit the cell's time, and all clients together at least "
            f"{full.least}. Before that, calls are made until two series of them take the same time, for at most "
            f"{full.settle:g} s. A closed loop: each client has one call in flight. A figure is the mean over the "
            "rounds. Intervals are 95 % ones of a bootstrap over rounds, which draws the same rounds for all cells "
            "that are compared.", ""]


def remarks(cells, rows, runs, others, links):
    """What a reader should know of these cells and their rows; `others`: of other devices, which are not shown."""
    wrong, quick = sum(row["wrong"] or 0 for row in rows), sum(1 for row in rows if row["quick"])
    processors = sorted({run.machine.cpu for run in runs})
    said = [f"Wrong answers in all: {wrong:.0f}.", links_of.late_text(cells, links),
            quick and f"{quick} rows are of quick runs, which give no verdicts.",
            len(processors) > 1 and f"The runs had different processors: {', '.join(processors)}.",
            others and f"{len(others)} rows of another device ({', '.join(sorted({row['device'] for row in others}))}) "
            "are in the same folder, and not in this report."]
    return [" ".join(filter(None, said)), ""]


def machine_text(machine, links):
    rows = [("processor", f"{machine.cpu}, {machine.cores} cores"), ("GPU", machine.gpu or "none"),
            ("transports", ", ".join(machine.transports)),
            ("link", f"{' and '.join(links)} (modelled)" if any(links) else "as fast as this machine"),
            ("models", models_text(machine)),
            ("rdma, gdr, gpu", "on softnic, an emulated adapter" if machine.emulated else "on an adapter"),
            ("MPS", "used" if machine.mps else "not installed")]
    return table(("", ""), rows)


# Figures.

def claims_text(figure, view):
    found = [(claim.paper, claim.check(view)) for claim in CLAIMS.get(figure.id, [])]
    rows = [(paper, each.seen or "–", each.verdict, each.reason or "–") for paper, each in found]
    return table(("paper", "here", "verdict", "why"), rows) if rows else []


def doubts(rows):
    """What is wrong with some of the cells' times."""
    late, twice = ([row for row in rows if row.good and bad(row)] for bad in (too_many, is_counted_twice))
    out = []
    if late:
        whose = ", ".join(sorted({row["transport"] for row in late}))
        out += [f"In {len(late)} of {len(rows)} cells ({whose}) the emulation was too slow for more than {WORST:g} % "
                "of the messages. Claims about them are judged if the time by which the messages were late changes no "
                "verdict.", ""]
    if twice:
        named = ", ".join(f"{row.cell.key} ({overlap(row):+.1f} %)" for row in twice)
        out += [f"Stages add up to more than {OVERLAP:g} % beyond the total in: {named}. A copy to the GPU from memory "
                "that is not pinned counts as `copy` and as `queue`.", ""]
    return out


def is_counted_twice(row):
    return overlap(row) > OVERLAP


def notes(row):
    cell, failed = row.cell, sum(each["failed"] or 0 for each in row.rows.values())
    return "; ".join(filter(None, [
        row["problem"], lateness.text(row), f"{cell.streams} streams" if cell.streams else "",
        cell.sharing if cell.sharing != "streams" else "", "quick" if row["quick"] else "",
        f"{failed:.0f} failed" if failed else "",
        f"stages {overlap(row):+.1f} %" if row.good and is_counted_twice(row) else ""]))


def cells_text(rows):
    titles = ("model", "transport", "request", "clients", "rounds", "requests", "mean", "p50", "p99", "CoV", "wrong",
              "notes")
    lines = []
    for row in rows:
        cell = row.cell
        way = ", ".join(filter(None, (cell.transport, cell.stages_text)))
        what = (cell.model, way, "raw" if cell.raw else "tensors", cell.clients)
        if not row["requests"]:
            lines.append((*what, 0, 0, "–", "–", "–", "–", "–", notes(row)))
            continue
        sums = {name: sum(each[name] or 0 for each in row.rows.values()) for name in ("requests", "wrong")}
        lines.append((*what, len(row.rows), f"{sums['requests']:.0f}", estimate_of(row, "total_mean").text(time_text),
                      time_text(row["total_p50"]), time_text(row["total_p99"]), f"{row['total_cov']:.2f}",
                      f"{sums['wrong']:.0f}", notes(row)))
    return folded("All cells", table(titles, lines)) if rows else []


def pictures_text(figure, rows, view, folder):
    """`figure`: its pictures name the link."""
    link = links_of.title([view.link]) if any(row["link"] for row in rows) else ""
    drawn = replace(figure, id=f"{figure.id}-{links_of.tag(view.link)}", title=figure.title + link) if view.link \
        else figure
    out = []
    for name, picture in draw(drawn, rows):
        (folder / name).write_text(picture, encoding="utf-8")
        out += [f"![{drawn.title}]({name})", ""]
    return out


def figure_text(figure, rows, left_out, view, folder):
    out = [f"## {figure.id}: {figure.title}", ""]
    if left_out:
        reasons = "; ".join(f"{count} cells: {reason}" for reason, count in sorted(left_out.items()))
        out += [f"Left out: {reasons}.", ""]
    return out + pictures_text(figure, rows, view, folder) + claims_text(figure, view) + doubts(rows) + cells_text(rows)


def write(folder, figures, rows, links, machine, runs):
    """`rows`: of single rounds, in their order; `links`: the first is the figures', others are compared with it; none:
    all that there are. Returns the report's path."""
    rows = list(rows)
    found = measured(rows, machine.device)
    links = links or links_of.of_rows(found.values()) or [""]
    view, (cells, left_out) = View(found, links[0], machine.emulated), matrix.cells_of(figures, machine)
    of = lambda figure: list(filter(None, (found.get((cell.key, cell.link_of(links[0]))) for cell in figure.cells())))
    keys = {cell.key for cell in cells}
    shown = [cell for (key, _), cell in found.items() if key in keys]
    mine = [row for cell in shown for row in cell.rows.values()]
    papers = [figure for figure in figures if figure.id != "overview"]
    first = next((figure for figure in figures if figure not in papers), matrix.FIGURES["overview"])
    above, below = front.page(first, papers, view, links, machine)
    out = [f"# The experiments{links_of.title(links)}", "", *above]
    out += pictures_text(first, of(first), view, folder) + below
    for figure in papers:
        out += figure_text(figure, of(figure), left_out.get(figure.id, {}), view, folder)
    out += links_of.text(cells, found, links, table, folder)
    made_by = runs.of_rows(mine)
    others = [row for row in rows if row["device"] != machine.device]
    out += ["## How it was measured", "", *remarks(shown, mine, made_by, others, links)]
    out += folded("Runs, rounds and the machine", commands_text(made_by) + [""] + rounds_text(mine)
                  + machine_text(machine, links))
    path = folder / "report.md"
    path.write_text("\n".join(wrapped(line) for line in out), encoding="utf-8")
    return path
