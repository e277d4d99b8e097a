#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says in a few lines which tests of JUnit reports failed, how to repeat each, and why others were skipped.

    test_summary.py STEP.PRESET.xml...
"""
import re
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import find_tests

MOST_FAILED, MOST_REASONS = 8, 5
REASON = re.compile(r"^\S+:\d+: Skipped\n(.+)$", re.M)  # what GTEST_SKIP() << "..." prints


def repeat(preset, name):
    """The command that runs just this test again, or the ctest test that it is a case of."""
    test = name.split(":")[0]
    if preset == "release":
        return f"./run test '{test}'"
    where = "--test-dir build/gpu" if preset == "gpu" else f"--preset {preset}"
    return f"ACCEL_TESTS_BY=case ctest {where} --output-on-failure -R '^{find_tests.expression(test)}$'"


def reason_of(case):
    """What the test said; a program that is not GoogleTest's says it in its last line."""
    output = (case.findtext("system-out") or "").strip()
    if said := REASON.search(output):
        return said[1].strip()
    return output.splitlines()[-1].removeprefix("skipped: ") if output else "disabled"


def read(path):
    """Yields (name, "failed" or "skipped", reason) of what did not pass."""
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        if case.get("status") == "fail":
            yield case.get("name"), "failed", ""
        elif case.get("status") != "run":
            yield case.get("name"), "skipped", reason_of(case)


def summary(reports):
    failed, skipped = [], Counter()
    for path in reports:
        step, preset = path.name.split(".")[:2]
        for name, outcome, reason in read(path):
            if outcome == "failed":
                failed.append(f"failed: {name} ({step}); again: {repeat(preset, name)}")
            else:
                skipped[reason] += 1
    lines = failed[:MOST_FAILED]
    if len(failed) > MOST_FAILED:
        lines.append(f"failed: {len(failed) - MOST_FAILED} more, in build/logs/*.xml")
    lines += [f"skipped {count}: {reason}"[:118] for reason, count in skipped.most_common(MOST_REASONS)]
    rest = sum(skipped.values()) - sum(count for _, count in skipped.most_common(MOST_REASONS))
    if rest:
        lines.append(f"skipped {rest} for other reasons, in build/logs/*.xml")
    return lines


if __name__ == "__main__":
    for line in summary([Path(argument) for argument in sys.argv[1:]]):
        print(line)
