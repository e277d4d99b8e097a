#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The lists of mutants in tests/mutants/HOUSE: one-point changes of the code, each with the test that notices it."""
import fnmatch
import hashlib
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

FIELDS = {"id", "file", "old", "new", "breaks", "test", "targets", "explained"}
SOFTNIC = ("softnic_cli", "softnic")
LINES_AROUND = 20  # a mutant's result is good until one of them changes
# What a test's name begins with, and the targets that it needs.
TARGETS = (
    (r"unit(_tests)?\.", ("unit_tests", "kernels_unit_tests")),
    (r"clients_tests\.", ("clients_tests", *SOFTNIC)),
    (r"rdma_tests\.", ("rdma_tests", "kernels_rdma_tests", *SOFTNIC)),
    (r"service_tests\.", ("service_tests", *SOFTNIC)),
    (r"kernel_client_tests\.", ("kernel_client_tests", *SOFTNIC)),
    (r"conformance\.(local|tcp|zmq)\.", ("conformance_tests",)),
    (r"conformance\.", ("conformance_tests", *SOFTNIC)),
    (r"hostile_tests\.rdma", ("hostile_tests", *SOFTNIC)),
    (r"hostile_tests\.", ("hostile_tests",)),
    (r"alloc\.rdma", ("alloc_tests", *SOFTNIC)),
    (r"alloc\.", ("alloc_tests",)),
    (r"tools_tests\.", ("tools_tests",)),
    (r"tool_", ("accel_perf", "accel_doctor", "accel_keys")),
    (r"softnic\.verbs\.", ("softnic_verbs_tests", *SOFTNIC)),
    (r"softnic\.seeds/random_work\.", ("softnic_property_test",)),
    (r"softnic\.", ("softnic_unit_tests",)),
)


@dataclass(frozen=True)
class Mutant:
    id: str
    file: str
    old: str
    new: str
    breaks: str
    test: str = ""
    targets: tuple = ()
    explained: str = ""
    list: str = ""

    def print_of(self, top):
        """Changes with the mutant and with the lines around it: a result stays good for one of these."""
        text = "\0".join((self.file, self.old, self.new, self.test, ",".join(self.needed_targets())))
        return hashlib.sha256((text + self.around(top)).encode()).hexdigest()[:16]

    def around(self, top):
        """The text that it changes, and so many lines before it and behind it."""
        before, old, behind = (Path(top) / self.file).read_text(encoding="utf-8").partition(self.old)
        before = "\n".join(before.split("\n")[-LINES_AROUND - 1:])
        return before + old + "\n".join(behind.split("\n")[:LINES_AROUND + 1])

    def needed_targets(self):
        return self.targets or targets_of(self.test)

    def applied_to(self, text):
        return text.replace(self.old, self.new, 1)


def targets_of(test):
    """The targets of a ctest expression that begins, or whose alternatives begin, with the names of tests."""
    found = []
    for one in re.sub(r"^\^|\\(?=\.)", "", test).split("|"):
        one = one.removeprefix("^")
        if replay := re.match(r"(fuzz|softnic)\.replay\.(\w+)", one):
            kind = "replay" if replay[1] == "fuzz" else "softnic_replay"
            found.append(f"{kind}_{replay[2]}")
            continue
        found += next((targets for name, targets in TARGETS if re.match(name, one)), ())
    return tuple(dict.fromkeys(found))


def fields_of(entry, where):
    """An entry of a list as a mutant, or a sentence about what is wrong."""
    unknown = set(entry) - FIELDS
    missing = {"id", "file", "old", "new", "breaks"} - set(entry)
    if unknown or missing:
        wrong = ", ".join(sorted(unknown or missing))
        return f"{where}: mutant '{entry.get('id', '?')}' {'has unknown' if unknown else 'lacks the'} fields: {wrong}"
    return Mutant(**{**entry, "targets": tuple(entry.get("targets", ())), "list": where})


def load(folder):
    """All mutants, and sentences about what cannot be read."""
    mutants, problems = [], []
    for path in sorted(Path(folder).rglob("*.toml")):
        where = path.relative_to(folder).as_posix()
        try:
            entries = tomllib.loads(path.read_text(encoding="utf-8")).get("mutant", [])
        except tomllib.TOMLDecodeError as wrong:
            problems.append(f"{where}: {wrong}")
            continue
        for entry in entries:
            made = fields_of(entry, where)
            (mutants if isinstance(made, Mutant) else problems).append(made)
    return mutants, problems


def problems_of(mutant, top):
    """What keeps one mutant from being run."""
    if mutant.old == mutant.new:
        yield "it changes nothing"
    if not mutant.breaks.endswith("."):
        yield "'breaks' is not a sentence"
    if not (mutant.test or mutant.explained):
        yield "no test is named, and nothing is explained"
    try:
        re.compile(mutant.test)
    except re.error as wrong:
        yield f"its test is no regular expression: {wrong}"
    if mutant.test and not mutant.needed_targets():
        yield f"no target is known for the test '{mutant.test}'; name its targets"
    path = Path(top) / mutant.file
    if not path.is_file():
        yield f"there is no file {mutant.file}"
        return
    count = path.read_text(encoding="utf-8").count(mutant.old)
    if count != 1:
        yield f"its text is {count} times in {mutant.file}, not once"


def check(mutants, top):
    """Sentences about all that is wrong with a list."""
    ids = [each.id for each in mutants]
    problems = [f"{each}: this id is used twice" for each in sorted({i for i in ids if ids.count(i) > 1})]
    for each in mutants:
        problems += [f"{each.list}: {each.id}: {problem}" for problem in problems_of(each, top)]
    return problems


def select(mutants, wanted):
    """Those whose id, file, list or house matches one of the patterns; all of them without a pattern."""
    def matches(mutant, pattern):
        of = Path(mutant.list)
        names = (mutant.id, mutant.file, mutant.list, of.name, of.stem, of.parent.name)
        return any(fnmatch.fnmatch(name, pattern) for name in names)
    return [each for each in mutants if not wanted or any(matches(each, pattern) for pattern in wanted)]
