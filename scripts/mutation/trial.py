# SPDX-License-Identifier: Apache-2.0
"""Which tests reach which mutants, and what they say of each."""
import hashlib
import json
from pathlib import Path

from mutation.suites import CPU_S, HANG_S, Pool, Run, end_leftovers

NOBODY = 0  # the number of no mutant
MOST_FAILED = 0.1  # of all tests, without a mutant: more, and the machine lacks something
QUICK_GTEST = {"GTEST_FAIL_FAST": "1", "GTEST_BRIEF": "1"}


class Unusable(Exception):
    """A sentence for whoever called."""


class Record:
    """One run of all tests without a mutant: what each takes, and which mutants it reaches."""

    def __init__(self, folder, slots, say):
        self.folder, self.slots, self.say = Path(folder), slots, say
        self.path = self.folder / "record.json"
        self.tests = {}  # name: {"seconds", "outcome", "reached": [number]}

    def load(self, key):
        if self.path.is_file():
            kept = json.loads(self.path.read_text(encoding="utf-8"))
            self.tests = kept["tests"] if kept["key"] == key else {}

    def save(self, key):
        self.path.write_text(json.dumps({"key": key, "tests": self.tests}, indent=1) + "\n", encoding="utf-8")

    def make(self, suites, numbers, key):
        """A test that fails here is tried once more alone; if it fails again, it says nothing about mutants. What an
        earlier run knows of a program that is still the same is not asked again."""
        self.load(key)
        (self.folder / "reached").mkdir(parents=True, exist_ok=True)
        due = [each for each in reversed(suites) if not self.knows(each)]
        self.done, self.due = 0, len(due)
        if due:
            self.say(f"running {len(due)} tests without a mutant")
        self.run(due, numbers, key, self.slots)
        self.run(self.failed(due), numbers, key, slots=1)
        if len(bad := self.failed(suites)) > MOST_FAILED * len(suites):
            raise Unusable(f"{len(bad)} of {len(suites)} tests fail without a mutant, {bad[0].name} for one; their "
                           f"output is in {self.folder / 'reached'}")

    def run(self, suites, numbers, key, slots):
        Pool(slots).run([self.run_of(each, numbers) for each in suites],
                        lambda run, ended: self.keep(run, ended, key))

    def knows(self, suite):
        test = self.tests.get(suite.name)
        return test is not None and test["print"] == suite.print and test["outcome"] not in {"failed", "hangs"}

    def failed(self, suites):
        return [each for each in suites if self.tests[each.name]["outcome"] in {"failed", "hangs"}]

    def reached_file(self, suite):
        return self.folder / "reached" / suite.name.replace("/", "_")

    def run_of(self, suite, numbers):
        self.reached_file(suite).write_bytes(bytes(max(numbers, default=0) + 1))
        environment = {"ACCEL_MUTANTS_REACHED": str(self.reached_file(suite).resolve())}
        return Run(suite, environment, f"{self.reached_file(suite)}.log", suite.timeout)

    def keep(self, run, ended, key):
        reached = self.reached_file(run.suite).read_bytes()
        self.tests[run.suite.name] = {"print": run.suite.print, "outcome": ended.outcome,
                                      "seconds": round(ended.seconds, 2), "cpu_s": round(ended.cpu_s, 2),
                                      "reached": [number for number, byte in enumerate(reached) if byte]}
        self.done += 1
        if self.done % 20 == 0:
            self.say(f"{self.done}/{self.due} tests have run without a mutant")
            self.save(key)
        if self.done >= self.due:
            self.save(key)
        return False

    def in_order(self, suites):
        """The tests that pass without a mutant, quickest first."""
        found = [each for each in suites if self.tests[each.name]["outcome"] == "passed"]
        for each in found:
            each.seconds = self.tests[each.name]["seconds"]
        return sorted(found, key=lambda each: (each.seconds, each.name))

    def reaching(self, suites, number):
        """Those of them that reach a mutant."""
        return [each for each in self.in_order(suites) if number in self.tests[each.name]["reached"]]


def print_of_suites(suites):
    """Changes with the tests that a mutant meets."""
    lines = sorted(f"{each.name} {each.print}\n" for each in suites)
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


class Trial:
    """Runs tests against one mutant until one of them notices it."""

    def __init__(self, folder, number, slots):
        self.folder, self.number, self.slots = Path(folder), number, slots
        self.folder.mkdir(parents=True, exist_ok=True)
        self.cpu_s, self.ran, self.by, self.how = 0.0, 0, "", ""

    def __call__(self, suites):
        """The outcome, as a row of the results."""
        due = [self.run_of(each, self.number) for each in suites]
        suspects = True
        while due and suspects and not self.by and self.cpu_s < CPU_S:
            suspects = []
            Pool(self.slots).run(due, lambda run, ended: self.took(run, ended, due, suspects))
            for run, ended in suspects:
                self.confirm(run, ended)
            end_leftovers(self.mark())
            due = [self.run_of(each.suite, self.number) for each in due]
        return {"print": print_of_suites(suites), **self.row(len(suites))}

    def mark(self):
        return f"ACCEL_MUTANT_RUN={self.folder}"

    def run_of(self, suite, number):
        log = self.folder / f"{suite.name.replace('/', '_')}{'' if number else '.without'}.log"
        environment = {**QUICK_GTEST, "ACCEL_MUTANT": str(number)}
        environment.update([self.mark().split("=", 1)])
        return Run(suite, environment, log, min(suite.timeout, HANG_S + 10 * suite.seconds))

    def took(self, run, ended, due, suspects):
        """Whether the others may stop."""
        self.cpu_s += ended.cpu_s
        if ended.outcome == "stopped":
            return False
        due.remove(run)
        self.ran += 1
        if ended.outcome in {"failed", "hangs"}:
            suspects.append((run, ended))
        return bool(suspects) or self.cpu_s >= CPU_S

    def confirm(self, run, ended):
        """A test that fails by chance, or because the machine is busy, is not one that notices: without the mutant it
        has to pass now, and with it to fail again. A hang is long enough."""
        if self.by or (self.number != NOBODY and self.again(run.suite, NOBODY).outcome != "passed"):
            return
        if ended.outcome == "failed":
            ended = self.again(run.suite, self.number)
        if ended.outcome in {"failed", "hangs"}:
            self.by, self.how = run.suite.name, ended.outcome

    def again(self, suite, number):
        ended = self.run_of(suite, number)()
        self.cpu_s += ended.cpu_s
        return ended

    def row(self, count):
        outcome = "noticed" if self.by else "survived" if count else "no test runs it"
        return {"outcome": outcome, "by": self.by, "how": self.how, "tests": count, "ran": self.ran,
                "cpu_s": round(self.cpu_s, 1)}
