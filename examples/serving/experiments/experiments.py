#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the experiments of the papers and writes a report with pictures: experiments.py [FIGURE...] [options].

A round measures all cells once. Results are kept cell by cell in OUT/results.csv, so that a run that was interrupted
goes on where it was, and the rounds of several runs add up."""
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
from commands import Commands, Work  # noqa: E402
from results import Malformed, Store  # noqa: E402
from rounds import ENOUGH  # noqa: E402
from runner import Runner  # noqa: E402
from runs import Runs  # noqa: E402

QUICK = Work(duration=0.5, settle=0.2, requests=50, least=1)
UNSEEN = 3.0  # s that a cell is expected to take that was never measured
LINK = re.compile(r"^\d+(\.\d+)?(G|M)b/s(,\d+(\.\d+)?(ns|us|ms))?$")


def parse(arguments):
    parser = argparse.ArgumentParser(prog="./run experiments", description=__doc__.splitlines()[0])
    parser.add_argument("figures", nargs="*", metavar="FIGURE",
                        help=f"{' '.join(matrix.FIGURES)}, or all (the default)")
    parser.add_argument("--quick", action="store_true",
                        help="one round of fewer models, clients and requests; it gives no verdicts")
    parser.add_argument("--rounds", type=int, metavar="N",
                        help=f"rounds to have in the end, with those of earlier runs in OUT (default {ENOUGH})")
    parser.add_argument("--cell", type=float, metavar="SECONDS", default=Work.duration,
                        help=f"how long each cell sends requests in a round (default {Work.duration:g})")
    parser.add_argument("--stop-after", type=float, metavar="MINUTES",
                        help="end after this time, at the end of a cell; the same command goes on there")
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
    for name in ("rounds", "cell", "stop_after"):
        if getattr(chosen, name) is not None and getattr(chosen, name) <= 0:
            parser.error(f"--{name.replace('_', '-')} must be above 0")
    chosen.rounds = chosen.rounds or (1 if chosen.quick else ENOUGH)
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


def round_of(cells, links):
    """[(cell, link)] in the order of a round, link after link; what needs no link only once."""
    return [(cell, link) for link in links for cell in plan.ordered(cells) if link == links[0] or cell.link_of(link)]


def waiting_cells(cells, links, store, machine, chosen):
    """[(round, cell, link)] to be measured, round after round."""
    return [(number, cell, link) for number in range(1, chosen.rounds + 1) for cell, link in round_of(cells, links)
            if chosen.again or not store.done(cell, link, number, like(cell, machine, chosen.quick))]


def other_devices_text(store, machine):
    """A sentence about rows of other devices; empty: there are none."""
    others = sorted({row["device"] for row in store.rows.values()} - {machine.device})
    return f"rows of another device ({', '.join(others)}) are measured again on {machine.device}" if others else ""


def measure(waiting, chosen, store, runner):
    """False: the time was over first."""
    begin, work = time.monotonic(), QUICK if chosen.quick else Work(duration=chosen.cell)
    costs = {row.key: row["cost"] or UNSEEN for row in store.rows.values()}
    for i, (number, cell, link) in enumerate(waiting):
        expected = costs.get((cell.key, cell.link_of(link)), UNSEEN)
        if chosen.stop_after and time.monotonic() - begin + expected > chosen.stop_after * 60:
            say(f"the time is over with {len(waiting) - i} cells left: the same command goes on here")
            return False
        mates = plan.mates([other for n, other, of in waiting[i:] if (n, of) == (number, link)])
        row = runner.run(cell, work, number, link, mates[1:])
        store.add(row)
        costs[row.key] = row["cost"]
        came = f"{row['requests']:.0f} requests, {row['total_mean']:.0f} us" if row.good else row["problem"]
        over = f", {row['link']}" if row["link"] else ""
        say(f"round {number}, {i + 1} of {len(waiting)}: {cell.key}{over}: {came} ({row['cost']:.1f} s)")
    return True


def run_all(chosen, machine, store, runs):
    """Measures what is not there yet."""
    links = chosen.link or [""]
    cells, _ = matrix.cells_of(figures_for(chosen, machine), machine)
    waiting = waiting_cells(cells, links, store, machine, chosen)
    wanted = chosen.rounds * len(round_of(cells, links))
    if len(waiting) < wanted:
        say(f"{wanted - len(waiting)} of {wanted} cells are there already")
    if others := other_devices_text(store, machine):
        say(others)
    if not waiting:
        return
    run = runs.add(time.strftime("%Y-%m-%d %H:%M"), chosen.command, chosen.quick, machine)
    known = {"device": machine.device, "run": run.id, "quick": "1" if chosen.quick else ""}
    pacing = any(links) and probe.pacing_works(chosen.programs)
    commands = Commands(chosen.programs, machine, chosen.models, pacing)
    with Runner(commands, chosen.out / "logs", known) as runner:
        measure(waiting, chosen, store, runner)


def write_report(chosen, store, runs):
    """Of what is there, on the machine of the last run. The exit status: 1 after a wrong answer or a failure."""
    if not runs.all:
        say(f"there is nothing in {chosen.out} yet")
        return 1
    machine = runs.all[-1].machine
    figures = figures_for(chosen, machine)
    print(report.write(chosen.out, figures, store.rows.values(), chosen.link, machine, runs))
    keys = {cell.key for figure in figures for cell in figure.cells()}
    bad = [row for row in store.rows.values()
           if row.cell.key in keys and (not row.good or row["wrong"] or row["failed"])]
    for row in bad:
        wrong = f"{row['wrong'] or 0:.0f} wrong, {row['failed'] or 0:.0f} failed"
        say(f"round {row['round']}, {row.cell.key}: {row['problem'] or wrong}")
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
