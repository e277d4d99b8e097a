#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
import tempfile
import unittest
from pathlib import Path

import find_tests


class FindTests(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = Path(folder.name)
        unity = self.build / "unity_0_cxx.cxx"
        source = self.build / "link_test.cpp"
        source.write_text("TEST(uri, reads_a_port) {\n}\nTEST_P(link, sends) {\n}\n")
        unity.write_text(f'#include "{source}"\n')
        (self.build / "build.ninja").write_text(
            f"build t/CMakeFiles/unit_tests.dir/unity_0_cxx.cxx.o: CXX_COMPILER__unit_tests_Release {unity} || x\n")
        (self.build / "unit_tests_suites.cmake").write_text(
            f"set(program [==[{self.build}/bin/unit_tests]==])\n"
            f"set(launcher [==[{self.build}/bin/softnic]==] [==[run]==] [==[--]==])\n"
            "set(prefix [==[unit_tests.]==])\n")
        (self.build / "CTestTestfile.cmake").write_text(
            f'add_test([=[example_hello]=] "/a/run_pair.sh" "{self.build}/bin/server" "{self.build}/bin/client")\n'
            f'add_test(bare "{self.build}/bin/bare")\n'
            'add_test(script "/usr/bin/python3" "/a/script.py")\n'
            f'add_test(experiments "/usr/bin/python3" "--programs" "{self.build}/bin" "--out" "/a")\n')

    def found(self, *names):
        return find_tests.find(self.build, names)

    def test_finds_the_programs_of_a_command(self):
        self.assertEqual(["bin/client", "bin/server"], self.found("example_hello"))
        self.assertEqual(["bin/bare"], self.found("bar*e"))

    def test_finds_a_case_in_a_program_that_is_not_built_and_what_starts_it(self):
        self.assertEqual(["bin/softnic", "bin/unit_tests"], self.found("reads_a_port"))

    def test_finds_a_case_by_its_whole_name_with_parameters(self):
        self.assertEqual(["bin/softnic", "bin/unit_tests"], self.found("unit_tests.ways/link.sends/tcp"))
        self.assertEqual(["bin/softnic", "bin/unit_tests"], self.found("unit_tests.ways/link"))

    def test_a_script_may_need_nothing_or_everything(self):
        self.assertEqual([], self.found("script"))
        self.assertEqual(["all"], self.found("experiments"))

    def test_finds_no_test_for_other_names(self):
        self.assertIsNone(self.found("reads_a_path"))
        self.assertIsNone(self.found("ways/"))

    def test_a_star_is_the_only_letter_with_a_meaning(self):
        self.assertEqual(r"a\.b/c\[0\].*d", find_tests.expression("a.b/c[0]*d"))


if __name__ == "__main__":
    unittest.main()
