# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of the gateway's README as they stand there, with free ports. A block of JSON says what the block
of commands before it prints."""
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

from pair import expect

PORTS = ("5555", "8000", "8001", "8002")
NEXT = "=== next ==="
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def blocks(path):
    """[(commands, what they print, or None)]."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    out = []
    for language, body in FENCE.findall(text):
        if language == "sh":
            out.append([body, None])
        elif language == "json" and out:
            out[-1][1] = body
    return out


def with_free_ports(text):
    for port in PORTS:
        text = text.replace(":" + port, ":" + free_port())
    return text


def squeezed(text):
    return "".join(text.split())


def run(script, programs):
    """What it prints. Programs are found by their names, and all that it has started ends with it."""
    with tempfile.TemporaryDirectory() as folder:
        for name, path in programs.items():
            os.symlink(path, os.path.join(folder, name))
        shell = subprocess.Popen(["bash", "-e", "-u", "-o", "pipefail", "-c", script], stdout=subprocess.PIPE,
                                 text=True, cwd=folder, start_new_session=True,
                                 env={**os.environ, "PATH": folder + os.pathsep + os.environ["PATH"]})
        try:
            out, _ = shell.communicate(timeout=100)
        finally:
            try:
                os.killpg(shell.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    expect(shell.returncode == 0, f"the commands succeed; they printed {out[-500:]}")
    return out


def main():
    if not shutil.which("curl"):
        print("there is no curl")
        return 77
    gateway, model_server, readme = sys.argv[1:4]
    found = blocks(readme)
    expect(sum("curl" in commands for commands, _ in found) >= 6, "the README has commands with curl")
    # The processes that a block starts print to nowhere, so that its output ends.
    script = with_free_ports(f"echo\necho '{NEXT}'\n".join(commands for commands, _ in found))
    script = re.sub(r" &$", " >/dev/null &", script, flags=re.MULTILINE)
    printed = run(script, {"gateway": gateway, "model_server": model_server}).split(NEXT)
    expect(len(printed) == len(found), "each block was run")
    for (commands, wanted), got in zip(found, printed):
        print(commands + got, flush=True)
        if wanted is not None:
            expect(squeezed(got) == squeezed(wanted), f"it prints what the README says: {wanted}")
    said = "".join(printed)
    expect('"id":"blank"' in said and said.count('"output0"') >= 3, "there are answers")
    expect('"error"' in printed[-3], "a blank page is an error")
    expect('"success":{"count":2' in squeezed(printed[-1]), "both requests were counted")
    return 0


if __name__ == "__main__":
    sys.exit(main())
