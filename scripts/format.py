#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Formats C++ and CUDA: clang-format's layout, and no braces around a single statement.

    format.py [FILE...]          rewrites the files, or all sources
    format.py --check [FILE...]  prints the files that it would rewrite; exit status 1 if there are any

clang-format's RemoveBracesLLVM removes the braces, but also breaks lines at lambdas; a run without it mends that.
A macro such as EXPECT_EQ keeps its braces: its `if` would otherwise warn of a dangling else.
"""
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
FOLDERS = ("bench", "examples", "include", "src", "tests", "tools")
CODE = {".hpp", ".cpp", ".cuh", ".cu"}
# A block of two statements keeps its braces.
MARK = "keep_these_braces();\n"
MACRO_BLOCK = re.compile(r"\{\n(?=[ ]*[A-Z][A-Z0-9]*_[A-Z0-9_]*\()")


def clang_format(files, folder, style):
    """Formats files below `folder` in place: many by each process, because it takes longer to start than to format."""
    (folder / ".clang-format").write_text(style, encoding="utf-8")
    workers = os.cpu_count()
    size = max(1, min(40, -(-len(files) // workers)))
    batches = [files[at:at + size] for at in range(0, len(files), size)]

    def run(batch):
        subprocess.run(["clang-format-14", "-i", "--style=file", *batch], check=True)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(run, batches))


def formatted(texts):
    """What each text, by its path below the top, becomes."""
    style = (TOP / ".clang-format").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copies = [folder / path for path in texts]
        for copy, text in zip(copies, texts.values()):
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(MACRO_BLOCK.sub("{\n" + MARK, text), encoding="utf-8")
        clang_format(copies, folder, style + "RemoveBracesLLVM: true\n")
        for copy in copies:
            copy.write_text(re.sub(f"[ ]*{re.escape(MARK)}", "", copy.read_text(encoding="utf-8")), encoding="utf-8")
        clang_format(copies, folder, style)
        return [copy.read_text(encoding="utf-8") for copy in copies]


def sources():
    return sorted(file for folder in FOLDERS for file in (TOP / folder).rglob("*") if file.suffix in CODE)


def main(arguments):
    check = "--check" in arguments
    files = [Path(each).resolve() for each in arguments if each != "--check"] or sources()
    if foreign := [str(file) for file in files if file.suffix not in CODE]:
        sys.exit(f"format.py: neither C++ nor CUDA: {', '.join(foreign)}")
    before = {file.relative_to(TOP): file.read_text(encoding="utf-8") for file in files}
    found = [(path, after) for (path, text), after in zip(before.items(), formatted(before)) if after != text]
    for path, after in found:
        if not check:
            (TOP / path).write_text(after, encoding="utf-8")
        print(f"{path}: scripts/format.py {'would change' if check else 'has changed'} it")
    return 1 if check and found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
