#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

import test_cases

TWO = """[==========] Running 2 tests from 1 test suite.
[ RUN      ] uri.reads
[       OK ] uri.reads (12 ms)
[ RUN      ] uri.writes
/a/uri_test.cpp:7: Failure
[  FAILED  ] uri.writes (1 ms)
[  FAILED  ] 1 test, listed below:
[  FAILED  ] uri.writes
"""


class TestCases(unittest.TestCase):
    def report(self, *tests):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = Path(folder.name) / "release.release.xml"
        suite = ElementTree.Element("testsuite", name="x", tests=str(len(tests)))
        for name, status, output, message in tests:
            case = ElementTree.SubElement(suite, "testcase", name=name, status=status, time="1.5")
            if message:
                ElementTree.SubElement(case, "failure" if status == "fail" else "skipped", message=message)
            ElementTree.SubElement(case, "system-out").text = output
        ElementTree.ElementTree(suite).write(path)
        return path

    def rewritten(self, *tests):
        path = self.report(*tests)
        counts = tuple(test_cases.rewrite(path).values())
        root = ElementTree.parse(path).getroot()
        self.assertEqual(str(sum(counts)), root.get("tests"))
        return counts, {case.get("name"): case for case in root.iter("testcase")}

    def test_each_case_is_a_test(self):
        counts, cases = self.rewritten(("unit_tests.uri", "fail", TWO, "Failed"))
        self.assertEqual((1, 1, 0), counts)
        self.assertEqual("run", cases["unit_tests.uri.reads"].get("status"))
        self.assertEqual("0.012", cases["unit_tests.uri.reads"].get("time"))
        self.assertEqual("fail", cases["unit_tests.uri.writes"].get("status"))
        self.assertEqual("/a/uri_test.cpp:7: Failure", cases["unit_tests.uri.writes"].findtext("system-out"))

    def test_a_test_that_chooses_cases_is_named_before_them(self):
        output = "[ RUN      ] backends/sizes.zero/tcp\n[       OK ] backends/sizes.zero/tcp (0 ms)\n"
        _, cases = self.rewritten(("conformance.tcp.sizes", "run", output, ""))
        self.assertEqual(["conformance.tcp.sizes: backends/sizes.zero/tcp"], list(cases))

    def test_a_case_that_is_a_process_of_its_own_keeps_its_name(self):
        _, cases = self.rewritten(("unit_tests.uri.reads", "run",
                                   "[ RUN      ] uri.reads\n[       OK ] uri.reads (0 ms)\n", ""))
        self.assertEqual(["unit_tests.uri.reads"], list(cases))

    def test_parameters_that_gtest_shows_are_no_part_of_a_name(self):
        _, cases = self.rewritten(("t.on/link", "fail", "[ RUN      ] on/link.sends/0\n"
                                   "[  FAILED  ] on/link.sends/0, where GetParam() = 4-byte object (3 ms)\n", "Failed"))
        self.assertEqual("fail", cases["t.on/link.sends/0"].get("status"))

    def test_a_process_that_ends_early_fails_in_the_case_that_was_open(self):
        counts, cases = self.rewritten(
            ("unit_tests.uri", "fail", TWO.split("/a/")[0] + "ERROR: AddressSanitizer\n", "Failed"))
        self.assertEqual((1, 1, 0), counts)
        self.assertEqual("ERROR: AddressSanitizer", cases["unit_tests.uri.writes"].findtext("system-out"))
        self.assertEqual("the process ended in this case (Failed)",
                         cases["unit_tests.uri.writes"].find("failure").get("message"))

    def test_a_process_that_fails_behind_its_cases_fails_itself(self):
        counts, cases = self.rewritten(
            ("unit_tests.uri", "fail", TWO.split("[ RUN      ] uri.writes")[0] + "LeakSanitizer\n", "Failed"))
        self.assertEqual((1, 1, 0), counts)
        self.assertIn("LeakSanitizer", cases["unit_tests.uri"].findtext("system-out"))

    def test_skipped_cases_say_why(self):
        counts, cases = self.rewritten(("t.gpu", "run", "[ RUN      ] gpu.adds\n/a/b.cpp:3: Skipped\nno GPU\n\n"
                                        "[  SKIPPED ] gpu.adds (0 ms)\n", ""))
        self.assertEqual((0, 0, 1), counts)
        self.assertIn("no GPU", cases["t.gpu.adds"].findtext("system-out"))

    def test_other_programs_stay_as_they_are(self):
        counts, cases = self.rewritten(("example_hello", "run", "hello", ""), ("example_gpu", "notrun", "no GPU", "77"),
                                       ("example_off", "disabled", "", ""), ("example_bad", "fail", "what", "Timeout"))
        self.assertEqual((1, 1, 2), counts)
        self.assertEqual("Timeout", cases["example_bad"].find("failure").get("message"))
        self.assertEqual("no GPU", cases["example_gpu"].findtext("system-out"))


if __name__ == "__main__":
    unittest.main()
