# SPDX-License-Identifier: Apache-2.0
"""Splits the functions of a C++ source into statements, conditions and initialisers.

Not a compiler: it relies on the layout of clang-format, which puts spaces around binary operators and none around the
brackets of templates. What it takes for something else does not compile as a mutant, and is dropped then.
"""
import re
import sys
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent
sys.path.append(str(TOP / "bench"))
import cpp_outline  # noqa: E402

TOKEN = re.compile(r"""  "+ | [A-Za-z_]\w* | \d(?:[eEpP][+-]|[\w.'])*
                       | <=>|<<=|>>=|\.\.\.|::|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]= | \S  """, re.X)
CLOSING = {"(": ")", "[": "]", "{": "}"}
TYPE_WORDS = {"auto", "const", "constexpr", "constinit", "static", "thread_local", "volatile", "unsigned", "signed",
              "int", "bool", "char", "long", "short", "float", "double", "void", "typename", "extern", "alignas"}
NOT_READ = {"using", "typedef", "static_assert", "struct", "class", "enum", "union", "template", "asm", "goto",
            "namespace", "friend", "assert"}
JUMPS = {"return", "co_return", "throw", "break", "continue"}
MACRO = re.compile(r"[A-Z][A-Z0-9_]{2,}$")
NAME = re.compile(r"[A-Za-z_]\w*$")
UNEVALUATED = {"decltype", "sizeof", "alignof", "noexcept", "requires", "alignas"}


class Unreadable(Exception):
    """Brackets that do not match."""


@dataclass(frozen=True)
class Region:
    """Tokens that a mutant replaces together: a statement, a value, a condition (of a loop too) or a loop's step."""
    kind: str
    first: int
    last: int  # with the semicolon of a statement
    holes: tuple = ()  # bodies of lambdas in it, which have regions of their own


@dataclass(frozen=True)
class Token:
    text: str
    start: int
    end: int


def literal(match):
    """Comments become spaces; a literal is one token made of quotes."""
    return re.sub(r"[^\n]", " " if match[0].startswith("/") else '"', match[0])


class Source:
    """The tokens of a source, the brackets that belong together, and the regions of its functions."""

    def __init__(self, file, text):
        self.file, self.text = file, text
        self.read = cpp_outline.preprocessed(text, literal)
        self.tokens = [Token(found[0], found.start(), found.end()) for found in TOKEN.finditer(self.read)]
        self.partner = {}
        self.pair_brackets()
        self.regions, self.rows, self.declarations = [], [], []
        self.bodies = self.find_bodies()
        for body in self.bodies:
            Reader(self).block(body + 1, self.partner[body])

    def find_bodies(self):
        """The opening braces of functions."""
        begins = {token.start: number for number, token in enumerate(self.tokens)}
        try:
            functions = cpp_outline.Outline(self.file, self.text).functions
        except (ValueError, IndexError) as wrong:
            raise Unreadable(self.file) from wrong
        return [begins[each.braces[0]] for each in functions if each.braces[0] in begins]

    def is_tight(self, number):
        """Whether a < or > stands without spaces, as those of templates do."""
        return number > 0 and self.tokens[number - 1].end == self.tokens[number].start

    def pair_brackets(self):
        open_ones = []
        for number, token in enumerate(self.tokens):
            if token.text in CLOSING or (token.text == "<" and self.is_tight(number)):
                open_ones.append(number)
            elif token.text in CLOSING.values():
                self.close(open_ones, number)
            elif token.text in {">", ">>"} and self.is_tight(number):
                for _ in token.text:
                    if open_ones and self.tokens[open_ones[-1]].text == "<":
                        self.partner[open_ones.pop()] = number

    def close(self, open_ones, number):
        while open_ones and self.tokens[open_ones[-1]].text == "<":  # no template after all
            open_ones.pop()
        if not open_ones or CLOSING[self.tokens[open_ones[-1]].text] != self.tokens[number].text:
            raise Unreadable(self.file)
        begin = open_ones.pop()
        self.partner[begin] = number
        self.partner[number] = begin

    def line_of(self, number):
        return self.text.count("\n", 0, self.tokens[number].start) + 1

    def at(self, number):
        return self.tokens[number].text if 0 <= number < len(self.tokens) else ""

    def after(self, number):
        """The next token that is not in the brackets which open here."""
        return max(self.partner.get(number, number), number) + 1

    def level(self, first, behind):
        """The tokens from `first` that are in no brackets of their own; of brackets, the opening one."""
        while first < behind:
            yield first
            first = self.after(first)

    def split(self, first, behind, mark):
        """The parts between the marks that are in no brackets, each as (first, behind)."""
        begin = first
        for number in self.level(first, behind):
            if self.at(number) == mark:
                yield begin, number
                begin = number + 1
        yield begin, behind

    def constants(self):
        """The tokens that are in no function, or in a constant there; nor in the arguments of a template."""
        bodies, number = set(self.bodies), 0
        while number < len(self.tokens):
            skipped = number in bodies or (self.at(number) == "<" and number in self.partner)
            number = self.after(number) if skipped else number
            if number < len(self.tokens):
                yield number
            number += 1
        for each in self.declarations:
            if self.at(each.first) == "constexpr":
                yield from self.direct(each)

    def direct(self, region):
        """The tokens of a region that it evaluates itself: not those of lambdas in it, nor of types."""
        number = region.first
        while number <= region.last:
            hole = next((hole for hole in region.holes if hole[0] <= number <= hole[1]), None)
            if hole:
                number = hole[1] + 1
            elif self.at(number) in UNEVALUATED:
                number = self.after(number + 1)
            elif self.at(number) == "<" and number in self.partner:
                number = self.after(number)
            else:
                yield number
                number += 1


class Reader:
    """Reads one body and adds what it finds to the source."""

    def __init__(self, source):
        self.source = source
        self.at, self.after, self.partner = source.at, source.after, source.partner

    def block(self, at, behind):
        row = []
        while at < behind:
            at, region = self.statement(at, behind)
            if region is None and row:
                self.source.rows.append(row)
                row = []
            row += [region] if region else []
        if row:
            self.source.rows.append(row)

    def statement(self, at, behind):
        """The token behind a statement, and its region where it has one of its own."""
        word = self.at(at)
        if at >= behind or word == ";":
            return at + 1, None
        if word == "[" and self.at(at + 1) == "[":
            return self.statement(self.after(at), behind)
        if word == "{":
            self.block(at + 1, self.partner[at])
            return self.after(at), None
        if word in {"if", "while", "for", "switch"}:
            return self.controlled(at, behind), None
        if word in {"else", "do", "try"}:
            return self.statement(at + 1, behind)[0], None
        if word == "catch":
            return self.statement(self.after(at + 1), behind)[0], None
        if word in {"case", "default"}:
            return next((each + 1 for each in self.source.level(at, behind) if self.at(each) == ":"), behind), None
        return self.plain(at, behind)

    def controlled(self, at, behind):
        """`if`, `while`, `for` and `switch`."""
        opening = at + 1 if self.at(at + 1) == "(" else at + 2
        if self.at(opening) != "(":
            return self.statement(at + 2, behind)[0]  # if consteval
        if opening == at + 1:
            self.header(self.at(at), opening + 1, self.partner[opening])
        return self.statement(self.after(opening), behind)[0]

    def header(self, word, first, behind):
        parts = list(self.source.split(first, behind, ";"))
        if word == "for" and len(parts) == 1:
            return self.lambdas(first, behind)  # over a range
        checked = {"if": "condition", "switch": "value"}.get(word, "loop")
        kinds = {1: [checked], 2: ["step", checked], 3: ["step", checked, "step"]}[len(parts)]
        for kind, (begin, end) in zip(kinds, parts):
            if begin < end and self.is_declaration(begin, end):
                self.initialiser(begin, end, self.lambdas(begin, end))
            elif begin < end:
                self.add(kind, begin, end - 1, self.lambdas(begin, end))
        return None

    def plain(self, at, behind):
        end = next((each for each in self.source.level(at, behind) if self.at(each) == ";"), behind - 1)
        word = self.at(at)
        if word in NOT_READ or (MACRO.match(word) and self.at(at + 1) == "("):
            return end + 1, None
        if word not in JUMPS and self.is_declaration(at, end):
            self.declaration(at, end)
            return end + 1, None
        return end + 1, self.add("statement", at, end, self.lambdas(at, end))

    def add(self, kind, first, last, holes):
        region = Region(kind, first, last, holes)
        self.source.regions.append(region)
        return region

    def declaration(self, at, end):
        holes = self.lambdas(at, end)
        self.source.declarations.append(Region("declaration", at, end, holes))
        self.initialiser(at, end, holes)

    def is_declaration(self, first, behind):
        """Whether it begins with a type and a name."""
        if self.at(first) in TYPE_WORDS:
            return True
        if self.at(first) in {"delete", "co_await", "co_yield", "new"}:
            return False
        at = self.end_of_name(first)
        while self.at(at) == "const" or (self.at(at) in {"*", "&", "&&"} and self.source.is_tight(at)):
            at += 1
        return first < at < behind and NAME.match(self.at(at)) is not None

    def end_of_name(self, at):
        """The token behind a name, with what qualifies it and its arguments as a template."""
        if self.at(at) == "::":
            at += 1
        while NAME.match(self.at(at)):
            at += 1
            if self.at(at) == "<" and at in self.partner:
                at = self.after(at)
            if self.at(at) != "::":
                break
            at += 1
        return at

    def initialiser(self, first, behind, holes):
        """What a variable begins with."""
        level = list(self.source.level(first, behind))
        equals = next((each for each in level if self.at(each) == "="), None)
        if self.at(first) in {"constexpr", "constinit"}:
            return
        begin = equals + 1 if equals else level[-1]
        if self.at(begin) in {"{", "("} and self.after(begin) == behind:
            self.elements(begin, holes)
        elif equals and len(list(self.source.split(begin, behind, ","))) == 1:
            self.add("value", begin, behind - 1, holes)

    def elements(self, opening, holes):
        for first, behind in self.source.split(opening + 1, self.partner[opening], ","):
            if self.at(first) == "." and self.at(first + 2) == "=":
                first += 3
            if first < behind and self.at(first) != "{":
                self.add("value", first, behind - 1, holes)

    def lambdas(self, first, behind):
        """The bodies of the lambdas here, which are read too."""
        holes, at = [], first
        while at < behind:
            body = self.body_of_lambda(at, behind)
            if body is None:
                at += 1
                continue
            self.block(body + 1, self.partner[body])
            holes.append((body, self.partner[body]))
            at = self.partner[body] + 1
        return tuple(holes)

    def body_of_lambda(self, at, behind):
        """The opening brace of the lambda that begins at this token."""
        before = self.at(at - 1)
        if self.at(at) != "[" or before in {")", "]", "["} or (NAME.match(before) and before not in JUMPS):
            return None
        at = self.after(at)
        while at < behind and self.at(at) not in {"{", ";", ",", ")", "="}:
            at = self.after(at)
        return at if self.at(at) == "{" else None
