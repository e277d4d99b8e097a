# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of a build as ctest does, each with an environment of its own, and measures what each takes.

ctest gives all tests one environment, and starts each program to ask for its tests: a mutant may break that.
"""
import hashlib
import json
import os
import re
import resource
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

CPU_S = 600  # of a mutant's tests together
HANG_S = 60  # and ten times what the test takes without a mutant: then it hangs
FILE_BYTES = 4 << 30  # a mutant may write without end; softnic's network is a sparse file of 2 GiB
NOT_TESTS = re.compile(r"^misuse\.|\.NOT_BUILT$")


@dataclass
class Suite:
    """One test of ctest: a suite of a GoogleTest program, or a command."""
    name: str
    command: list
    labels: tuple = ()
    folder: str = "."
    environment: dict = field(default_factory=dict)
    timeout: float = 600
    processors: int = 1
    alone: bool = False
    locks: frozenset = frozenset()
    passes: tuple = ()  # regular expressions
    fails: tuple = ()
    skips: tuple = ()
    skip_code: int = None
    has_to_fail: bool = False
    print: str = ""  # changes with its program
    seconds: float = 0  # what it took without a mutant


@dataclass
class Ended:
    outcome: str  # passed, failed, skipped, hangs, or stopped: somebody else had failed or the time was up
    seconds: float = 0
    cpu_s: float = 0


def suite_of(test):
    """Of what `ctest --show-only=json-v1` says of a test."""
    of = {each["name"]: each["value"] for each in test.get("properties", ())}
    environment = dict(each.split("=", 1) for each in of.get("ENVIRONMENT", ()))
    return Suite(test["name"], test["command"], tuple(of.get("LABELS", ())), of.get("WORKING_DIRECTORY", "."),
                 environment, float(of.get("TIMEOUT", 600)), int(of.get("PROCESSORS", 1)),
                 bool(of.get("RUN_SERIAL")), frozenset(of.get("RESOURCE_LOCK", ())),
                 patterns(of.get("PASS_REGULAR_EXPRESSION")), patterns(of.get("FAIL_REGULAR_EXPRESSION")),
                 patterns(of.get("SKIP_REGULAR_EXPRESSION")), of.get("SKIP_RETURN_CODE"), bool(of.get("WILL_FAIL")))


def print_of_programs(command, known):
    """Of the files that a command names; `known` has those that were read before."""
    files = [Path(word) for word in command if word.startswith("/") and Path(word).is_file()]
    for each in files:
        if each not in known:
            known[each] = hashlib.sha256(each.read_bytes()).hexdigest()
    return "".join(known[each] for each in files)[:512]


def patterns(value):
    return tuple([value] if isinstance(value, str) else value or ())


def suites_of(build, houses):
    """The tests with one of these labels; without those that only compile, and those of every week."""
    listing = subprocess.run(["ctest", "--show-only=json-v1"], cwd=build, capture_output=True, text=True, check=True)
    found = [suite_of(test) for test in json.loads(listing.stdout)["tests"] if test.get("command")]
    found = [each for each in found if not NOT_TESTS.search(each.name) and "weekly" not in each.labels
             and set(houses) & set(each.labels)]
    known = {}
    for each in found:
        each.print = print_of_programs(each.command, known)
    return found


def judge(suite, status, output):
    """What ctest would say of a test that has ended."""
    def says(expressions):
        return any(re.search(each, output, re.DOTALL) for each in expressions)

    if status == suite.skip_code or says(suite.skips):
        return "skipped"
    good = says(suite.passes) if suite.passes else status == 0
    good = good and not says(suite.fails)
    return "passed" if good != suite.has_to_fail else "failed"


class Run:
    """One process group. `stop` may be called by another thread."""

    def __init__(self, suite, environment, log, limit_s):
        self.suite, self.log = suite, Path(log)
        self.environment = {**os.environ, **suite.environment, **environment}
        self.limit_s = limit_s
        self.child, self.stopped = None, None
        self.lock = threading.Lock()

    def stop(self, why="stopped"):
        with self.lock:
            self.stopped = self.stopped or why
            if self.child is not None and self.child.returncode is None:
                end_group(self.child.pid)

    def start(self):
        with self.lock, open(self.log, "wb") as out:
            if self.stopped:
                return False
            self.child = subprocess.Popen(self.suite.command, cwd=self.suite.folder, env=self.environment,
                                          stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                          start_new_session=True)
        limit(self.child.pid)
        return True

    def __call__(self):
        begun = time.monotonic()
        try:
            if not self.start():
                return Ended("stopped")
        except OSError:
            return Ended("failed")
        timer = threading.Timer(self.limit_s, self.stop, ("hangs",))
        timer.start()
        _, status, used = os.wait4(self.child.pid, 0)
        timer.cancel()
        with self.lock:
            self.child.returncode = os.waitstatus_to_exitcode(status)
        end_group(self.child.pid)
        output = self.log.read_bytes()[-1_000_000:].decode(errors="replace")
        outcome = self.stopped or judge(self.suite, self.child.returncode, output)
        if self.child.returncode == -signal.SIGXCPU:
            outcome = "hangs"
        return Ended(outcome, time.monotonic() - begun, used.ru_utime + used.ru_stime)


def limit(pid):
    """A mutant may ask for memory without end too: then it is the first that the OS ends. ThreadSanitizer's programs do
    not start where memory itself is limited."""
    try:
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000", encoding="ascii")
        for which, most in ((resource.RLIMIT_CPU, CPU_S), (resource.RLIMIT_FSIZE, FILE_BYTES)):
            resource.prlimit(pid, which, (most, most))
    except OSError:  # it has ended
        pass


def end_group(pid):
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def end_leftovers(mark):
    """Ends what tests left running in sessions of its own: processes with this in their environment."""
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and mark.encode() in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:  # it has ended, or is another user's
            continue


class Pool:
    """Runs suites at once, as many as there are slots; those that ask for it, alone or one at a time."""

    def __init__(self, slots):
        self.slots = slots
        self.free = slots
        self.locks = set()
        self.changed = threading.Condition()
        self.running = []
        self.over = False

    def fits(self, suite):
        if suite.alone:
            return self.free == self.slots
        return min(suite.processors, self.slots) <= self.free and not suite.locks & self.locks

    def share_of(self, suite):
        return self.slots if suite.alone else min(suite.processors, self.slots)

    def run(self, runs, ended):
        """Calls `ended(run, result)` for each, in one thread after the other, until it returns True."""
        threads = []
        try:
            self.start_each(list(runs), ended, threads)
            for thread in threads:
                thread.join()
        except BaseException:  # somebody ends this program
            self.stop()
            raise

    def stop(self):
        self.over = True
        for run in self.running:
            run.stop()

    def start_each(self, due, ended, threads):
        with self.changed:
            while due and not self.over:
                run = next((each for each in due if self.fits(each.suite)), None)
                if run is None:
                    self.changed.wait()
                    continue
                due.remove(run)
                self.take(run)
                threads.append(threading.Thread(target=self.one, args=(run, ended)))
                threads[-1].start()

    def take(self, run):
        self.free -= self.share_of(run.suite)
        self.locks |= run.suite.locks
        self.running.append(run)

    def one(self, run, ended):
        result = run()
        with self.changed:
            self.free += self.share_of(run.suite)
            self.locks -= run.suite.locks
            self.running.remove(run)
            if not self.over and ended(run, result):
                self.stop()
            self.changed.notify_all()
