#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
import tempfile
import unittest
from pathlib import Path

import test_summary


class Summary(unittest.TestCase):
    def report(self, name, *cases):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = Path(folder.name) / name
        path.write_text(f'<testsuite name="x" tests="{len(cases)}">{"".join(cases)}</testsuite>')
        return path

    def failed(self, name):
        return f'<testcase name="{name}" status="fail"><failure message="Failed"/><system-out/></testcase>'

    def skipped(self, name, reason):
        return (f'<testcase name="{name}" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>'
                f"<system-out>[ RUN      ] {name}\n/a/b_test.cpp:12: Skipped\n{reason}\n\n[  SKIPPED ]</system-out>"
                "</testcase>")

    def test_a_failed_test_has_the_command_that_repeats_it(self):
        self.assertEqual(["failed: uri.reads_a_port (release); again: ./run test 'uri.reads_a_port'"],
                         test_summary.summary([self.report("release.release.xml", self.failed("uri.reads_a_port"))]))
        self.assertEqual(["failed: a.b/c (asan); again: ACCEL_TESTS_BY=case ctest --preset asan --output-on-failure "
                          r"-R '^a\.b/c$'"],
                         test_summary.summary([self.report("asan.asan.xml", self.failed("a.b/c"))]))
        self.assertEqual("ACCEL_TESTS_BY=case ctest --test-dir build/gpu --output-on-failure -R '^a$'",
                         test_summary.repeat("gpu", "a"))
        self.assertEqual("./run test 'conformance.tcp.sizes'",
                         test_summary.repeat("release", "conformance.tcp.sizes: backends/sizes.zero/tcp"))

    def test_passed_tests_are_not_named(self):
        report = self.report("release.release.xml", '<testcase name="a" status="run"><system-out/></testcase>')
        self.assertEqual([], test_summary.summary([report]))

    def test_skipped_tests_are_counted_by_their_reason(self):
        report = self.report("release.release.xml", self.skipped("a", "no GPU"), self.skipped("b", "no GPU"),
                             '<testcase name="c" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>'
                             "<system-out>looking\nskipped: no GPU\n</system-out></testcase>",
                             '<testcase name="d" status="disabled"><system-out/></testcase>')
        self.assertEqual(["skipped 3: no GPU", "skipped 1: disabled"], test_summary.summary([report]))

    def test_says_at_most_fifteen_lines(self):
        report = self.report("asan.asan.xml", *[self.failed(f"f{n}") for n in range(30)],
                             *[self.skipped(f"s{n}", f"reason {n}") for n in range(30)])
        lines = test_summary.summary([report])
        self.assertEqual(15, len(lines))
        self.assertIn("failed: 22 more, in build/logs/*.xml", lines)
        self.assertEqual("skipped 25 for other reasons, in build/logs/*.xml", lines[-1])


if __name__ == "__main__":
    unittest.main()
