# SPDX-License-Identifier: Apache-2.0
"""Tests the tests with changes that nobody chose: draws them by a seed, and runs the tests that reach each.

    mutate.py --random N [--seed S] [FOLDER or FILE...]
    mutate.py --lines [FOLDER or FILE...]   instead: which lines no test runs
      --built K     besides K mutants of constants and of what members begin with, which cost a build each
      --by HOUSE    only tests of this house (may be repeated); without it, of all that the change can reach
      --again       runs the mutants that have a result as well, and those that are marked as equivalent
      --jobs N      compilers at once, and half of the tests (default: one a core)
      --json FILE   writes the results there too

The mutants of a seed are in one build, build/mutate/random/tree; ACCEL_MUTANT chooses one. A run that was ended goes
on. What was noticed stays so as long as the sources stay; the others run again when tests that reach them change.
"""
import argparse
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from houses import HOUSES, USERS
from mutation import lines, report
from mutation.built import Built
from mutation.plan import Builder, CannotBuild, Plan
from mutation.schema import Sources
from mutation.suites import suites_of
from mutation.trial import Record, Trial, Unusable, print_of_suites


def reached_from(houses):
    """The houses whose tests can run code of these."""
    found = set().union(*(USERS[house] for house in houses))
    return [house for house in HOUSES if house in found]


def targets_of(top, houses):
    """What the tests of these houses need (scripts/houses.sh), and softnic, on which they run."""
    script = '. scripts/houses.sh; for each in "$@"; do echo ${house_targets[$each]}; done'
    said = subprocess.run(["bash", "-c", script, "houses", *houses], cwd=top, capture_output=True, text=True,
                          check=True)
    return [*dict.fromkeys(said.stdout.split()), "softnic_cli"]


def build(plan, sources, bench, houses, say):
    bench.copy(leave=plan.files())
    # Nothing that needs a GPU runs without one, and nvcc takes long.
    bench.configure(f"-DACCEL_CUDA={'AUTO' if Path('/dev/nvidiactl').exists() else 'OFF'}")
    builder, targets = Builder(plan, sources, bench, say), targets_of(bench.top, houses)
    builder.make(targets)
    return builder, targets


def recorded(of, suites, key):
    """The record of a run of all tests, with a word on those that cannot be used."""
    record = Record(of.folder, 2 * of.options.jobs, of.say)
    record.make(suites, [each.number for each in of.plan.mutants], key)
    if bad := record.failed(suites):
        of.say(f"these tests fail without a mutant, and are left out: {', '.join(each.name for each in bad)}")
    return record


CANNOT = (CannotBuild, Unusable)


class Lines:
    """--lines: which lines no test runs."""

    def __init__(self, top, options, bench, say):
        self.top, self.options, self.bench, self.say = Path(top), options, bench, say
        self.folder = bench.folder / "-".join(["lines", *options.folders]).replace("/", "_")
        self.plan = lines.Marks(top, options.folders)

    def __call__(self):
        houses = self.options.by or reached_from(self.plan.houses)
        build(self.plan, lines.MarkedSources(self.top, self.bench.tree), self.bench, houses, self.say)
        suites = suites_of(self.bench.build_folder, houses)
        record = recorded(self, suites, f"{self.plan.print} {self.plan.dropped}")
        reached = {number for test in record.tests.values() for number in test["reached"]}
        return lines.not_run(self.plan.mutants, reached)


class Random:
    """One seed."""

    def __init__(self, top, options, bench, say):
        self.top, self.options, self.bench, self.say = Path(top), options, bench, say
        parts = [str(options.seed), str(options.random), *options.folders]
        self.folder = bench.folder / "-".join(parts).replace("/", "_")
        self.plan = Plan(top, self.folder / "plan.json", options.folders, options.seed, options.random)
        self.slots = 2 * options.jobs
        self.results = {}
        self.marked, _ = report.load_equivalent(self.top / report.EQUIVALENT)

    def __call__(self):
        houses = self.options.by or reached_from(self.plan.drawer.lines)
        built = build(self.plan, Sources(self.top, self.bench.tree), self.bench, houses, self.say)
        suites = suites_of(self.bench.build_folder, houses)
        record = recorded(self, suites, self.plan.print)
        self.load()
        self.try_all(suites, record)
        return self.rows(), self.rows_of_built(Built(self.plan, *built, self.folder, self.slots), record, suites)

    def load(self):
        """Earlier results. They hold as long as the sources stay."""
        path = self.folder / "results.json"
        if path.is_file() and not self.options.again:
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["print"] == self.plan.print:
                self.results = {int(number): result for number, result in kept["results"].items()}

    def holds(self, mutant, suites):
        """What was noticed stays so; the others run again if other tests reach them, or the same that have changed."""
        result = self.results.get(mutant.number)
        return result is not None and (result["outcome"] == "noticed" or result["print"] == print_of_suites(suites))

    def save(self):
        new = self.folder / "results.new"
        kept = {"print": self.plan.print, "results": self.results}
        new.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        new.replace(self.folder / "results.json")

    def try_all(self, suites, record):
        reaching = {each.number: record.reaching(suites, each.number) for each in self.plan.mutants}
        due = [each for each in self.plan.mutants if not self.holds(each, reaching[each.number])
               and (self.options.again or not report.reason(each, self.marked))]
        for done, mutant in enumerate(due, 1):
            trial = Trial(self.folder / "logs" / str(mutant.number), mutant.number, self.slots)
            result = self.results[mutant.number] = trial(reaching[mutant.number])
            self.save()
            self.say(f"{done}/{len(due)} {mutant.file}:{mutant.line} {mutant.operator}: {result['outcome']} "
                     f"{result['by']} ({result['ran']} of {result['tests']} tests, processor {result['cpu_s']:.0f} s)")

    def rows(self):
        return [report.row_of(each, self.results.get(each.number), self.marked) for each in self.plan.mutants]

    def rows_of_built(self, built, record, suites):
        found = built(self.options.built, self.options.folders, self.options.seed, record.in_order(suites),
                      self.plan.print, self.say)
        return [report.row_of(each, result, self.marked) for each, result in found]


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--random", type=int, metavar="N")
    what.add_argument("--lines", action="store_true")
    parser.add_argument("--built", type=int, default=0, metavar="K")
    parser.add_argument("--seed", default="1")
    parser.add_argument("folders", nargs="*", metavar="FOLDER")
    parser.add_argument("--by", action="append", choices=HOUSES)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("ACCEL_JOBS", 0)) or os.cpu_count())
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args(arguments)
    options.folders = [each.rstrip("/") for each in options.folders]
    return options


def run(top, arguments, make_bench, say):
    """Prints the report. What is wrong is raised as one of CANNOT."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that tests end too
    options = parse(arguments)
    bench = make_bench("lines" if options.lines else "random", options.jobs)
    with open(bench.folder / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rows, said = (lines_not_run if options.lines else tried)(top, options, bench, say)
    print(said)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def tried(top, options, bench, say):
    rows, built = Random(top, options, bench, say)()
    said = report.text(rows)
    if built:
        said += "\n\nwith a build each:\n" + report.text(built)
    return rows + built, said


def lines_not_run(top, options, bench, say):
    found = Lines(top, options, bench, say)()
    return {file: sorted(missing) for file, (_, missing) in found.items()}, "\n".join(lines.text(found))
