#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds functions with bodies, types and includes in C++ sources. Not a compiler, but enough for this tree.

Of `#if … #else …` it reads what the host's compiler sees: not the branch that is CUDA's, else the first one.
"""
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

SUFFIXES = (".hpp", ".cpp", ".cuh", ".cu")
BLANKED = re.compile(r"//[^\n]*|/\*.*?\*/"
                     r'|R"(?P<end>\w*)\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"'
                     r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.S)
DIRECTIVE = re.compile(r"\s*#\s*(\w+)(.*)")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)
MARK = re.compile(r"[(){};]")
ACCESS = re.compile(r"\s*(?:public|private|protected)\s*:(?!:)")
NAMESPACE = re.compile(r"(?:inline\s+)?namespace\b\s*([\w:\s]*)$|(extern)$")
TYPE = re.compile(r"(?:typedef\s+)?(class|struct|union|enum(?:\s+(?:class|struct))?)\s+(?:[A-Z_]+\s+)?([\w:]+(?:<.*>)?)"
                  r"(?:\s+final)?\s*(?::(?!:).*)?$", re.S)
ALIAS = re.compile(r"using\s+(\w+)\s*=")
CALLED = re.compile(r"((?:\w+(?:<[^<>()]*>)?\s*::\s*)*(?:~?\w+|operator\s*(?:\(\)|[^\s\w(]+|[\w:]+)))\s*\(")
NO_FUNCTION = {"alignas", "noexcept", "decltype", "explicit", "requires", "__attribute__", "static_assert", "asm"}


@dataclass(frozen=True)
class Function:
    """A definition with a body."""
    name: str  # with its namespaces and classes
    parameters: str
    file: str  # from the top of the tree
    line: int
    body: str = field(repr=False)  # and what a constructor initialises
    braces: tuple = field(default=(0, 0), repr=False)  # where those of the body begin and end in the source

    @property
    def statements(self):
        """How many statements the body has, without static_assert."""
        body = re.sub(r"static_assert\s*\([^;]*;", "", self.body)
        while (shorter := re.sub(r"\([^()]*\)", "", body)) != body:
            body = shorter
        return body.count(";")

    def names(self, other):
        """Whether this name stands in the body, as that of a function which is called would."""
        return re.search(rf"(?<![\w~]){re.escape(other.lstrip('~'))}(?!\w)", self.body) is not None


@dataclass(frozen=True)
class Type:
    """A class, struct, union or enumeration with its members; `kind` is "using" for an alias."""
    kind: str
    name: str
    file: str
    line: int
    depth: int  # in how many classes it lies


def _blank(match):
    return re.sub(r"[^\n]", " ", match[0])


def _is_taken(keyword, condition):
    """Whether the first branch of this condition is read."""
    if keyword == "if" and condition.strip() == "0":
        return False
    if "CUDA" not in condition:
        return True
    return "!" in condition or keyword == "ifndef"


def preprocessed(text, blank=_blank):
    """The text without directives, comments, literals and branches that are not taken; all else stays where it is."""
    out, branches, goes_on = [], [], False  # of a branch: whether it is read, and whether one was before
    for line in BLANKED.sub(blank, text).split("\n"):
        directive = DIRECTIVE.match(line) if not goes_on else None
        if directive:
            _follow(directive[1], directive[2], branches)
        skipped = directive or goes_on or not all(read for read, _ in branches)
        goes_on = bool(directive or goes_on) and line.rstrip().endswith("\\")
        out.append(" " * len(line) if skipped else line)
    return "\n".join(out)


def _follow(keyword, condition, branches):
    if keyword in ("if", "ifdef", "ifndef"):
        read = _is_taken(keyword, condition)
        branches.append((read, read))
    elif keyword in ("elif", "else"):
        _, before = branches[-1]
        read = not before and _is_taken("if", condition)
        branches[-1] = (read, before or read)
    elif keyword == "endif":
        branches.pop()


def _without_template(head):
    """The head of a declaration without attributes and `template <…>`."""
    head = re.sub(r"\[\[.*?\]\]|alignas\s*\([^()]*\)", " ", head, flags=re.S).strip()
    while head.startswith("template"):
        depth = 0
        for at, char in enumerate(head):
            depth += (char == "<") - (char == ">")
            if char == ">" and depth == 0:
                break
        head = head[at + 1:].strip()
    return head


def _end_of(text, at, opening="{", closing="}"):
    """The position after the bracket that closes the one at `at`."""
    depth = 0
    for found in re.compile(f"[{re.escape(opening + closing)}]").finditer(text, at):
        depth += 1 if found[0] == opening else -1
        if depth == 0:
            return found.end()
    raise ValueError("a bracket is not closed")


class Outline:
    """Walks over one source and collects what it defines."""

    def __init__(self, file, text):
        self.file, self.text = file, preprocessed(text)
        self.scopes = []  # (is a type, name)
        self.functions, self.types = [], []
        self.begin = 0  # of the declaration
        self.read()

    def read(self):
        at = 0
        while found := MARK.search(self.text, at):
            at = self.take(found[0], found.start())

    def take(self, mark, at):
        if mark == "(":
            return _end_of(self.text, at, "(", ")")
        if mark == "{":
            return self.open_brace(at)
        if mark == ";":
            self.keep_alias(self.text[self.begin:at])
        elif self.scopes:
            self.scopes.pop()
        self.begin = at + 1
        return at + 1

    def open_brace(self, at):
        head = _without_template(ACCESS.sub("", self.text[self.begin:at]))
        if found := NAMESPACE.match(head):
            return self.enter(at, False, (found[1] or "").strip())
        if found := TYPE.match(head):
            return self.keep_type(at, " ".join(found[1].split()), found[2])
        if self.is_body(head):
            return self.keep_function(at, head)
        return _end_of(self.text, at)  # an initialiser: the declaration goes on

    def enter(self, at, is_type, name):
        self.scopes.append((is_type, name))
        self.begin = at + 1
        return at + 1

    def line_of(self, at):
        return self.text.count("\n", 0, at) + 1

    def first_line(self):
        text = self.text[self.begin:]
        return self.line_of(self.begin + len(text) - len(text.lstrip()))

    def full(self, name):
        plain = re.sub(r"<.*>|\s", "", name) if "operator" not in name else name
        return "::".join([each for _, each in self.scopes if each] + [plain])

    def keep_type(self, at, kind, name):
        depth = sum(is_type for is_type, _ in self.scopes)
        self.types.append(Type(kind, self.full(name), self.file, self.line_of(at), depth))
        if kind.startswith("enum"):
            return _end_of(self.text, at)
        return self.enter(at, True, re.sub(r"<.*>", "", name))

    def keep_alias(self, declaration):
        head = _without_template(ACCESS.sub("", declaration))
        if found := ALIAS.match(head):
            depth = sum(is_type for is_type, _ in self.scopes)
            self.types.append(Type("using", self.full(found[1]), self.file, self.first_line(), depth))

    @staticmethod
    def call_in(head):
        """Where the head names a function and its parameters begin, or None."""
        for found in CALLED.finditer(head):
            if "=" in head[:found.start()] and "operator" not in found[0]:
                return None
            if found[1] not in NO_FUNCTION:
                return found
        return None

    def is_body(self, head):
        """Whether a function's body follows this head, and not the value of a member or variable."""
        found = self.call_in(head)
        if found is None:
            return False
        rest = head[_end_of(head, found.end() - 1, "(", ")"):]
        initialises = re.search(r"(?<!:):(?!:)", rest) is not None
        return not initialises or rest.rstrip()[-1] in ")}"

    def keep_function(self, at, head):
        found = self.call_in(head)
        end = _end_of(head, found.end() - 1, "(", ")")
        behind = _end_of(self.text, at)
        parameters = " ".join(head[found.end():end - 1].split())
        body = head[end:] + self.text[at + 1:behind - 1]
        self.functions.append(Function(self.full(found[1]), parameters, self.file, self.first_line(), body,
                                       (at, behind)))
        self.begin = behind
        return behind


class Tree:
    """The sources of a repository: `src` and `include`, or those of its folders that are named."""

    def __init__(self, top, folders=("src", "include")):
        self.top = Path(top)
        self.files = sorted(str(path.relative_to(self.top)) for folder in folders
                            for path in (self.top / folder).rglob("*") if path.suffix in SUFFIXES)

    def text(self, file):
        return (self.top / file).read_text(encoding="utf-8")

    @cached_property
    def outlines(self):
        return {file: Outline(file, self.text(file)) for file in self.files}

    @cached_property
    def functions(self):
        return [each for outline in self.outlines.values() for each in outline.functions]

    def types_in(self, file):
        return self.outlines[file].types

    def includes_of(self, file):
        """The files of the tree that it includes itself."""
        named = INCLUDE.findall(self.text(file))
        places = (Path(file).parent, Path("src"), Path("include"))
        found = [(place / name).as_posix() for name in named for place in places]
        return [each for each in dict.fromkeys(found) if each in self.outlines]
