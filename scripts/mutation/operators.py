# SPDX-License-Identifier: Apache-2.0
"""The changes that an operator can make in a source: each replaces a piece of text in one region."""
import re
from dataclasses import dataclass

from mutation.statements import JUMPS, NAME, Region

# What is said of a mutant in a report.
SENTENCES = {
    "comparison": "The comparison is the opposite.",
    "boundary": "The limit is one off.",
    "number": "The number is another one.",
    "arithmetic": "It computes something else.",
    "logic": "The conditions are joined in another way.",
    "condition forced": "The condition always has this value.",
    "statement left out": "The statement does not run.",
    "call left out": "The call is not made.",
    "fence or wake-up removed": "Nobody is woken, or nothing is ordered.",
    "argument replaced": "The call gets another argument.",
    "lines swapped": "The lines run in the other order.",
    "status replaced": "It tells something else.",
}
OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
BOUNDARY = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
ARITHMETIC = {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "&": "|", "|": "&", "^": "|", "<<": ">>", ">>": "<<",
              "+=": "-=", "-=": "+=", "|=": "&=", "&=": "|=", "<<=": ">>=", ">>=": "<<="}
STEPS = {"++": "--", "--": "++"}
LOGIC = {"&&": "||", "||": "&&"}
EXTREMES = {"min": "max", "max": "min"}
BOOLS = {"true": "false", "false": "true"}
WAKES = re.compile(r"fence|notify|wake|\bwake\w*|signal|barrier|doorbell|ring|flush|kick|interrupt")
INTEGER = re.compile(r"(0[xX][0-9a-fA-F']+|[1-9][0-9']*|0)([uUlLzZ]*)$")


@dataclass(frozen=True)
class Edit:
    """Text from `start` to `end` becomes `new`; `span` is the region, and `kind` how that is written in the schema."""
    operator: str
    start: int
    end: int
    new: str
    span: tuple
    kind: str


class Changes:
    """All edits of one source."""

    def __init__(self, source, enumerators):
        self.source, self.enumerators = source, enumerators
        self.at, self.tokens = source.at, source.tokens
        self.edits = []
        for region in source.regions:
            self.of_region(region)
        for row in source.rows:
            self.of_row(row)
        for number in source.constants():
            self.of_constant(number)

    def by_line(self, built):
        """Those that need a build each, or the others."""
        found = {}
        for edit in self.edits:
            if (edit.kind == "built") != built:
                continue
            found.setdefault(self.source.text.count("\n", 0, edit.start) + 1, []).append(edit)
        return found

    def keep(self, operator, region, first, last, new):
        span = (self.tokens[region.first].start, self.tokens[region.last].end)
        start, end = self.tokens[first].start, self.tokens[last].end
        if 'R"' not in self.source.text[span[0]:span[1]]:
            self.edits.append(Edit(operator, start, end, new, span, region.kind))

    def of_region(self, region):
        for number in self.source.direct(region):
            self.of_token(region, number)
        if region.kind in {"condition", "loop"}:
            self.forced(region, region.first, region.last + 1)
        if region.kind == "statement":
            self.left_out(region)

    def of_token(self, region, number):
        text = self.at(number)
        if self.is_binary(number):
            for operator, table in (("comparison", OPPOSITE), ("boundary", BOUNDARY), ("arithmetic", ARITHMETIC),
                                    ("logic", LOGIC)):
                if text in table:
                    self.keep(operator, region, number, number, table[text])
        if text in STEPS:
            self.keep("arithmetic", region, number, number, STEPS[text])
        elif text == "!":
            self.keep("logic", region, number, number, "")
        elif text == "?":
            self.of_choice(region, number)
        elif text == "(" and NAME.match(self.at(number - 1)):
            self.of_call(region, number)
        elif INTEGER.match(text):
            self.of_number(region, number)
        elif NAME.match(text):
            self.of_name(region, number)

    def is_binary(self, number):
        """clang-format puts spaces around binary operators alone."""
        before, token, behind = self.tokens[number - 1], self.tokens[number], self.tokens[number + 1]
        return before.end < token.start and token.end < behind.start and self.at(number - 1) not in {"return", "(", ","}

    def of_name(self, region, number):
        text = self.at(number)
        if text in BOOLS:
            self.keep("status replaced", region, number, number, BOOLS[text])
        elif text in EXTREMES and self.at(number - 1) == "::" and self.at(number + 1) in {"(", "<"}:
            self.keep("arithmetic", region, number, number, EXTREMES[text])
        elif self.at(number - 1) == "::":
            for other in self.enumerators.get(self.at(number - 2), ()):
                if text != other and text in self.enumerators[self.at(number - 2)]:
                    self.keep("status replaced", region, number, number, other)

    def of_number(self, region, number):
        digits, suffix = INTEGER.match(self.at(number)).groups()
        value = int(digits.replace("'", ""), 0)
        for other in {value + 1, value - 1, 0} - {value, -1}:
            self.keep("number", region, number, number, f"{other}{suffix}")

    def of_choice(self, region, number):
        """c ? a : b"""
        first = number
        while first > region.first and self.at(first - 1) not in {"(", ",", "=", "{", "?", ":", ";", "[", *JUMPS}:
            before = self.source.partner.get(first - 1, first - 1)
            first = before if before < first - 1 else first - 1
        for value in ("true", "false"):
            self.keep("condition forced", region, first, number - 1, value)

    def of_call(self, region, opening):
        parts = [part for part in self.source.split(opening + 1, self.source.partner[opening], ",")
                 if part[0] < part[1]]
        texts = [self.source.text[self.tokens[first].start:self.tokens[behind - 1].end] for first, behind in parts]
        for number, (first, behind) in enumerate(parts):
            for other in texts[:number] + texts[number + 1:]:
                if other != texts[number] and "[" not in other:
                    self.keep("argument replaced", region, first, behind - 1, other)
        for number in range(len(parts) - 1):
            if texts[number] != texts[number + 1]:
                between = f"{texts[number + 1]}, {texts[number]}"
                self.keep("argument replaced", region, parts[number][0], parts[number + 1][1] - 1, between)

    def forced(self, region, first, behind):
        """A whole condition, and the parts of a conjunction or disjunction. Any test notices an endless loop."""
        for value in ("true", "false") if region.kind == "condition" else ("false",):
            self.keep("condition forced", region, first, behind - 1, value)
        level = [self.at(each) for each in self.source.level(first, behind)]
        mark = next((each for each in ("||", "&&") if each in level), None)
        if mark and "?" not in level:
            for begin, end in self.source.split(first, behind, mark):
                self.forced(region, begin, end)

    def left_out(self, region):
        first, last = region.first, region.last
        word = self.at(first)
        if word in {"throw", "co_return"} or (word == "return" and last > first + 1) or last == first:
            return
        head = self.source.text[self.tokens[first].start:self.tokens[last].end].split("(")[0]
        operator = "statement left out"
        if self.at(last - 1) == ")" and word not in JUMPS:
            operator = "fence or wake-up removed" if WAKES.search(head.lower()) else "call left out"
        self.keep(operator, region, first, last, "{}")

    def of_row(self, row):
        """Neighbours that may change places."""
        for one, other in zip(row, row[1:]):
            if self.at(one.first) in JUMPS or self.at(other.first) in JUMPS:
                continue
            both = Region("row", one.first, other.last)
            texts = [self.source.text[self.tokens[each.first].start:self.tokens[each.last].end]
                     for each in (other, one)]
            if texts[0] != texts[1]:
                self.keep("lines swapped", both, one.first, other.last, " ".join(texts))

    def of_constant(self, number):
        """The compiler evaluates it, so that it needs a build of its own."""
        if self.at(number - 1) not in {"=", "{", "(", ",", "*", "<<", "+", "-", "/"}:
            return
        region = Region("built", number, number)
        if INTEGER.match(self.at(number)):
            self.of_number(region, number)
        elif self.at(number) in BOOLS:
            self.keep("status replaced", region, number, number, BOOLS[self.at(number)])


ENUM = re.compile(r"\benum\s+(?:class|struct)\s+(\w+)[^{;]*\{([^}]*)\}")


def enumerators_in(text):
    """The names that each scoped enumeration of a source has."""
    return {name: re.findall(r"(?:^|,)\s*(\w+)", re.sub(r"=[^,]*", "", body)) for name, body in ENUM.findall(text)}
