#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names the houses whose tests a change can reach, one a line.

    houses.py BASE    of what has changed since this commit's last common ancestor with HEAD, committed or not

The walls (check_sources.py) decide: a house reaches those that use it. Documentation reaches no house.
"""
import subprocess
import sys
from pathlib import Path

from check_sources import house_of

TOP = Path(__file__).resolve().parent.parent
HOUSES = ("transport", "kernels", "softnic", "serving", "python")
USERS = {
    "transport": {"transport", "kernels", "serving", "python"},
    "kernels": {"kernels", "serving"},
    "softnic": set(HOUSES) - {"python"},  # its device runs tests of the others
    "serving": {"serving"},
    "python": {"python"},
}
# What stands around the houses; the first that fits counts.
AROUND = (
    ("pyproject.toml", {"python"}),
    ("scripts/python.sh", {"python"}),
    ("examples/digits/", {"kernels", "serving"}),
    ("examples/kubernetes/", {"serving"}),
    ("examples/", {"transport", "kernels"}),
    ("tools/rxe-vm/", {"transport", "kernels"}),
    ("tools/", {"transport", "serving"}),
    ("tests/tools/", {"transport"}),
    ("tests/digits/", {"serving"}),
)
# A document that a test reads, or whose program it builds.
READ_BY_TESTS = {
    "README.md": {"transport"},
    "docs/interceptors.md": {"transport"},
    "docs/metadata.md": {"transport"},
    "docs/metrics.md": {"transport", "serving"},
    "docs/python.md": {"python"},
    "docs/grafana-dashboard.json": {"transport", "serving"},
    "examples/serving/gateway/README.md": {"serving"},
}
# The steps that run for every change check these.
UNTESTED = ("docs/", "tests/mutants/", "tests/equivalent_mutants.toml", ".ci/tidy-base", ".clang-format", ".gitignore",
            "LICENSE")


def reached_by(name):
    """The houses that a change of this file can reach."""
    path = Path(name)
    if name in READ_BY_TESTS:
        return READ_BY_TESTS[name]
    if path.suffix == ".md" or name.startswith(UNTESTED):
        return set()
    if house := house_of(path):
        of_tests_alone = name.endswith("_test.cpp") or {"corpus", "fuzz"} & set(path.parts[:-1])
        return {house} if of_tests_alone else USERS[house]
    return next((houses for folder, houses in AROUND if name.startswith(folder)), set(HOUSES))


def reached(names):
    found = set().union(*map(reached_by, names))
    return [house for house in HOUSES if house in found]


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=TOP, check=True, capture_output=True, text=True).stdout


def changed_since(base):
    ancestor = git("merge-base", base, "HEAD").strip()
    # A file that has moved counts at both of its places.
    changed = git("diff", "--name-only", "--no-renames", "-z", ancestor)
    return (changed + git("ls-files", "--others", "--exclude-standard", "-z")).split("\0")[:-1]


def main():
    if len(sys.argv) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    try:
        names = changed_since(sys.argv[1])
    except subprocess.CalledProcessError as failed:
        print(failed.stderr.strip(), file=sys.stderr)
        return 1
    for house in reached(names):
        print(house)
    return 0


if __name__ == "__main__":
    sys.exit(main())
