# SPDX-License-Identifier: Apache-2.0
"""Compiles sources of a build alone, without output, to see whether they are right."""
import json
import re
import shlex
import subprocess
from pathlib import Path

PATIENCE_S = 600
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)
UNITY = re.compile(r'^#include "(/.*)"', re.M)


class Compilers:
    """How each source of a build is compiled; a header is, in a source that includes it."""

    def __init__(self, tree, build):
        self.tree, self.build = Path(tree), Path(build)
        self.commands = {}
        for entry in json.loads((self.build / "compile_commands.json").read_text(encoding="utf-8")):
            for source in parts_of(Path(entry["file"])):
                self.commands.setdefault(source, entry)
        self.includers = {}
        for folder in ("src", "include", "tools", "examples", "tests"):
            for path in sorted((self.tree / folder).rglob("*")):
                if path.suffix in {".cpp", ".hpp", ".cuh"}:
                    self.read_includes(path)

    def read_includes(self, path):
        for name in INCLUDE.findall(path.read_text(encoding="utf-8")):
            self.includers.setdefault(Path(name).name, []).append((name, path))

    def source_for(self, file):
        """The source in which a file is compiled; None: in none of this build."""
        seen, due = set(), [self.tree / file]
        while due:
            path = due.pop(0)
            if path in self.commands:
                return path
            including = [by for name, by in self.includers.get(path.name, ()) if str(path).endswith("/" + name)]
            # Most likely the one of the same name uses all of it.
            for by in sorted(set(including) - seen, key=lambda by: (by not in self.commands, by.stem != path.stem,
                                                                    "tests" in by.parts, str(by))):
                seen.add(by)
                due.append(by)
        return None

    def complaints(self, source):
        """What the compiler says of a source; nothing if it is right."""
        entry = self.commands[source]
        words = shlex.split(entry["command"])
        words = words[:words.index("-o")] + ["-fsyntax-only", "-w", str(source)]
        done = subprocess.run(["nice", "-n", "10", *words], cwd=entry["directory"], capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False)
        return "" if done.returncode == 0 else done.stderr or "error"


def parts_of(file):
    """The sources that a file of a unity build joins, or the file."""
    if file.name.startswith("unity_") and file.is_file():
        return [Path(path) for path in UNITY.findall(file.read_text(encoding="utf-8"))]
    return [file]
