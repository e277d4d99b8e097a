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
import plan  # noqa: E402
import probe  # noqa: E402
import report  # noqa: E402
from budget import LEAST_REQUESTS, PAPER_REQUESTS, Budget, Fixed  # noqa: E402
from commands import Commands, Work  # noqa: E402
from results import Malformed, Store  # noqa: E402
from runner import Runner  # noqa: E402
from runs import Runs  # noqa: E402

QUICK_SECONDS, QUICK_REQUESTS, QUICK_SETTLE = 0.5, 50, 0.2
LINK = re.compile(r"^\d+(\.\d+)?(G|M)b/s(,\d+(\.\d+)?(ns|us|ms))?$")


def parse(arguments):
    parser = argparse.ArgumentParser(prog="./run experiments", description=__doc__.splitlines()[0])
    parser.add_argument("figures", nargs="*", metavar="FIGURE",
                        help=f"{' '.join(matrix.FIGURES)}, or all (the default)")
    parser.add_argument("--quick", action="store_true", help="fewer models, clients and requests")
    parser.add_argument("--budget", type=float, metavar="MINUTES", default=25,
                        help="spreads this time over the cells, earlier runs into OUT included (default 25)")
    parser.add_argument("--stop-after", type=float, metavar="MINUTES",
                        help="end after so long, at the end of a cell; the same command goes on there")
    parser.add_argument("--out", type=Path, metavar="FOLDER", default=ROOT / "build" / "experiments")
    parser.add_argument("--models", type=Path, metavar="FOLDER", help="of NAME.pt2 or NAME.pt, for a GPU")
    parser.add_argument("--link", action="append", metavar="RATE,DELAY",
                        help="models a link: 25Gb/s,1us; given several times, the report compares them")
    parser.add_argument("--report", action="store_true", help="measure nothing: write the report of what is there")
    parser.add_argument("--again", action="store_true", help="measure cells again that are there already")
    parser.add_argument("--programs", type=Path, metavar="FOLDER", default=ROOT / "build" / "release" / "bin",
                        help="where model_server, gateway and load are")
    chosen = parser.parse_args(arguments)
    names = [name for each in chosen.figures for name in each.split(",")] or ["all"]
    unknown = [name for name in names if name != "all" and name not in matrix.FIGURES]
    if unknown:
        parser.error(f"there is no figure {unknown[0]}: there are {', '.join(matrix.FIGURES)}")
    for link in chosen.link or []:
        if not LINK.match(link):
            parser.error(f"'{link}' is not a valid link: write 25Gb/s,1us")
    for name in ("budget", "stop_after"):
        if getattr(chosen, name) is not None and getattr(chosen, name) <= 0:
            parser.error(f"--{name.replace('_', '-')} must be above 0")
    chosen.figures = list(matrix.FIGURES) if "all" in names else list(dict.fromkeys(names))
    chosen.command = command_text(sys.argv[1:] if arguments is None else arguments)
    return chosen


def command_text(arguments):
    """As a reader would give it on another machine: without folders of this one."""
    words, skip = ["./run experiments"], False
    for word in arguments:
        folder = word.split("=")[0] in ("--out", "--models", "--programs")
        if not skip and not folder:
            words.append(word)
        skip = folder and "=" not in word
    return " ".join(words)


def say(text):
    print(f"experiments: {text}", file=sys.stderr, flush=True)


def figures_for(chosen, machine):
    figures = [matrix.stand_ins(matrix.FIGURES[name], machine) for name in chosen.figures]
    return [matrix.quick(figure) for figure in figures] if chosen.quick else figures


def like(cell, machine, quick):
    """The columns of a row of this cell that say whether an earlier one counts."""
    return {"kind": machine.models[cell.model], "device": machine.device, "quick": "1" if quick else ""}


def waiting_cells(cells, links, store, machine, chosen):
    """[(cell, link)] to be measured, link after link; what needs no link only once."""
    out = []
    for i, link in enumerate(links):
        for cell in plan.ordered(cells):
            if i > 0 and not cell.link_of(link):
                continue
            if chosen.again or not store.done(cell, link, like(cell, machine, chosen.quick)):
                out.append((cell, link))
    return out


def other_device_text(cells, links, store, machine):
    """A sentence about rows of another device, which are measured again; empty: there are none."""
    rows = [store.rows.get((cell.key, cell.link_of(link))) for cell in cells for link in links]
    others = sorted({row["device"] for row in rows if row} - {machine.device})
    return f"rows of another device ({', '.join(others)}) are measured again on {machine.device}" if others else ""


def work_for(cell, chosen, budget, cells_left, starts):
    if chosen.quick:
        return Work(QUICK_REQUESTS, budget.duration(cells_left, starts), 1, QUICK_SETTLE)
    return Work(PAPER_REQUESTS, budget.duration(cells_left, starts), -(-LEAST_REQUESTS // cell.clients))


def starts_of(waiting):
    return sum(plan.starts([cell for cell, of in waiting if of == link]) for link in {link for _, link in waiting})


def measure(waiting, chosen, store, runner, spent):
    """False: the time was over first."""
    begin = time.monotonic()
    budget = Fixed(QUICK_SECONDS) if chosen.quick else Budget(chosen.budget * 60, time.monotonic, spent)
    for number, (cell, link) in enumerate(waiting):
        rest = waiting[number:]
        mates = plan.mates([other for other, of in rest if of == link])
        starts = starts_of(rest)
        ahead = 0.0 if runner.servers.group == (link, plan.group_of(cell)) else plan.starts(mates)
        if not ahead:
            starts -= plan.starts(mates)
        work = work_for(cell, chosen, budget, len(rest), starts)
        expected = work.duration + budget.expected(1, ahead)
        if chosen.stop_after and time.monotonic() - begin + expected > chosen.stop_after * 60:
            say(f"the time is over with {len(rest)} cells left: the same command goes on here")
            return False
        row = runner.run(cell, work, link, mates[1:])
        store.add(row)
        budget.saw(row["cost"], row["seconds"] or 0.0, runner.started, runner.weights)
        came = f"{row['requests']:.0f} requests, {row['total_mean']:.0f} us" if row.good else row["problem"]
        over = f", {row['link']}" if row['link'] else ""
        say(f"{number + 1} of {len(waiting)}: {cell.key}{over}: {came} ({row['cost']:.1f} s)")
    return True


def run_all(chosen, machine, store, runs):
    """Measures what is not there yet."""
    links = chosen.link or [""]
    figures = figures_for(chosen, machine)
    cells, _ = matrix.cells_of(figures, machine)
    waiting = waiting_cells(cells, links, store, machine, chosen)
    wanted = len(waiting_cells(cells, links, Nothing(), machine, chosen))
    if len(waiting) < wanted:
        say(f"{wanted - len(waiting)} of {wanted} cells are there already")
    if others := other_device_text(cells, links, store, machine):
        say(others)
    if not waiting:
        return True
    run = runs.add(time.strftime("%Y-%m-%d %H:%M"), chosen.command, chosen.quick, machine)
    known = {"device": machine.device, "run": run.id, "quick": "1" if chosen.quick else ""}
    pacing = any(links) and probe.pacing_works(chosen.programs)
    commands = Commands(chosen.programs, machine, chosen.models, pacing)
    spent = sum(row["cost"] or 0.0 for row in store.rows.values()
                if row["device"] == machine.device and not row["quick"] and not chosen.again)
    with Runner(commands, chosen.out / "logs", known) as runner:
        return measure(waiting, chosen, store, runner, spent)


class Nothing:
    """A store without rows."""
    rows = {}

    def done(self, *_):
        return False


def write_report(chosen, store, runs):
    """Of what is there, on the machine of the last run. The exit status: 1 after a wrong answer or a failure."""
    if not runs.all:
        say(f"there is nothing in {chosen.out} yet")
        return 1
    machine = runs.all[-1].machine
    figures = figures_for(chosen, machine)
    print(report.write(chosen.out, figures, store.rows, chosen.link, machine, runs))
    keys = {cell.key for figure in figures for cell in figure.cells()}
    bad = [row for (key, _), row in store.rows.items()
           if key in keys and (not row.good or row["wrong"] or row["failed"])]
    for row in bad:
        say(f"{row.cell.key}: {row['problem'] or str(row['wrong']) + ' wrong, ' + str(row['failed']) + ' failed'}")
    return 1 if bad else 0


def main(arguments=None):
    chosen = parse(arguments)
    try:
        store, runs = Store(chosen.out), Runs(chosen.out)
        if not chosen.report:
            if not (chosen.programs / "load").is_file():
                say(f"there is no load in {chosen.programs}: ./run build")
                return 1
            run_all(chosen, probe.machine(chosen.programs, chosen.models), store, runs)
        return write_report(chosen, store, runs)
    except (Malformed, OSError, UnicodeDecodeError) as error:
        say(str(error))
        return 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("interrupted; the next run goes on here")
        sys.exit(130)
