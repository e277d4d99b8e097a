#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names the sources that clang-tidy has to read, one a line.

    clean_files.py all    every source of the library, the tools and the examples
    clean_files.py due    those whose code has changed since clang-tidy found nothing in them
    clean_files.py note   writes the list of clean ones, .ci/tidy-clean, anew: all of them are clean. Sources that this
                          build does not have keep their lines

Reads build/clang/compile_commands.json. Lines with nothing but a comment are no code, unless they speak to clang-tidy
(NOLINT).
"""
import hashlib
import json
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
COMMANDS = TOP / "build" / "clang" / "compile_commands.json"
CLEAN = TOP / ".ci" / "tidy-clean"
CHECKED = ("src", "tools", "examples")


def is_code(line):
    return not line.lstrip().startswith("//") or "NOLINT" in line


def sum_of(text):
    """The checksum of a source's code."""
    code = "\n".join(line for line in text.split("\n") if is_code(line))
    return hashlib.sha256(code.encode()).hexdigest()


def is_checked(path):
    """Of a path below TOP. CUDA sources and tests are not."""
    return path.parts[0] in CHECKED and path.suffix != ".cu" and not {"tests", "fuzz"} & set(path.parts[:-1])


def all_files():
    paths = {Path(each["file"]) for each in json.loads(COMMANDS.read_text(encoding="utf-8"))}
    below = (path.relative_to(TOP) for path in paths if path.is_relative_to(TOP))
    return sorted(path for path in below if is_checked(path))


def line_of(path):
    return f"{sum_of((TOP / path).read_text(encoding='utf-8'))}  {path}\n"


def clean_elsewhere(lines, files):
    """Of these lines those of sources that `files` lacks, as long as they are still true."""
    paths = {line: Path(line.split("  ", 1)[1].rstrip("\n")) for line in lines}
    return [line for line, path in paths.items()
            if path not in files and (TOP / path).is_file() and line == line_of(path)]


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in ("all", "due", "note"):
        print(__doc__, file=sys.stderr)
        return 2
    files = all_files()
    known = CLEAN.read_text(encoding="utf-8").splitlines(True) if CLEAN.is_file() else []
    if sys.argv[1] == "note":
        lines = [*map(line_of, files), *clean_elsewhere(known, files)]
        CLEAN.write_text("".join(sorted(lines, key=lambda line: line.split("  ", 1)[1])), encoding="utf-8")
        return 0
    clean = set(known) if sys.argv[1] == "due" else set()
    for path in files:
        if line_of(path) not in clean:
            print(TOP / path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
