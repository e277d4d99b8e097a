# SPDX-License-Identifier: Apache-2.0
"""Mutants of what the compiler evaluates: constants and what members begin with. Each costs a build."""
import json

from mutation.draw import Drawer, from_row
from mutation.trial import NOBODY, Trial, print_of_suites

FIRST_NUMBER = 1_000_000  # behind those of the schema


class Built:
    """Runs all tests against each, quickest first: which of them use a constant is not known."""

    def __init__(self, plan, builder, targets, folder, slots):
        self.plan, self.builder, self.targets = plan, builder, targets
        self.folder, self.slots = folder, slots
        self.path = folder / "built.json"
        self.rows, self.refused = [], []

    def load(self, key, suites):
        """Of earlier results, what was noticed, and the others as long as the tests are the same."""
        kept = json.loads(self.path.read_text(encoding="utf-8")) if self.path.is_file() else {"key": ""}
        if kept["key"] == key:
            self.refused = kept["refused"]
            self.rows = [row for row in kept["rows"] if row["result"]["outcome"] == "noticed"
                         or row["result"]["print"] == print_of_suites(suites)]

    def save(self, key):
        kept = {"key": key, "rows": self.rows, "refused": self.refused}
        self.path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")

    def __call__(self, count, folders, seed, suites, key, say):
        """(mutant, result) of each."""
        self.load(key, suites)
        drawer = Drawer(self.plan.top, folders, seed, built=True)
        while len(self.rows) < count and (mutant := drawer.next(FIRST_NUMBER + len(self.rows), [])):
            if self.key_of(mutant) in self.refused + [row["key"] for row in self.rows]:
                continue
            result = self.one(mutant, suites)
            if result is None:
                self.refused.append(self.key_of(mutant))
            else:
                self.rows.append({"key": self.key_of(mutant), "mutant": mutant.as_row(), "result": result})
                say(f"{mutant.file}:{mutant.line} {mutant.old} -> {mutant.new}: {result['outcome']} {result['by']}")
            self.save(key)
        return [(from_row(row["mutant"]), row["result"]) for row in self.rows[:count]]

    @staticmethod
    def key_of(mutant):
        return f"{mutant.file}:{mutant.start}:{mutant.new}"

    def one(self, mutant, suites):
        """None: it does not compile."""
        self.builder.sources.write(mutant.file, [*self.plan.mutants, mutant])
        try:
            if self.builder.failures(self.targets):
                return None
            return Trial(self.folder / "logs" / str(mutant.number), NOBODY, self.slots)(suites)
        finally:
            self.builder.sources.write(mutant.file, self.plan.mutants)
