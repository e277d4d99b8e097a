# SPDX-License-Identifier: Apache-2.0
"""The mutants of one seed in one build: drawn, compiled, and drawn anew where one does not compile."""
import concurrent.futures
import hashlib
import json
import re
import subprocess
from pathlib import Path

from mutation.compilers import Compilers
from mutation.draw import Drawer, files_in, from_row
from mutation.schema import PLACE, to_blame

ROUNDS = 20  # builds until all mutants compile
FAILED_EDGE = re.compile(r"^FAILED: .*?(?=^\[\d+/\d+\]|^FAILED: |^ninja: |\Z)", re.M | re.S)


class CannotBuild(Exception):
    """A sentence for whoever called."""


def print_of(top, names):
    """Changes with any of these files."""
    found = hashlib.sha256()
    for name in sorted(names):
        found.update(f"{name}\0".encode() + (Path(top) / name).read_bytes() + b"\0")
    return found.hexdigest()[:16]


class Plan:
    """Kept in a file, so that a run goes on where it was ended."""

    def __init__(self, top, path, folders, seed, count):
        self.top, self.path, self.count = Path(top), Path(path), count
        self.print = print_of(top, files_in(top, ()))
        self.mutants, self.dropped, self.next = [], 0, 1
        self.drawer = Drawer(top, folders, seed)
        if self.path.is_file():
            self.load(json.loads(self.path.read_text(encoding="utf-8")))

    def load(self, kept):
        if kept["print"] == self.print:
            self.mutants = [from_row(row) for row in kept["mutants"]]
            self.dropped, self.next = kept["dropped"], kept["next"]

    def save(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        kept = {"print": self.print, "dropped": self.dropped, "next": self.next,
                "mutants": [each.as_row() for each in self.mutants]}
        self.path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")

    def files(self):
        """The files of the copy that are not the checkout's."""
        return {each.file for each in self.mutants} | {PLACE}

    def more(self):
        """Draws what is missing. The files that changed."""
        changed = set()
        while len(self.mutants) < self.count:
            mutant = self.drawer.next(self.next, self.mutants)
            if mutant is None:
                self.count = len(self.mutants)
                break
            self.next += 1
            self.mutants.append(mutant)
            changed.add(mutant.file)
        return changed


class Builder:
    """Makes a plan compile."""

    def __init__(self, plan, sources, bench, say):
        self.plan, self.sources, self.bench, self.say = plan, sources, bench, say

    def make(self, targets):
        """Builds the targets with the mutants of the plan, which may become others."""
        self.compilers = Compilers(self.bench.tree, self.bench.build_folder)
        for file in self.plan.files() - {PLACE}:
            self.sources.write(file, self.plan.mutants)
        for _ in range(ROUNDS):
            self.draw()
            self.say(f"building with {len(self.plan.mutants)} changes; {self.plan.dropped} others did not compile")
            self.plan.save()
            if not (failed := self.failures(targets)):
                return
            self.blame(failed)
        raise CannotBuild(f"the mutants do not build in {ROUNDS} rounds; the log is {self.log()}")

    def draw(self):
        """Until there are enough that compile alone."""
        while changed := self.plan.more():
            for file in changed:
                self.sources.write(file, self.plan.mutants)
            self.settle(changed)
            self.say(f"{len(self.plan.mutants)} of {self.plan.count} mutants compile")

    def settle(self, due):
        """Drops those that do not compile."""
        while due:
            with concurrent.futures.ThreadPoolExecutor(self.bench.jobs) as pool:
                said = list(pool.map(self.complaints, sorted(due)))
            due = set()
            for output, file, folder in said:
                if output:
                    due |= self.drop(self.blamed(output, folder) or self.first_in(file)) | {file}

    def complaints(self, file):
        source = self.compilers.source_for(file)
        if source is None:
            return "in no source of this build", file, "."
        return self.compilers.complaints(source), file, self.compilers.commands[source]["directory"]

    def blamed(self, output, folder):
        return to_blame(output, self.plan.mutants, self.sources, folder)

    def first_in(self, file):
        return next((each for each in self.plan.mutants if each.file == file), None)

    def drop(self, mutant):
        """The files that change by that."""
        if mutant is None:
            return set()
        self.plan.mutants.remove(mutant)
        self.plan.dropped += 1
        self.sources.write(mutant.file, self.plan.mutants)
        return {mutant.file}

    def log(self):
        return self.bench.logs / "build.log"

    def failures(self, targets):
        """What the compilers said of each source that they did not compile."""
        command = ["nice", "-n", "10", "cmake", "--build", str(self.bench.build_folder), "-j", str(self.bench.jobs),
                   "--target", *targets, "--", "-k", "0"]
        done = subprocess.run(command, cwd=self.bench.tree, capture_output=True, text=True, errors="replace",
                              check=False)
        self.log().write_text(done.stdout + done.stderr, encoding="utf-8")
        if done.returncode == 0:
            return []
        return FAILED_EDGE.findall(done.stdout) or [done.stdout + done.stderr]

    def blame(self, outputs):
        dropped = set()
        for output in outputs:
            mutant = self.blamed(output, self.bench.build_folder)
            if mutant:
                dropped |= self.drop(mutant)
        if not dropped:
            raise CannotBuild(f"the tree does not build, and no mutant is the reason; the log is {self.log()}")
