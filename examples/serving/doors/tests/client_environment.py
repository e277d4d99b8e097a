# SPDX-License-Identifier: Apache-2.0
"""A virtual environment with a stock tritonclient, which all tests of the doors share. It comes from PyPI; or, where
the variable ACCEL_WHEELS names a folder, from the wheels there, and from what this python has of its own."""
import fcntl
import os
import subprocess
import sys
import venv

PACKAGES = ["tritonclient[http,grpc]==2.73.0", "grpcio-health-checking==1.81.1"]
SKIPPED = 77


def client_python(further=()):
    """The environment's python, with `further` packages beside PACKAGES; None: they are out of reach."""
    return made_python(os.environ.get("ACCEL_TEST_ENVIRONMENT", "environment"), [*PACKAGES, *further])


def made_python(folder, packages):
    """The python of the environment in this folder, with these packages; None: they are out of reach."""
    os.makedirs(folder, exist_ok=True)
    # One test makes it; others wait meanwhile.
    with open(folder + ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _made(folder, packages)


def _made(folder, wanted):
    python = os.path.join(folder, "bin", "python")
    whole = os.path.join(folder, "whole")
    there = []
    if os.path.exists(whole):
        with open(whole, encoding="utf-8") as file:
            there = file.read().split()
    missing = [each for each in wanted if each not in there]
    if not missing:
        return python
    wheels = os.environ.get("ACCEL_WHEELS")
    if not there:
        venv.create(folder, with_pip=not wheels, clear=True)
    done = subprocess.run(_install(python, wheels) + missing, timeout=240, check=False)
    if done.returncode != 0:
        return None
    with open(whole, "w", encoding="utf-8") as file:
        file.write("\n".join(there + missing))
    return python


def _install(python, wheels):
    """pip's command without the packages. Its log is quiet."""
    quiet = ["-q", "--disable-pip-version-check"]
    if not wheels:
        return [python, "-m", "pip", "install", *quiet, "--retries", "1"]
    _share_packages(python)
    # This python's pip works for the environment, because ensurepip may be missing without a network.
    return [sys.executable, "-m", "pip", "--python", python, "install", *quiet, "--no-index", "--find-links", wheels]


def _share_packages(python):
    """What is installed for this python serves the environment where it has none of its own (numpy, for one)."""
    path = subprocess.check_output([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True)
    shared = [each for each in sys.path if each.endswith("-packages")]
    with open(os.path.join(path.strip(), "shared.pth"), "w", encoding="utf-8") as file:
        file.write("\n".join(shared) + "\n")


def run_client(script, *arguments, timeout=100, further=()):
    """The exit status of a script in the environment, or SKIPPED."""
    python = client_python(further)
    if python is None:
        print("skipped: PyPI (or ACCEL_WHEELS) does not give tritonclient")
        return SKIPPED
    return subprocess.run([python, script, *arguments], check=False, timeout=timeout, stdout=sys.stdout).returncode
