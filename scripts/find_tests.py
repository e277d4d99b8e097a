#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds the programs of the tests whose names match, in a build folder that is configured and perhaps not built.

Exit status 1: no test matches.

    find_tests.py BUILD NAME...
    find_tests.py --expression NAME   prints NAME as ctest --tests-regex takes it

NAME is a part of a test's name, in which * stands for anything. Prints what ninja has to build, a line each. Tests of a
GoogleTest program are known to ctest only after the program was built, so their names are read from the sources.
"""
import re
import sys
from pathlib import Path

ADD_TEST = re.compile(r"^add_test\((?:\[=+\[(?P<bracket>.*?)\]=+\]|(?P<plain>\S+)) (?P<command>.*)$", re.M)
FIELD = re.compile(r"^set\((program|prefix) \[==\[(.*?)\]==\]\)$", re.M)
CASE = re.compile(r"^\s*TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", re.M)
COMPILE = re.compile(r"^build \S*CMakeFiles/([\w.+-]+)\.dir/\S+: CXX_COMPILER__\S+ (\S+)", re.M)
INCLUDE = re.compile(r'^#include "(/.*)"', re.M)


def expression(name):
    """What ctest --tests-regex takes for NAME."""
    return ".*".join(re.sub(r"([.\[\]()+?^$|\\])", r"\\\1", part) for part in name.split("*"))


def matches(name, prefix, suite, case):
    """Whether NAME may be in the name of the case; with parameters that is PREFIX + INSTANCE/SUITE.CASE/PARAMETER."""
    without_instance = re.sub(r"(^|\.)\w+/", r"\1", name, count=1)
    whole = f"{prefix}{suite}.{case}"
    return any(each and re.search(expression(each), whole)
               for each in (name, without_instance, without_instance.split("/")[0]))


def sources_by_target(build):
    sources = {}
    for target, source in COMPILE.findall((build / "build.ninja").read_text()):
        source = Path(source)
        unity = source.name.startswith("unity_") and source.is_file()
        parts = [Path(path) for path in INCLUDE.findall(source.read_text())] if unity else [source]
        sources.setdefault(target, []).extend(parts)
    return sources


def built_in(build, text):
    """Paths of programs and libraries of the build in TEXT, as ninja names them; "all" for a script that is given their
    folder.
    """
    if f'"{build}/bin"' in text:
        return {"all"}
    return set(re.findall(re.escape(str(build)) + r"/((?:bin|lib)/[\w.+-]+)", text))


def of_commands(build, names):
    """The programs of tests that are commands, which may be none; None: no such test."""
    found = None
    for file in build.rglob("CTestTestfile.cmake"):
        for test in ADD_TEST.finditer(file.read_text()):
            name = test["bracket"] or test["plain"]
            if any(re.search(expression(each), name) for each in names):
                found = (found or set()) | built_in(build, test["command"])
    return found


def of_cases(build, names):
    """The programs of GoogleTest's cases, with what starts them; None: no such case."""
    found, sources = None, sources_by_target(build)
    for file in build.rglob("*suites.cmake"):
        text = file.read_text()
        fields = dict(FIELD.findall(text))
        cases = [case for source in sources.get(Path(fields["program"]).name, []) if source.is_file()
                 for case in CASE.findall(source.read_text())]
        if any(matches(name, fields["prefix"], *case) for name in names for case in cases):
            found = (found or set()) | built_in(build, text)
    return found


def find(build, names):
    """What ninja has to build; None: no test matches."""
    found = [each for each in (of_commands(build, names), of_cases(build, names)) if each is not None]
    return sorted(set().union(*found)) if found else None


def main(arguments):
    if len(arguments) < 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    if arguments[0] == "--expression":
        print(expression(arguments[1]))
        return 0
    found = find(Path(arguments[0]).resolve(), arguments[1:])
    for each in found or []:
        print(each)
    return 1 if found is None else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
