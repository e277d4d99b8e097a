# SPDX-License-Identifier: Apache-2.0
"""Which statements no test runs: each gets a mark in a build of its own, where each process marks what it runs."""
import os
from pathlib import Path
from dataclasses import dataclass

from check_sources import house_of
from mutation.draw import files_in
from mutation.plan import print_of
from mutation.schema import PLACE, Sources, write_file
from mutation.statements import Source, Unreadable

FORMS = {
    "statement": ("{{ (void){mark}; ", " }}"),
    "declaration": ("(void){mark}; ", ""),
    "condition": ("((void){mark}, bool(", "))"),
    "loop": ("((void){mark}, bool(", "))"),
}


@dataclass(frozen=True)
class Mark:
    number: int
    file: str
    kind: str
    span: tuple
    lines: tuple  # that it stands on


def lines_of(source, region):
    """Without the lambdas in it, whose statements have marks."""
    return tuple(sorted({source.line_of(number) for number in source.direct(region)}))


def marks_in(file, text, first):
    source = Source(file, text)
    regions = [each for each in source.regions if each.kind in FORMS] + source.declarations
    return [Mark(first + number, file, each.kind,
                 (source.tokens[each.first].start, source.tokens[each.last].end), lines_of(source, each))
            for number, each in enumerate(regions)]


def marked(file, text, marks):
    """The source with its marks. Lines stay where they are."""
    pieces = []
    for each in marks:
        begin, end = FORMS[each.kind]
        pieces.append((each.span[0], 1, begin.format(mark=f"accel_mutant({each.number})")))
        pieces.append((each.span[1], 0, end.format()))
    for place, _, piece in sorted(pieces, reverse=True):
        text = text[:place] + piece + text[place:]
    return f'#include "{os.path.relpath(PLACE, Path(file).parent)}"\n#line 1\n{text}' if marks else text


class MarkedSources(Sources):
    def write(self, file, mutants):
        marks = [each for each in mutants if each.file == file]
        write_file(self.tree / file, marked(file, self.text(file), marks))


class Marks:
    """All marks, as a plan for the builder; those that do not compile are dropped."""

    def __init__(self, top, folders):
        self.top, self.mutants, self.dropped = Path(top), [], 0
        names = files_in(top, folders)
        self.print = print_of(top, names)
        for name in names:
            try:
                text = (self.top / name).read_text(encoding="utf-8")
                self.mutants += marks_in(name, text, len(self.mutants) + 1)
            except Unreadable:
                continue
        self.houses = {house_of(Path(name)) for name in names}

    def files(self):
        return {each.file for each in self.mutants} | {PLACE}

    def more(self):
        return set()

    def save(self):
        pass


def not_run(marks, reached):
    """By file: the lines with marks, and those of them that no test reaches."""
    lines, run = {}, {}
    for each in marks:
        lines.setdefault(each.file, set()).update(each.lines)
        if each.number in reached:
            run.setdefault(each.file, set()).update(each.lines)
    return {file: (found, found - run.get(file, set())) for file, found in sorted(lines.items())}


def ranges(lines):
    """3, 4, 5, 9: 3-5 9"""
    parts = []
    for line in sorted(lines):
        if parts and parts[-1][1] == line - 1:
            parts[-1][1] = line
        else:
            parts.append([line, line])
    return " ".join(f"{first}-{last}" if last > first else str(first) for first, last in parts)


def text(found):
    """Each file with such lines; then the share of each house."""
    for file, (_, missing) in found.items():
        if missing:
            yield f"{file}: {ranges(missing)}"
    yield ""
    houses = {}
    for file, (lines, missing) in found.items():
        of = houses.setdefault(house_of(Path(file)), [0, 0])
        of[0] += len(lines)
        of[1] += len(missing)
    for house, (count, missing) in sorted(houses.items()):
        yield f"{house}: no test runs {missing} of {count} lines ({100 * missing / count:.1f} %)"
