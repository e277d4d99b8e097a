#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of format.py, on files made for each case."""
import contextlib
import io
import tempfile
import unittest
from pathlib import Path

import format as subject


class Format(unittest.TestCase):
    def after(self, text, *options):
        with tempfile.NamedTemporaryFile("w+", suffix=".cpp", dir=subject.TOP / "scripts") as file:
            file.write(text)
            file.flush()
            with contextlib.redirect_stdout(io.StringIO()):
                self.status = subject.main([*options, file.name])
            return Path(file.name).read_text(encoding="utf-8")

    def test_braces_around_one_statement_go(self):
        self.assertEqual(self.after("void f() {\n    if (a()) {\n        b();\n    }\n}\n"),
                         "void f() {\n    if (a()) b();\n}\n")

    def test_braces_around_a_macro_stay(self):
        text = "void f() {\n    if (a()) {\n        EXPECT_EQ(b(), c);\n    }\n}\n"
        self.assertEqual(self.after(text), text)

    def test_a_lambda_stays_in_its_line(self):
        text = "int f() {\n    return g(first, [this](int each) { return h(each, second); });\n}\n"
        self.assertEqual(self.after(text), text)

    def test_a_check_fails_and_changes_nothing(self):
        text = "void f() {\n    while (a()) {\n        b();\n    }\n}\n"
        self.assertEqual(self.after(text, "--check"), text)
        self.assertEqual(self.status, 1)
        self.after("void f() {\n    while (a()) b();\n}\n", "--check")
        self.assertEqual(self.status, 0)


if __name__ == "__main__":
    unittest.main()
