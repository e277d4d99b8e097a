# SPDX-License-Identifier: Apache-2.0
"""A virtual environment with a stock tritonclient from PyPI, which all tests of the doors share."""
import fcntl
import os
import subprocess
import sys
import venv

PACKAGES = ["tritonclient[http,grpc]==2.73.0", "grpcio-health-checking==1.81.1"]
SKIPPED = 77


def client_python():
    """The environment's python; None: PyPI is out of reach."""
    folder = os.environ.get("ACCEL_TEST_ENVIRONMENT", "environment")
    os.makedirs(folder, exist_ok=True)
    # One test makes it; others wait meanwhile.
    with open(folder + ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _made(folder)


def _made(folder):
    python = os.path.join(folder, "bin", "python")
    whole = os.path.join(folder, "whole")
    if os.path.exists(whole):
        with open(whole, encoding="utf-8") as file:
            if file.read().split() == PACKAGES:
                return python
    venv.create(folder, with_pip=True, clear=True)
    done = subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "1",
                           *PACKAGES], timeout=240, check=False)
    if done.returncode != 0:
        return None
    with open(whole, "w", encoding="utf-8") as file:
        file.write("\n".join(PACKAGES))
    return python


def run_client(script, *arguments, timeout=100):
    """The exit status of a script in the environment, or SKIPPED."""
    python = client_python()
    if python is None:
        print("skipped: PyPI is out of reach, and tritonclient comes from there")
        return SKIPPED
    return subprocess.run([python, script, *arguments], check=False, timeout=timeout, stdout=sys.stdout).returncode
