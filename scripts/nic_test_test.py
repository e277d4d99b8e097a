#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of nic_test.py: what it makes of programs' output, and the report."""
import sys
import tempfile
import time
import unittest
from pathlib import Path

import nic_test as subject

ROCE = "mlx5_1 port 2, RoCE at ::ffff:10.0.0.1 (GID 3), MTU 1024, queues driven directly; payloads are not encrypted"
DEVINFO = """hca_id:\tmlx5_0
\ttransport:\t\t\tInfiniBand (0)
\tfw_ver:\t\t\t\t28.39.1002
\tvendor_part_id:\t\t\t4129
\tboard_id:\t\t\tMT_0000000838
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_DOWN (1)
\t\t\tlink_layer:\t\tEthernet
hca_id:\tmlx5_1
\tfw_ver:\t\t\t\t20.1.2
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_ACTIVE (4)
"""


def outcome(name, result, reason="seen", excerpt=()):
    return subject.Outcome(name, f"what {name} is", result, reason, 1.25, excerpt)


class Programs(unittest.TestCase):
    def test_the_doctor_names_device_port_and_gid(self):
        self.assertEqual(subject.port_of(ROCE), {"device": "mlx5_1", "port": 2, "roce": True, "gid": 3})
        self.assertFalse(subject.port_of(ROCE.replace("RoCE", "InfiniBand LID 7"))["roce"])
        self.assertIsNone(subject.port_of("this machine has no RDMA device (ibv_devices lists none)"))

    def test_each_device_has_its_own_firmware(self):
        facts = subject.device_facts(DEVINFO)
        self.assertEqual(facts["mlx5_0"]["fw_ver"], "28.39.1002")
        self.assertEqual(facts["mlx5_0"]["state"], "PORT_DOWN (1)")
        self.assertEqual(facts["mlx5_1"]["fw_ver"], "20.1.2")
        self.assertNotIn("board_id", facts["mlx5_1"])

    def test_tests_that_pass_are_counted(self):
        text = "[       OK ] a.b (1 ms)\n[       OK ] a.c (1 ms)\n[  SKIPPED ] a.d (0 ms)\nSkipped\nthere is no GPU\n"
        self.assertEqual(subject.gtest_result(0, text), ("pass", "2 tests, 1 skipped: there is no GPU"))

    def test_a_run_of_skipped_tests_is_a_skip_with_its_reason(self):
        self.assertEqual(subject.gtest_result(77, "skipped: GPU memory: this build is without CUDA\n"),
                         ("skip", "GPU memory: this build is without CUDA"))
        self.assertEqual(subject.gtest_result(0, "x.cpp:1: Skipped\nthere is no GPU\n\n[  SKIPPED ] a.b (0 ms)\n"),
                         ("skip", "there is no GPU"))

    def test_a_filter_that_selects_nothing_fails(self):
        text = "[==========] Running 0 tests from 0 test suites.\n[  PASSED  ] 0 tests.\n"
        self.assertEqual(subject.gtest_result(0, text), ("fail", "its filter selects no test"))

    def test_failed_tests_are_named_once(self):
        text = "[       OK ] a.b (1 ms)\n[  FAILED  ] a.c, where GetParam() = x (1 ms)\n" \
               "[  FAILED  ] a.c, where GetParam() = x\n"
        self.assertEqual(subject.gtest_result(1, text), ("fail", "1 of 2 tests: a.c"))

    def test_a_program_that_dies_fails(self):
        result, reason = subject.gtest_result(-11, "[       OK ] a.b (1 ms)\n[ RUN      ] a.c\n")
        self.assertEqual(result, "fail")
        self.assertIn("-11 after 1 tests", reason)

    def test_an_excerpt_begins_with_the_first_failure(self):
        text = "noise\nf.cpp:3: Failure\nExpected\n" + "more\n" * 20 + "the end\n"
        excerpt = subject.excerpt_of(text)
        self.assertEqual(excerpt[:2], ("f.cpp:3: Failure", "Expected"))
        self.assertEqual(len(excerpt), subject.LINES_OF_A_FAILURE)
        self.assertEqual(subject.excerpt_of("one\ntwo\n"), ("one", "two"))


class Report(unittest.TestCase):
    def lines(self, outcomes, emulated=False, advice=()):
        return subject.report([("version", "1"), ("device", ROCE)], outcomes, emulated, advice).splitlines()

    def test_every_line_of_the_table_says_emulated(self):
        rows = [outcome("doctor", "pass"), outcome("rdma", "fail"), outcome("gdr", "skip")]
        lines = self.lines(rows, emulated=True)
        start = next(i for i, line in enumerate(lines) if line.startswith("-----")) + 1
        for row, line in zip(rows, lines[start:start + len(rows)]):
            self.assertTrue(line.startswith(row.name))
            self.assertIn("emulated", line)
        self.assertIn("emulated", lines[0])
        self.assertNotIn("emulated", "\n".join(self.lines(rows)))

    def test_a_long_fact_is_folded_and_not_cut(self):
        lines = self.lines([outcome("doctor", "pass")])
        self.assertIn("queues driven directly; payloads are not encrypted", " ".join(line.strip() for line in lines))

    def test_results_are_counted_and_have_reasons(self):
        lines = self.lines([outcome("doctor", "pass"), outcome("gdr", "skip", "there is no GPU")])
        self.assertIn("1 passed, 0 failed, 1 skipped", lines[0])
        self.assertTrue(any(line.startswith("gdr") and "there is no GPU" in line for line in lines))

    def test_failures_are_shown_with_what_they_check(self):
        text = "\n".join(self.lines([outcome("rdma", "fail", "1 of 2 tests", ("f.cpp:3: Failure",))]))
        self.assertIn("rdma: what rdma is\n  f.cpp:3: Failure", text)

    def test_a_report_stays_one_page(self):
        long = "word " * 100
        rows = [outcome(f"check-{i}", "fail", long, (long,) * subject.LINES_OF_A_FAILURE) for i in range(16)]
        lines = self.lines(rows, advice=[long])
        self.assertLessEqual(len(lines), 66)
        self.assertLessEqual(max(map(len, lines)), subject.COLUMNS)
        self.assertIn("12 more failed: their logs are beside this report", lines)


class Checks(unittest.TestCase):
    def perform(self, check):
        with tempfile.TemporaryDirectory() as folder:
            return subject.perform(subject.Context(Path(folder), Path(folder), Path(folder), False, True), check)

    def test_a_check_that_cannot_run_is_skipped_with_its_reason(self):
        done = self.perform(subject.Check("gdr", "", ["false"], missing="there is no GPU"))
        self.assertEqual((done.result, done.reason), ("skip", "there is no GPU"))

    def test_a_program_that_is_not_there_fails(self):
        self.assertEqual(self.perform(subject.Check("x", "", ["/no/such/program"])).result, "fail")

    def test_a_program_that_hangs_is_ended_with_its_children(self):
        with tempfile.NamedTemporaryFile("r") as told:
            script = f"import os, subprocess, time; p = subprocess.Popen(['sleep', '600']); " \
                     f"open({told.name!r}, 'w').write(str(p.pid)); time.sleep(600)"
            child = ""
            for seconds in (1, 4, 16, 64):  # the program has to begin in that time
                done = self.perform(subject.Check("x", "", [sys.executable, "-c", script], seconds=seconds))
                self.assertEqual((done.result, done.reason), ("fail", f"no end after {seconds} s"))
                child = told.read()
                if child:
                    break
        deadline = time.monotonic() + 30
        while self.lives(child) and time.monotonic() < deadline:
            time.sleep(0.01)  # the kernel ends it after its signal
        self.assertFalse(self.lives(child))

    @staticmethod
    def lives(process):
        state = subject.first_of(f"/proc/{process}/stat").rpartition(")")[2].split()
        return bool(state) and state[0] != "Z"

    def test_only_the_doctor_runs_without_a_device(self):
        context = subject.Context(Path(), Path(), Path(), False, False)
        doctor = {"reasons": {"rdma": "no port is up"}, "usable": {"rdma": False}, "advice": []}
        self.assertEqual([each.name for each in subject.all_checks(context, doctor, False)], ["doctor"])

    def test_checks_of_a_gpu_are_skipped_with_a_reason_without_one(self):
        context = subject.Context(Path("/nowhere"), Path("/nowhere"), Path(), False, False)
        doctor = {"reasons": {"rdma": ROCE}, "usable": {"rdma": True}, "advice": []}
        missing = {each.name: each.missing for each in subject.all_checks(context, doctor, False)}
        self.assertTrue(missing["gdr"])
        self.assertTrue(missing["posting-services"])
        self.assertFalse(missing["rdma"])


if __name__ == "__main__":
    unittest.main()
