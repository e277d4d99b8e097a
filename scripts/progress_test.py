#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
import os
import pty
import select
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / "progress.sh"
PATIENCE_S = 60


class Progress(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.log = self.folder / "release.log"
        self.log.touch()

    def command(self, text):
        return ["bash", "-euo", "pipefail", "-c", f"logs={self.folder} step=release; . {SCRIPT}; {text}"]

    def output(self, text):
        return subprocess.run(self.command(text), capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout

    def test_finds_the_last_count_and_the_failures(self):
        self.log.write_text("[3/9] Linking bin/a\n 1/20 Test #33: a.b ... Passed 0.1 sec\n"
                            " 2/20 Test  #4: c.d ...***Failed 0.1 sec\nmore\n")
        self.assertEqual("tested 2 20\n1\n", self.output(f"progress_of {self.log}; failures_in {self.log}"))

    def test_nothing_moves_off_a_terminal_and_the_status_is_kept(self):
        self.assertEqual("3\n", self.output("while_followed bash -c 'echo [1/2] a; exit 3' || echo $?"))
        self.assertEqual("[1/2] a\n", self.log.read_text())

    def test_a_line_shows_the_progress_on_a_terminal(self):
        done = self.folder / "done"
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        waiting = f"echo [7/9] a; until [[ -e {done} ]]; do sleep 0.1; done"
        with subprocess.Popen(self.command(f"while_followed bash -c '{waiting}'"), stdout=theirs) as child:
            os.close(theirs)
            shown = b""
            while b"release: built 7 of 9, 0 failed" not in shown:
                self.assertTrue(select.select([ours], [], [], PATIENCE_S)[0], shown)
                shown += os.read(ours, 4096)
            done.touch()
            self.assertEqual(0, child.wait(PATIENCE_S))


if __name__ == "__main__":
    unittest.main()
