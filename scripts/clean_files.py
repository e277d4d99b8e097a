#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names the sources that clang-tidy has to read, one a line.

    clean_files.py all     every source of the library, the tools and the examples
    clean_files.py due     those whose code differs from the commit in .ci/tidy-base, where clang-tidy found nothing in
                           any of them; for each header that differs one source that includes it. All of them where git
                           does not have that commit
    clean_files.py note    writes HEAD to .ci/tidy-base: all are clean

Reads build/clang/compile_commands.json. Lines with nothing but a comment are no code, unless they speak to clang-tidy
(NOLINT).
"""
import functools
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
COMMANDS = Path("build", "clang", "compile_commands.json")
BASE = Path(".ci", "tidy-base")
CHECKED = ("src", "tools", "examples")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


def code_of(text):
    return [line for line in text.split("\n") if not line.lstrip().startswith("//") or "NOLINT" in line]


def is_checked(path):
    """Of a path below the top. CUDA sources and tests are not."""
    return path.parts[0] in CHECKED and path.suffix != ".cu" and not {"tests", "fuzz"} & set(path.parts[:-1])


def folders_of(command):
    """Where a compiler's command line looks for headers."""
    words = shlex.split(command)
    joined = (word[2:] for word in words if word.startswith("-I"))
    return [*joined, *(folder for option, folder in zip(words, words[1:]) if option in {"-I", "-isystem"})]


class Tree:
    """The sources below `top`, a repository of git."""
    def __init__(self, top):
        self.top = top
        commands = json.loads((top / COMMANDS).read_text(encoding="utf-8"))
        self.commands = {Path(each["file"]).relative_to(top): each["command"] for each in commands
                         if Path(each["file"]).is_relative_to(top)}
        self.sources = sorted(filter(is_checked, self.commands))
        self.is_file = functools.cache(os.path.isfile)
        self.names_in = functools.cache(lambda path: INCLUDE.findall(Path(path).read_text(encoding="utf-8")))

    def git(self, *arguments):
        return subprocess.run(["git", *arguments], cwd=self.top, check=True, capture_output=True, text=True).stdout

    def headers_of(self, source):
        """The project's headers that a source includes, itself or through others."""
        folders = [folder for folder in folders_of(self.commands[source]) if Path(folder).is_relative_to(self.top)]
        found, ahead = set(), [str(self.top / source)]
        while ahead:
            path = ahead.pop()
            for name in self.names_in(path):
                places = (os.path.normpath(os.path.join(folder, name)) for folder in (os.path.dirname(path), *folders))
                header = next(filter(self.is_file, places), None)
                if header and header not in found:
                    found.add(header)
                    ahead.append(header)
        return {Path(header).relative_to(self.top) for header in found if Path(header).is_relative_to(self.top)}

    def changed_since(self, commit):
        """The files whose code is not what it was at a commit. Those that are gone are left out."""
        known = self.git("ls-tree", "-r", "--name-only", "-z", commit).split("\0")
        names = self.git("diff", "--name-only", "--no-renames", "--diff-filter=d", "-z", commit).split("\0")
        names += self.git("ls-files", "--others", "--exclude-standard", "-z").split("\0")
        return {Path(name) for name in filter(None, names)
                if name not in known or self.code_now(name) != self.code_at(commit, name)}

    def code_now(self, name):
        return code_of((self.top / name).read_text(encoding="utf-8", errors="replace"))

    def code_at(self, commit, name):
        return code_of(subprocess.run(["git", "show", f"{commit}:{name}"], cwd=self.top, check=True,
                                      capture_output=True).stdout.decode(errors="replace"))

    def has(self, commit):
        found = subprocess.run(["git", "cat-file", "-e", f"{commit}^{{commit}}"], cwd=self.top, capture_output=True)
        return found.returncode == 0

    def due(self):
        base = (self.top / BASE).read_text(encoding="utf-8").strip() if (self.top / BASE).is_file() else ""
        if not self.has(base):
            print(f"git does not have the commit {base} of {BASE}: all sources are due", file=sys.stderr)
            return self.sources
        changed = self.changed_since(base)
        rules = [path.parent for path in changed if path.name == ".clang-tidy"]
        due = {source for source in self.sources
               if source in changed or any(source.is_relative_to(folder) for folder in rules)}
        return sorted(self.readers_of(changed, due))

    def readers_of(self, changed, due):
        """What is due, and for each changed header that none of it includes a source that does."""
        headers = {source: self.headers_of(source) & changed for source in self.sources}
        users = {header: [source for source in self.sources if header in headers[source]]
                 for header in set().union(*headers.values())}
        readers = set(due)
        for header in sorted(users, key=lambda header: (len(users[header]), header)):
            if not readers.intersection(users[header]):
                readers.add(min(users[header], key=lambda source: (source.stem != header.stem, source)))
        return readers

    def note(self):
        if self.changed_since("HEAD") - {BASE}:
            print(f"{BASE} stays as it is: not all changes are committed", file=sys.stderr)
            return
        (self.top / BASE).write_text(self.git("rev-parse", "HEAD"), encoding="utf-8")


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in ("all", "due", "note"):
        print(__doc__, file=sys.stderr)
        return 2
    tree = Tree(TOP)
    if sys.argv[1] == "note":
        tree.note()
        return 0
    for path in tree.sources if sys.argv[1] == "all" else tree.due():
        print(TOP / path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
