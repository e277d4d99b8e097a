#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the files of the library that one request crosses: those with a line that runs for every request.

crossed_files.py --calls CALLS SHORT LONG: two files of callgrind, of runs that differ by CALLS requests, of a program
that was compiled with line numbers (-g1). A header and its source count as one.
crossed_files.sh makes them.
"""
import argparse
import collections
import pathlib
import re

OURS = re.compile(r"(?:^|(?<!softnic)/)((?:src|include/accel_transport)/.+)\.(?:hpp|cpp|cuh|cu)$")
FILE = re.compile(r"(fl|fi|fe|cfi|cfl)=\((\d+)\)(?: (.*))?$")
COST = re.compile(r"([+-]?\d+|\*) (\d+)$")


def lines_run(path):
    """How often each line of the library ran: {(file, line): instructions}."""
    names, counts = {}, collections.Counter()
    name, line, of_callee = None, 0, False
    for text in path.read_text().splitlines():
        if found := FILE.match(text):
            if found[3] is not None:
                ours = OURS.search(found[3])
                names[found[2]] = ours[1] if ours else None
            if not found[1].startswith("c"):  # else of the function that is called
                name = names[found[2]]
        elif text.startswith("calls="):
            of_callee = True
        elif found := COST.match(text):
            where = found[1]
            line = line if where == "*" else int(where) + (line if where[0] in "+-" else 0)
            if name is not None and not of_callee:
                counts[name, line] += int(found[2])
            of_callee = False
    return counts


def crossed(short, long, calls):
    """The files, a public header under the name of its source if that is crossed too."""
    before, after = lines_run(short), lines_run(long)
    files = {name for (name, line), count in after.items() if count - before[name, line] >= 0.9 * calls}
    sources = {pathlib.Path(each).name for each in files if each.startswith("src/")}
    return sorted(each for each in files if each.startswith("src/") or pathlib.Path(each).name not in sources)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, required=True)
    parser.add_argument("short", type=pathlib.Path)
    parser.add_argument("long", type=pathlib.Path)
    options = parser.parse_args()
    files = crossed(options.short, options.long, options.calls)
    print("\n".join(files))
    print(len(files))


if __name__ == "__main__":
    main()
