# SPDX-License-Identifier: Apache-2.0
"""Draws mutants at random over the lines of the sources."""
import random
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from check_sources import house_of
from mutation.operators import Changes, enumerators_in
from mutation.statements import Source, Unreadable, cpp_outline

FOLDERS = ("src", "include", "tools/softnic/src", "examples/serving")
SUFFIXES = {".cpp", ".hpp", ".cuh"}
WEIGHTS = {"transport": 4, "kernels": 2, "softnic": 2, "serving": 2}
PATIENCE = 100_000  # draws without a new mutant


@dataclass(frozen=True)
class Mutant:
    number: int
    file: str
    line: int
    operator: str
    start: int  # of the text that becomes `new`
    end: int
    new: str
    span: tuple  # the text that the schema replaces
    kind: str  # how
    old: str
    shown: str  # the line

    @property
    def house(self):
        return house_of(Path(self.file))

    def overlaps(self, other):
        return self.file == other.file and self.span[0] < other.span[1] and other.span[0] < self.span[1]

    def as_row(self):
        return asdict(self)


def from_row(row):
    return Mutant(**{**row, "span": tuple(row["span"])})


def flat(text):
    """On one line, without comments."""
    plain = cpp_outline.BLANKED.sub(lambda found: " " if found[0].startswith("/") else found[0], text)
    return re.sub(r"\s*\n\s*", " ", plain)


def files_in(top, folders):
    """The sources in the folders that mutants are drawn for; a file may be named too."""
    found = []
    for path in sorted(path for folder in FOLDERS for path in (Path(top) / folder).rglob("*")):
        name = path.relative_to(top)
        wanted = not folders or any(str(name) == each.rstrip("/") or name.is_relative_to(each) for each in folders)
        if wanted and path.suffix in SUFFIXES and "tests" not in name.parts:
            found.append(str(name))
    return found


class Drawer:
    """The same seed draws the same mutants from the same sources. `built`: those that need a build each."""

    def __init__(self, top, folders, seed, built=False):
        self.top, self.random, self.built = Path(top), random.Random(f"{seed}"), built
        self.lines = {}  # of each house: (file, line)
        self.changes = {}
        self.drawn = set()
        self.texts = {name: (self.top / name).read_text(encoding="utf-8") for name in files_in(top, folders)}
        for name, text in self.texts.items():
            self.lines.setdefault(house_of(Path(name)), []).extend((name, line) for line in code_lines(text))

    def enumerators(self):
        if not hasattr(self, "enums"):
            self.enums = {}
            for name in files_in(self.top, ()):
                text = (self.top / name).read_text(encoding="utf-8")
                self.enums.update(enumerators_in(cpp_outline.preprocessed(text)))
        return self.enums

    def edits_of(self, file):
        """By line. Of a file that cannot be read, none."""
        if file not in self.changes:
            try:
                self.changes[file] = Changes(Source(file, self.texts[file]), self.enumerators()).by_line(self.built)
            except Unreadable:
                self.changes[file] = {}
        return self.changes[file]

    def next(self, number, others):
        """A mutant that was not drawn yet and touches none of the others; None: there seems to be none."""
        houses = sorted(self.lines)
        for _ in range(PATIENCE if houses else 0):
            house = self.random.choices(houses, [WEIGHTS[each] for each in houses])[0]
            file, line = self.random.choice(self.lines[house])
            edit = self.of_line(file, line)
            if edit is None or (file, edit) in self.drawn:
                continue
            self.drawn.add((file, edit))
            mutant = self.made(number, file, line, edit)
            if not any(mutant.overlaps(other) for other in others):
                return mutant
        return None

    def of_line(self, file, line):
        """Each operator that fits the line is as likely as another."""
        edits = self.edits_of(file).get(line, [])
        if not edits:
            return None
        operator = self.random.choice(sorted({each.operator for each in edits}))
        return self.random.choice([each for each in edits if each.operator == operator])

    def made(self, number, file, line, edit):
        text = self.texts[file]
        return Mutant(number, file, line, edit.operator, edit.start, edit.end, flat(edit.new), edit.span, edit.kind,
                      flat(text[edit.start:edit.end]), text.split("\n")[line - 1].strip())


def code_lines(text):
    lines = text.split("\n")
    return [number for number, line in enumerate(lines, 1) if re.match(r"\s*[^\s/#]", line)]
