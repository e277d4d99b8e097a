#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the experiments of the papers and writes a report with pictures: experiments.py [FIGURE...] [options].

Results are kept cell by cell in OUT/results.csv, so that a run that was interrupted goes on where it was."""
import argparse
import re
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench"))
# pylint: disable=wrong-import-position
import matrix  # noqa: E402
import probe  # noqa: E402
import report  # noqa: E402
from budget import PAPER_REQUESTS, Budget, Fixed  # noqa: E402
from results import Malformed, Store  # noqa: E402
from runner import Runner  # noqa: E402

QUICK_SECONDS, QUICK_REQUESTS = 0.5, 50
LINK = re.compile(r"^\d+(\.\d+)?(G|M)b/s(,\d+(\.\d+)?(ns|us|ms))?$")


def parse(arguments):
    parser = argparse.ArgumentParser(prog="./run experiments", description=__doc__.splitlines()[0])
    parser.add_argument("figures", nargs="*", metavar="FIGURE",
                        help=f"{' '.join(matrix.FIGURES)}, or all (the default)")
    parser.add_argument("--quick", action="store_true", help="fewer models, clients and requests")
    parser.add_argument("--budget", type=float, metavar="MINUTES", default=25,
                        help="spreads this time over the cells (default 25)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", default=ROOT / "build" / "experiments")
    parser.add_argument("--models", type=Path, metavar="FOLDER", help="of NAME.pt2 or NAME.pt, for a GPU")
    parser.add_argument("--link", default="", metavar="RATE,DELAY", help="models a link: 25Gb/s,1us")
    parser.add_argument("--report", action="store_true", help="measure nothing: write the report of what is there")
    parser.add_argument("--again", action="store_true", help="measure cells again that are there already")
    parser.add_argument("--programs", type=Path, metavar="FOLDER", default=ROOT / "build" / "release" / "bin",
                        help="where model_server, gateway and load are")
    chosen = parser.parse_args(arguments)
    names = [name for each in chosen.figures for name in each.split(",")] or ["all"]
    unknown = [name for name in names if name != "all" and name not in matrix.FIGURES]
    if unknown:
        parser.error(f"there is no figure {unknown[0]}: there are {', '.join(matrix.FIGURES)}")
    if chosen.link and not LINK.match(chosen.link):
        parser.error(f"'{chosen.link}' is no link: write 25Gb/s,1us")
    if chosen.budget <= 0:
        parser.error("--budget has to be above 0")
    chosen.figures = list(matrix.FIGURES) if "all" in names else list(dict.fromkeys(names))
    return chosen


def say(text):
    print(f"experiments: {text}", file=sys.stderr, flush=True)


def figures_for(chosen, machine):
    figures = [matrix.stand_ins(matrix.FIGURES[name], machine) for name in chosen.figures]
    return [matrix.quick(figure) for figure in figures] if chosen.quick else figures


def measure(cells, chosen, store, runner, link):
    waiting = [cell for cell in cells if not store.done(cell, link, chosen.again)]
    if len(waiting) < len(cells):
        say(f"{len(cells) - len(waiting)} cells are there already")
    budget = Fixed(QUICK_SECONDS) if chosen.quick else Budget(chosen.budget * 60, time.monotonic)
    requests = QUICK_REQUESTS if chosen.quick else PAPER_REQUESTS
    for number, cell in enumerate(waiting):
        row = runner.run(cell, requests, budget.duration(len(waiting) - number))
        store.add(row)
        came = f"{row['requests']:.0f} requests, {row['total_mean']:.0f} us" if row.good else row["problem"]
        say(f"{number + 1} of {len(waiting)}: {cell.key}: {came}")


def main(arguments=None):
    chosen = parse(arguments)
    if not (chosen.programs / "load").is_file():
        say(f"there is no load in {chosen.programs}: ./run build")
        return 1
    machine = probe.machine(chosen.programs, chosen.models, chosen.link)
    figures = figures_for(chosen, machine)
    cells, left_out = matrix.cells_of(figures, machine)
    try:
        store = Store(chosen.out)
        runner = Runner(chosen.programs, machine, chosen.models, bool(chosen.link) and
                        probe.pacing_works(chosen.programs), chosen.out / "logs")
        if not chosen.report:
            measure(cells, chosen, store, runner, machine.link)
    except (Malformed, OSError, UnicodeDecodeError) as error:
        say(str(error))
        return 1
    rows = {cell.key: store.rows[cell.key] for cell in cells if cell.key in store.rows}
    print(report.write(chosen.out, figures, rows, left_out, machine))
    bad = [row for row in rows.values() if not row.good or row["wrong"] or row["failed"]]
    for row in bad:
        say(f"{row.cell.key}: {row['problem'] or str(row['wrong']) + ' wrong, ' + str(row['failed']) + ' failed'}")
    return 1 if bad else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("interrupted; the next run goes on here")
        sys.exit(130)
