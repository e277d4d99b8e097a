#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the tests: makes each one-point change of tests/mutants and runs the test that should notice it.

    mutate.py [ID, FILE, LIST or HOUSE (globs)...]   runs those mutants; without any, all that have no result yet
      --list        prints the mutants
      --check       only checks that each mutant fits the tree
      --again       runs those that have a result as well
      --jobs N      compilers and tests at once (default: one a core)
      --copies N    mutants at once (default: one a core where many are due, else one)
      --json FILE   writes the results there too
    mutate.py --random N ...        mutants that nobody chose (scripts/mutation/command.py)

The tree is copied to build/mutate/0 (1, 2, …) and built there once; the checkout's sources stay as they are. Results
go to build/mutate/results.json: each is good for as long as the mutant and the lines around it stay the same. So a
list that takes hours runs in pieces. Exit status 1: an unexplained mutant survived, did not build or has no test, or
less than 90 % were noticed.
"""
import argparse
import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree
from pathlib import Path

import mutants as mutant_list
from mutation.report import check_equivalent

MIN_NOTICED = 0.9
BUILD_PATIENCE_S = 1800
TEST_PATIENCE_S = 300  # each test; an endless loop is a common effect of a mutant
RUN_PATIENCE_S = 1200  # all tests of one mutant
WORTH_A_COPY = 60  # mutants; fewer take less time than building another copy
TOP = Path(__file__).resolve().parent.parent
LISTS = TOP / "tests" / "mutants"
RESULTS = TOP / "build" / "mutate" / "results.json"


class Failed(Exception):
    """A sentence for whoever called."""


def run(command, log, patience, cwd):
    """The exit status of a command whose output goes to a log; None: it did not end in time."""
    with open(log, "w", encoding="utf-8") as out:
        child = subprocess.Popen(command, cwd=cwd, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
                                 env={**os.environ, "ACCEL_TESTS_BY": "case"})
        try:
            return child.wait(patience)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()


# The copy of the tree.


def tracked(top):
    names = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=top,
                           check=True, capture_output=True).stdout.decode()
    return {name for name in names.split("\0") if name and (top / name).is_file()}


def copy_file(source, target):
    """Only what differs is written, so that only that is built again. This also undoes an interrupted mutant."""
    mode = source.stat().st_mode & 0o777
    content = source.read_bytes()
    if target.is_file() and target.read_bytes() == content and target.stat().st_mode & 0o777 == mode:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    target.chmod(mode)


def copy_tree(top, tree, leave=()):
    """All but the files to leave, which somebody else writes there."""
    names = tracked(top)
    for path in sorted(tree.rglob("*")) if tree.exists() else ():
        name = path.relative_to(tree)
        if name.parts[0] != "build" and path.is_file() and str(name) not in {*names, *leave}:
            path.unlink()
    for name in names:
        if name not in leave or not (tree / name).is_file():
            copy_file(top / name, tree / name)


# Building and testing there.


class Bench:
    """One copy, built: takes one mutant after the other."""

    def __init__(self, top, number, jobs):
        self.top = top
        self.jobs = jobs
        self.folder = top / "build" / "mutate" / str(number)
        self.tree = self.folder / "tree"
        self.build_folder = self.tree / "build" / "release"
        self.logs = self.folder / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)

    def copy(self, leave=()):
        copy_tree(self.top, self.tree, leave)

    def configure(self, *options):
        # Most of a mutant's time is compiling. Nothing here is measured, and a unity build reads a header few times.
        configure = ["cmake", "--preset", "release", "-DACCEL_BUILD_TESTS=ON", "-DACCEL_BUILD_BENCH=OFF",
                     "-DACCEL_WARNINGS_AS_ERRORS=OFF", "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG",
                     "-DCMAKE_UNITY_BUILD=ON", *options]
        if run(configure, self.logs / "configure.log", BUILD_PATIENCE_S, self.tree) != 0:
            raise Failed(f"cmake failed; its log is {self.logs / 'configure.log'}")

    def prepare(self, chosen):
        self.copy()
        self.configure()
        targets = sorted({target for each in chosen for target in each.needed_targets()})
        say(f"building {self.tree.parent} ({len(targets)} targets)")
        if self.build(targets, self.logs / "build.log", 4 * BUILD_PATIENCE_S) != 0:
            raise Failed(f"the tree does not build without a mutant; the log is {self.logs / 'build.log'}")

    def build(self, targets, log, patience=BUILD_PATIENCE_S):
        command = ["cmake", "--build", str(self.build_folder), "-j", str(self.jobs), "--target", *targets]
        return run(command, log, patience, self.tree)

    def test(self, expression, name, until_failure=True):
        """Names of the tests that ran, and of those that failed. Any failure ends the run."""
        report = self.logs / f"{name}.xml"
        report.unlink(missing_ok=True)
        command = ["ctest", "-R", expression, "-j", str(self.jobs), "--timeout", str(TEST_PATIENCE_S),
                   "--output-on-failure", "--output-junit", str(report)]
        command.append("--stop-on-failure" if until_failure else "--no-tests=error")
        status = run(command, self.logs / f"{name}.test.log", RUN_PATIENCE_S, self.build_folder)
        if status is None:
            return ["(all)"], ["(did not end)"]
        ran, failed = read_report(report) if report.is_file() else ([], [])
        # ctest finds tests by starting their programs, which a mutant may break.
        return (ran, failed) if ran or status == 0 else (["(all)"], ["(could not be listed)"])

    def try_one(self, mutant):
        """Applies a mutant, builds and tests it, and takes it back."""
        path = self.tree / mutant.file
        clean = path.read_text(encoding="utf-8")
        path.write_text(mutant.applied_to(clean), encoding="utf-8")
        try:
            if self.build(mutant.needed_targets(), self.logs / f"{mutant.id}.build.log") != 0:
                return "did not build", ""
            ran, failed = self.test(mutant.test, mutant.id)
        finally:
            path.write_text(clean, encoding="utf-8")
        if failed:
            return "noticed", failed[0]
        return ("survived", "") if ran else ("no test", "")


def read_report(path):
    """Of JUnit's report: the names of the tests that ran, and of those that failed."""
    cases = xml.etree.ElementTree.parse(path).getroot().iter("testcase")
    status = {case.get("name"): case.get("status") for case in cases}
    ran = [name for name, was in status.items() if was in {"run", "fail"}]
    return ran, [name for name, was in status.items() if was == "fail"]


def check_clean(bench, chosen):
    """A test that fails without a mutant says nothing about one."""
    expressions = sorted({each.test for each in chosen})
    say(f"running the tests without a mutant ({len(expressions)} expressions)")
    failed = []
    for start in range(0, len(expressions), 10):  # ctest takes at most 32 parentheses
        some = "|".join(expressions[start:start + 10])
        failed += bench.test(some, f"clean-{start}", until_failure=False)[1]
    if failed:
        raise Failed(f"these fail without a mutant: {', '.join(failed)}")


# Results.


def read_results(path):
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def write_results(path, results):
    """A line for each mutant. All or nothing: a run may be interrupted at any time."""
    lines = [f"{json.dumps(name)}: {json.dumps(results[name], sort_keys=True)}" for name in sorted(results)]
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    new.replace(path)


def known_result(mutant, results, top):
    """The result of an earlier run, unless the mutant or its file has changed since."""
    found = results.get(mutant.id)
    return found if found and found["print"] == mutant.print_of(top) else None


def verdict(mutant, result):
    """What becomes of a result with the mutant's explanation."""
    outcome = result["outcome"] if result else "not run"
    return "explained" if mutant.explained and outcome in {"survived", "no test", "not run"} else outcome


def summarise(chosen, results, top):
    counts = {}
    for each in chosen:
        what = verdict(each, known_result(each, results, top))
        counts[what] = counts.get(what, 0) + 1
    return counts


def is_good(counts, everything):
    """A share is asked for of the whole list only."""
    if any(counts.get(bad) for bad in ("survived", "did not build", "no test")):
        return False
    ran = sum(counts.values()) - counts.get("not run", 0)
    return not everything or counts.get("noticed", 0) >= MIN_NOTICED * ran


def table(chosen, results, top):
    width = max((len(each.id) for each in chosen), default=0)
    for each in chosen:
        result = known_result(each, results, top)
        what = verdict(each, result)
        detail = {"noticed": (result or {}).get("by", ""), "explained": each.explained}.get(what, each.breaks)
        if what == "noticed" and each.explained:
            detail += " (take its explanation out)"
        yield f"{each.id:{width}}  {what:13}  {detail}"


# The command.


def say(text):
    print(f"mutate: {text}", file=sys.stderr, flush=True)


def in_order(chosen):
    """Neighbours share what is built."""
    return sorted(chosen, key=lambda each: (each.needed_targets(), each.file))


def shares(chosen, copies):
    """As many runs of neighbours, of about the same length."""
    ordered = in_order(chosen)
    bounds = [len(ordered) * number // copies for number in range(copies + 1)]
    return [ordered[begin:end] for begin, end in zip(bounds, bounds[1:])]


class Journal:
    """Keeps each result as soon as it is known. Several threads write."""

    def __init__(self, due, results, path):
        self.due = due
        self.done = 0
        self.results = results
        self.path = path
        self.lock = threading.Lock()

    def add(self, name, result, seconds):
        with self.lock:
            self.done += 1
            self.results[name] = result
            write_results(self.path, self.results)
            say(f"{self.done}/{self.due} {name}: {result['outcome']} {result['by']} ({seconds:.0f} s)")


def run_mutants(bench, chosen, journal):
    for each in chosen:
        start = time.monotonic()
        outcome, by = bench.try_one(each)
        result = {"outcome": outcome, "by": by, "print": each.print_of(bench.top)}
        journal.add(each.id, result, time.monotonic() - start)


def run_beside(benches, due, journal):
    """Each bench tries its share. What one of them raises is raised here, after all have ended."""
    with concurrent.futures.ThreadPoolExecutor(len(benches)) as pool:
        running = [pool.submit(run_mutants, bench, share, journal)
                   for bench, share in zip(benches, shares(due, len(benches)))]
        for each in running:
            each.result()


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wanted", nargs="*", metavar="ID|FILE|LIST|HOUSE")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("ACCEL_JOBS", 0)) or os.cpu_count())
    parser.add_argument("--copies", type=int, default=0)
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args(arguments)


def check_list(mutants, problems):
    problems = problems + mutant_list.check(mutants, TOP) + check_equivalent(TOP)
    if problems:
        raise Failed("the list of mutants does not fit the tree:\n" + "\n".join(problems))


def show(chosen):
    for each in chosen:
        print(f"{each.id}  {each.file}\n    {each.breaks}\n    {each.test or each.explained}")


def try_all(chosen, names, options):
    """The results of the chosen; those of mutants that are in no list any more are dropped."""
    results = {name: result for name, result in read_results(RESULTS).items() if name in names}
    due = [each for each in chosen
           if each.test and (options.again or known_result(each, results, TOP) is None)]
    if due:
        benches = make_benches(due, options)
        check_clean(benches[0], due)
        for bench in benches:
            bench.jobs = max(1, options.jobs // len(benches))
        run_beside(benches, due, Journal(len(due), results, RESULTS))
    return results


def make_benches(due, options):
    copies = options.copies or min(options.jobs, max(1, len(due) // WORTH_A_COPY))
    benches = [Bench(TOP, number, options.jobs) for number in range(min(copies, len(due)))]
    for bench, share in zip(benches, shares(due, len(benches))):
        bench.prepare(due if bench is benches[0] else share)
    return benches


def rows_of(chosen, results):
    known = {each: known_result(each, results, TOP) for each in chosen}
    return {each.id: {**(found or {}), "verdict": verdict(each, found)} for each, found in known.items()}


def report(chosen, names, options):
    results = try_all(chosen, names, options)
    print("\n".join(table(chosen, results, TOP)))
    counts = summarise(chosen, results, TOP)
    print(f"\n{len(chosen)} mutants: " + ", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    if options.json:
        Path(options.json).write_text(json.dumps(rows_of(chosen, results), indent=1) + "\n", encoding="utf-8")
    return 0 if is_good(counts, not options.wanted) else 1


def run_random(arguments):
    """--random and --lines: mutants of a seed instead of the list."""
    from mutation import command
    try:
        command.run(TOP, arguments, lambda name, jobs: Bench(TOP, name, jobs), say)
    except command.CANNOT as why:
        raise Failed(str(why)) from why
    return 0


def main(arguments):
    if {"--random", "--lines"} & set(arguments):
        return run_random(arguments)
    options = parse(arguments)
    mutants, problems = mutant_list.load(LISTS)
    check_list(mutants, problems)
    chosen = mutant_list.select(mutants, options.wanted)
    if options.check:
        print(f"{len(mutants)} mutants fit the tree")
        return 0
    if not chosen:
        raise Failed(f"no mutant is named {' or '.join(options.wanted)}; --list prints all")
    if options.list:
        show(chosen)
        return 0
    return report(chosen, {each.id for each in mutants}, options)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failed as why:
        say(str(why))
        sys.exit(1)
