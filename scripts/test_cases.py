#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rewrites ctest's JUnit report so that each case of a GoogleTest program is a test of its own, and prints three
numbers: passed, failed, skipped.

    test_cases.py REPORT.xml

ctest knows processes. What their cases did is read from their output; so a case in which a process ended is known too.
"""
import re
import sys
from dataclasses import dataclass
from xml.etree import ElementTree

BEGIN = re.compile(r"^\[ RUN      \] (\S+)")
END = re.compile(r"^\[ *(?P<how>OK|FAILED|SKIPPED) *\] (?P<name>[^\s,]+)(?:, where .*)? \((?P<ms>\d+) ms\)$")
OUTCOMES = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}
OF_CTEST = {"run": "passed", "fail": "failed"}  # else it was skipped or is disabled
STATUS = {"passed": "run", "failed": "fail", "skipped": "notrun"}


@dataclass
class Case:
    name: str
    outcome: str = "failed"  # until its end is read
    seconds: float = 0
    output: str = ""
    message: str = ""


def cases_in(output):
    """The cases of a GoogleTest program, each with what it printed; that of an unended one is all the rest."""
    cases, lines, open_case = [], [], None
    for line in output.splitlines():
        if begin := BEGIN.match(line):
            open_case, lines = Case(begin[1]), []
            cases.append(open_case)
        elif open_case and (end := END.match(line)) and end["name"] == open_case.name:
            open_case.outcome = OUTCOMES[end["how"]]
            open_case.seconds = int(end["ms"]) / 1000
            open_case.output = "\n".join(lines)
            open_case = None
        else:
            lines.append(line)
    if open_case:
        open_case.output = "\n".join(lines)
        open_case.message = "the process ended in this case"
    return cases


def name_of(test, case):
    """`unit_tests.uri` has the cases `unit_tests.uri.…`; a test that chooses cases has its name put before theirs."""
    suite = case.split(".")[0]
    if test.endswith(f".{case}"):
        return test
    if test.endswith(f".{suite}"):
        return test.removesuffix(suite) + case
    return f"{test}: {case}"


def read(element):
    """What a process that ctest started stands for: its cases, or itself; and itself too where only it failed."""
    output = element.findtext("system-out") or ""
    why = next((child.get("message", "") for child in element if child.tag in ("failure", "skipped")), "")
    itself = Case(element.get("name"), OF_CTEST.get(element.get("status"), "skipped"),
                  float(element.get("time", 0)), output, why)
    cases = cases_in(output)
    for case in cases:
        case.name = name_of(itself.name, case.name)
        if case.message and why:
            case.message += f" ({why})"
    if not cases or (itself.outcome == "failed" and all(case.outcome != "failed" for case in cases)):
        cases.append(itself)
    return cases


def as_element(case):
    element = ElementTree.Element("testcase", name=case.name, classname=case.name, time=f"{case.seconds:.3f}",
                                  status=STATUS[case.outcome])
    if case.outcome == "failed":
        ElementTree.SubElement(element, "failure", message=case.message)
    elif case.outcome == "skipped":
        ElementTree.SubElement(element, "skipped", message=case.message)
    if case.outcome != "passed":
        ElementTree.SubElement(element, "system-out").text = case.output
    return element


def rewrite(path):
    """The counts by outcome."""
    suite = ElementTree.parse(path).getroot()
    cases = [case for element in suite.findall("testcase") for case in read(element)]
    counts = {outcome: sum(case.outcome == outcome for case in cases) for outcome in STATUS}
    for element in suite.findall("testcase"):
        suite.remove(element)
    suite.extend(as_element(case) for case in cases)
    suite.attrib.update(tests=str(len(cases)), failures=str(counts["failed"]), skipped=str(counts["skipped"]),
                        disabled="0")
    ElementTree.ElementTree(suite).write(path, encoding="unicode", xml_declaration=True)
    return counts


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    print(*rewrite(sys.argv[1]).values())
