#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import json
import subprocess
import tempfile
import unittest
from pathlib import Path

import clean_files

SOURCE = '#include "core/sum.hpp"\n/// Adds.\nint add(int a, int b) {\n    return a + b;  // NOLINT(some-check)\n}\n'
FILES = {
    "src/core/add.cpp": SOURCE,
    "src/core/sum.cpp": '#include "core/sum.hpp"\n',
    "src/core/sum.hpp": "#pragma once\n#include <accel/config.hpp>\n",
    "include/accel/config.hpp": "#pragma once\n",
    "tools/perf/main.cpp": "#include <accel/config.hpp>\n",
    "tools/.clang-tidy": "Checks: -*\n",
    "tests/add_test.cpp": '#include "core/sum.hpp"\n',
    ".ci/tidy-base": "",
}
SOURCES = [Path(name) for name in ("src/core/add.cpp", "src/core/sum.cpp", "tools/perf/main.cpp")]


class Due(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = Path(folder.name).resolve()
        for name, text in FILES.items():
            self.write(name, text)
        self.write(".gitignore", "/build/\n")
        self.list_commands()
        self.git("init", "-q")
        self.commit()
        self.tree().note()
        self.commit()

    def git(self, *arguments):
        own = ("-c", "user.name=a", "-c", "user.email=a@localhost")
        subprocess.run(["git", *own, *arguments], cwd=self.top, check=True, capture_output=True)

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "a")

    def write(self, name, text):
        (self.top / name).parent.mkdir(parents=True, exist_ok=True)
        (self.top / name).write_text(text, encoding="utf-8")

    def change(self, name, old, new):
        self.write(name, (self.top / name).read_text(encoding="utf-8").replace(old, new))

    def list_commands(self):
        sources = [str(file) for file in sorted(self.top.rglob("*.cpp"))]
        commands = [{"file": file, "command": f"c++ -I{self.top}/src -isystem {self.top}/include -c {file}"}
                    for file in sources]
        self.write(str(clean_files.COMMANDS), json.dumps(commands))

    def tree(self):
        return clean_files.Tree(self.top)

    def assert_due(self, *names):
        self.assertEqual([Path(name) for name in names], self.tree().due())

    def test_nothing_is_due_at_the_base(self):
        self.assertEqual(SOURCES, self.tree().sources)
        self.assert_due()

    def test_a_comment_on_its_own_lines_does_not_count(self):
        self.change("src/core/add.cpp", "/// Adds.", "/// Returns the sum.\n/// Never fails.")
        self.assert_due()

    def test_code_counts_before_and_after_its_commit(self):
        self.change("src/core/add.cpp", "a + b", "a - b")
        self.assert_due("src/core/add.cpp")
        self.commit()
        self.assert_due("src/core/add.cpp")

    def test_words_for_clang_tidy_count(self):
        self.change("src/core/add.cpp", "    return", "    // NOLINTNEXTLINE(other-check)\n    return")
        self.assert_due("src/core/add.cpp")

    def test_new_sources_count(self):
        self.write("src/core/new.cpp", "int a;\n")
        self.list_commands()
        self.assert_due("src/core/new.cpp")

    def test_tests_do_not_count(self):
        self.change("tests/add_test.cpp", "sum", "add")
        self.assert_due()

    def test_one_source_is_due_for_a_header(self):
        self.change("src/core/sum.hpp", "once\n", "once\nint a;\n")
        self.assert_due("src/core/sum.cpp")
        self.change("include/accel/config.hpp", "once\n", "once\nint b;\n")
        self.assert_due("src/core/sum.cpp")

    def test_no_other_source_is_due_for_a_header_than_one_that_has_changed(self):
        self.change("src/core/sum.hpp", "once\n", "once\nint a;\n")
        self.change("src/core/add.cpp", "a + b", "a - b")
        self.assert_due("src/core/add.cpp")

    def test_sources_whose_checks_have_changed_are_due(self):
        self.change("tools/.clang-tidy", "-*", "bugprone-*")
        self.assert_due("tools/perf/main.cpp")

    def test_all_are_due_without_a_known_base(self):
        for base in ("0" * 40, ""):
            self.write(str(clean_files.BASE), base)
            with contextlib.redirect_stderr(io.StringIO()) as said:
                self.assertEqual(SOURCES, self.tree().due())
            self.assertIn("all sources are due", said.getvalue())

    def test_only_what_is_committed_becomes_the_base(self):
        self.change("src/core/add.cpp", "a + b", "a - b")
        with contextlib.redirect_stderr(io.StringIO()):
            self.tree().note()
        self.assert_due("src/core/add.cpp")
        self.commit()
        self.tree().note()
        self.assert_due()


class Checked(unittest.TestCase):
    def test_tests_and_kernels_are_not_read(self):
        for path in ("src/core/uri.cpp", "examples/pool.cpp", "tools/softnic/src/cli/main.cpp"):
            self.assertTrue(clean_files.is_checked(Path(path)), path)
        for path in ("tests/tools/a.cpp", "tools/softnic/tests/rig.cpp", "tools/softnic/fuzz/a.cpp", "src/a.cu"):
            self.assertFalse(clean_files.is_checked(Path(path)), path)


if __name__ == "__main__":
    unittest.main()
