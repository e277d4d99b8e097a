#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts the line that names the licence at the top of every source file that lacks it.

    add_spdx.py [FOLDER]     prints the files that it changed
"""
import subprocess
import sys
from pathlib import Path

LICENCE = "SPDX-License-Identifier: Apache-2.0"
COMMENTS = {".hpp": "//", ".cpp": "//", ".cuh": "//", ".cu": "//", ".h": "//", ".def": "//",
            ".py": "#", ".sh": "#", ".cmake": "#", ".yml": "#"}


def comment_of(path, text):
    """How a comment begins in this file; None: the file needs no such line."""
    if path.name == "CMakeLists.txt" or (not path.suffix and text.startswith("#!")):
        return "#"
    return COMMENTS.get(path.suffix)


def lacks_licence(path, text):
    return comment_of(path, text) is not None and LICENCE not in "\n".join(text.splitlines()[:3])


def with_licence(path, text):
    """The text with the line on top, below `#!` if there is one."""
    line = f"{comment_of(path, text)} {LICENCE}\n"
    if not text.startswith("#!"):
        return line + text
    shebang, rest = text.split("\n", 1)
    return f"{shebang}\n{line}{rest}"


def main():
    top = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    names = subprocess.run(["git", "ls-files", "-z"], cwd=top, check=True, capture_output=True).stdout
    for name in names.decode().split("\0"):
        path = top / name
        if not path.is_file() or "corpus" in path.parts:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if lacks_licence(path, text):
            path.write_text(with_licence(path, text), encoding="utf-8")
            print(name)


if __name__ == "__main__":
    main()
