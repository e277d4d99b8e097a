#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests what need_packages does where Debian's packages are not installed."""
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
# No package is installed, and none can be.
AROUND = r"""
say() { printf '%s\n' "$*"; }
end_with() { say "$*"; exit 1; }
root=$FOLDER
. "$SCRIPTS/packages.sh"
dpkg-query() { return 1; }
apt-get() { return 1; }
install_packages() { end_with "to install: $*"; }
"""


def need(*packages, **environment):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["bash", "-c", f"{AROUND}\nneed_packages {' '.join(packages)}"], text=True,
                              capture_output=True, check=False,
                              env=os.environ | {"SCRIPTS": str(SCRIPTS), "FOLDER": folder} | environment)
    return done.returncode, done.stdout


class Packages(unittest.TestCase):
    def test_what_is_there_from_elsewhere_is_not_installed(self):
        status, said = need("python3", "g++")
        self.assertEqual(status, 0)
        self.assertIn("there: python3 g++", said)

    def test_a_header_is_found_in_a_folder_of_cmake(self):
        with tempfile.TemporaryDirectory() as prefix:
            self.assertIn("to install: libhere", need("libhere", CMAKE_PREFIX_PATH=prefix)[1])
            header = Path(prefix) / "include" / "boost" / "beast.hpp"
            header.parent.mkdir(parents=True)
            header.touch()
            self.assertEqual(need("libboost-dev", CMAKE_PREFIX_PATH=f"/nowhere:{prefix}")[0], 0)

    def test_the_compiler_that_is_chosen_is_asked(self):
        status, said = need("libzmq3-dev", CXX="false")
        self.assertEqual((status, said.splitlines()[-1]), (1, "to install: libzmq3-dev"))

    def test_only_what_is_missing_is_installed(self):
        status, said = need("python3", "libnothing-dev")
        self.assertEqual((status, said.splitlines()[-1]), (1, "to install: libnothing-dev"))


if __name__ == "__main__":
    unittest.main()
