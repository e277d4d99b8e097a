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


def clang_format(text, path, style):
    command = ["clang-format-14", f"--assume-filename={path}", f"--style={style}"]
    return subprocess.run(command, input=text, text=True, stdout=subprocess.PIPE, check=True).stdout


def formatted(text, path, bare_style):
    marked = MACRO_BLOCK.sub("{\n" + MARK, text)
    bare = clang_format(marked, path, bare_style)
    return clang_format(re.sub(f"[ ]*{re.escape(MARK)}", "", bare), path, "file")


def sources():
    return sorted(file for folder in FOLDERS for file in (TOP / folder).rglob("*") if file.suffix in CODE)


def main(arguments):
    check = "--check" in arguments
    files = [Path(each).resolve() for each in arguments if each != "--check"] or sources()
    if foreign := [str(file) for file in files if file.suffix not in CODE]:
        sys.exit(f"format.py: neither C++ nor CUDA: {', '.join(foreign)}")
    with tempfile.NamedTemporaryFile("w", suffix=".clang-format") as bare:
        bare.write((TOP / ".clang-format").read_text(encoding="utf-8") + "RemoveBracesLLVM: true\n")
        bare.flush()

        def changed(file):
            before = file.read_text(encoding="utf-8")
            after = formatted(before, file, f"file:{bare.name}")
            if after != before and not check:
                file.write_text(after, encoding="utf-8")
            return after != before

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            found = [file.relative_to(TOP) for file, is_it in zip(files, pool.map(changed, files)) if is_it]
    for file in found:
        print(f"{file}: scripts/format.py {'would change' if check else 'has changed'} it")
    return 1 if check and found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
