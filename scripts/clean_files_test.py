#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
import unittest
from pathlib import Path

import clean_files

SOURCE = "/// Adds.\nint add(int a, int b) {\n    return a + b;  // NOLINT(some-check)\n}\n"


class CleanFiles(unittest.TestCase):
    def test_a_comment_on_its_own_lines_does_not_count(self):
        changed = SOURCE.replace("/// Adds.", "/// Returns the sum.\n/// Never fails.")
        self.assertEqual(clean_files.sum_of(SOURCE), clean_files.sum_of(changed))

    def test_code_counts(self):
        self.assertNotEqual(clean_files.sum_of(SOURCE), clean_files.sum_of(SOURCE.replace("a + b", "a - b")))

    def test_words_for_clang_tidy_count(self):
        silenced = SOURCE.replace("    return", "    // NOLINTNEXTLINE(other-check)\n    return")
        self.assertNotEqual(clean_files.sum_of(SOURCE), clean_files.sum_of(silenced))
        spoken_to = SOURCE.replace("  // NOLINT(some-check)", "")
        self.assertNotEqual(clean_files.sum_of(SOURCE), clean_files.sum_of(spoken_to))

    def test_tests_and_kernels_are_not_read(self):
        for path in ("src/core/uri.cpp", "examples/pool.cpp", "tools/softnic/src/cli/main.cpp"):
            self.assertTrue(clean_files.is_checked(Path(path)), path)
        for path in ("tests/tools/a.cpp", "tools/softnic/tests/rig.cpp", "tools/softnic/fuzz/a.cpp", "src/a.cu"):
            self.assertFalse(clean_files.is_checked(Path(path)), path)

    def test_sources_of_other_builds_stay_clean_until_they_change(self):
        own, other = Path("scripts/clean_files.py"), Path("scripts/clean_files_test.py")
        lines = [clean_files.line_of(own), clean_files.line_of(other), "0" * 64 + "  scripts/check_sources.py\n",
                 "0" * 64 + "  src/gone.cpp\n"]
        self.assertEqual([lines[1]], clean_files.clean_elsewhere(lines, [own]))


if __name__ == "__main__":
    unittest.main()
