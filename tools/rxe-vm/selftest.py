#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rxe-vm tells every end of a command apart, and loses nothing of what it wrote. One boot for each test.

    selftest.py [--cache FOLDER]
"""
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

RXE_VM = [str(Path(__file__).resolve().parent / "rxe-vm")]


def run(command, *options):
    """What rxe-vm ended with, and the seconds that it took."""
    begin = time.monotonic()
    done = subprocess.run([*RXE_VM, "run", "--timeout", "120", *options, "--", *command], text=True,
                          capture_output=True, errors="replace")
    return done, time.monotonic() - begin


def setUpModule():
    """Downloads the kernel and finds out whether KVM works, which takes a time that no test expects."""
    run(["true"])


class Ends(unittest.TestCase):
    def expect(self, status, done):
        self.assertEqual(status, done.returncode, done.stdout[-2000:] + done.stderr[-4000:])

    def test_the_exit_status_output_and_results_come_back(self):
        os.environ["RXE_VM_SELF_TEST"] = "two words\nand a line"
        with tempfile.TemporaryDirectory() as folder:
            line = f"""
                echo "to be read" >{folder}/result
                touch /etc/written-in-the-guest
                echo "in $PWD with $RXE_VM_SELF_TEST"
                echo "on standard error" >/dev/stderr
                ulimit -l
                seq -f 'line %.0f of many, long enough for some megabytes of text in all' 60000
                cat /sys/class/infiniband/rxe0/ports/1/state
                exit 41"""
            done, _ = run([line], "--results", folder)
            self.expect(41, done)
            self.assertEqual("to be read\n", Path(folder, "result").read_text())
        lines = done.stdout.splitlines()
        self.assertEqual([f"in {os.getcwd()} with two words", "and a line", "on standard error", "unlimited"],
                         lines[:4])
        many = [f"line {i} of many, long enough for some megabytes of text in all" for i in range(1, 60001)]
        self.assertEqual(many, lines[4:-1])
        self.assertEqual("4: ACTIVE", lines[-1])
        self.assertFalse(os.path.exists("/etc/written-in-the-guest"))

    def test_a_program_gets_its_arguments_as_they_are(self):
        done, _ = run(["printf", "<%s>", "a b", "$HOME", "--", ""])
        self.expect(0, done)
        self.assertEqual("<a b><$HOME><--><>", done.stdout)

    def test_a_signal_is_told_as_a_shell_does(self):
        done, _ = run(["kill -SEGV $$"])
        self.expect(128 + 11, done)

    def test_a_hang_is_ended_at_the_deadline(self):
        done, seconds = run(["echo begun; sleep 1000"], "--timeout", "25")
        self.expect(124, done)
        self.assertIn("begun", done.stdout)
        self.assertLess(seconds, 40)

    def test_a_panic_is_no_success_and_is_tried_again(self):
        done, _ = run(["echo begun; echo c >/proc/sysrq-trigger; exit 0"], "--attempts", "2")
        self.expect(125, done)
        self.assertEqual(2, done.stderr.count("the guest's kernel panicked"), done.stderr)

    def test_a_machine_that_just_stops_is_no_success(self):
        done, _ = run(["echo b >/proc/sysrq-trigger; sleep 100"], "--attempts", "1")
        self.expect(125, done)
        self.assertIn("no result", done.stderr)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--cache"]:
        RXE_VM += sys.argv[1:3]
        del sys.argv[1:3]
    unittest.main()
