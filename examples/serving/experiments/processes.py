# SPDX-License-Identifier: Apache-2.0
"""Child processes: their lines, their CPU time, and their end. None outlives this program."""
import ctypes
import json
import os
import select
import signal
import subprocess
import time

PR_SET_PDEATHSIG = 1
TICKS = os.sysconf("SC_CLK_TCK")


class Failed(Exception):
    """A process did not do what it was started for; the text says which and why."""


def _die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _stat(path):
    """(command, user s, kernel s) of a /proc/…/stat."""
    with open(path, encoding="utf-8", errors="replace") as file:
        content = file.read()
    command = content[content.index("(") + 1:content.rindex(")")]
    words = content[content.rindex(")") + 2:].split()
    return command, int(words[11]) / TICKS, int(words[12]) / TICKS


class Process:
    """A program in a group of its own, whose standard output is read line by line."""
    def __init__(self, name, command, log, environment=None):
        self.name = name
        self.log = open(log, "ab")  # pylint: disable=consider-using-with
        self.log.write(f"$ {' '.join(map(str, command))}\n".encode())
        self.log.flush()
        try:
            # pylint: disable=subprocess-popen-preexec-fn
            self.child = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL,
                                          stdout=subprocess.PIPE, stderr=self.log, preexec_fn=_die_with_parent,
                                          start_new_session=True, env={**os.environ, **(environment or {})})
        except OSError:
            self.log.close()
            raise
        os.set_blocking(self.child.stdout.fileno(), False)
        self.unread = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        self.child.stdout.close()
        self.log.close()

    def line(self, seconds):
        """The next line; None at the end of the output. Fails after `seconds`."""
        end = time.monotonic() + seconds
        while b"\n" not in self.unread:
            left = end - time.monotonic()
            if left <= 0:
                raise Failed(f"{self.name} said nothing for {seconds:.0f} s")
            if not select.select([self.child.stdout], [], [], left)[0]:
                continue
            more = os.read(self.child.stdout.fileno(), 65536)
            if not more:
                return None
            self.unread += more
        line, _, self.unread = self.unread.partition(b"\n")
        return line.decode(errors="replace")

    def document(self, seconds):
        """The next line that is JSON."""
        while True:
            line = self.line(seconds)
            if line is None:
                raise Failed(f"{self.name} ended with status {self.wait(5)}: see {self.log.name}")
            if line.startswith("{"):
                return json.loads(line)

    def wait(self, seconds):
        try:
            return self.child.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"{self.name} did not end within {seconds:.0f} s") from error

    def stop(self, patience=5.0):
        """SIGTERM, then SIGKILL for it and all it has started. Returns what it said last, if that is JSON."""
        said = None
        if self.child.poll() is None:
            self.child.terminate()
            try:
                said = self.document(patience)
                self.wait(patience)
            except (Failed, ValueError):
                pass
        try:
            os.killpg(self.child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.child.wait(10)
        return said

    def family(self):
        """The process and its children: `softnic run` is replaced by its program, contexts are children."""
        found, new = [], [self.child.pid]
        while new:
            found += new
            children = []
            for process in new:
                try:
                    with open(f"/proc/{process}/task/{process}/children", encoding="utf-8") as file:
                        children += [int(word) for word in file.read().split()]
                except OSError:
                    pass
            new = children
        return found

    def cpu(self):
        """Seconds so far: {"user", "kernel", "device"}; `device`: threads of the emulated adapter, in neither."""
        out = {"user": 0.0, "kernel": 0.0, "device": 0.0}
        for process in self.family():
            try:
                tasks = os.listdir(f"/proc/{process}/task")
            except OSError:
                continue
            for task in tasks:
                try:
                    command, user, kernel = _stat(f"/proc/{process}/task/{task}/stat")
                except (OSError, ValueError):
                    continue
                if command.startswith("softnic"):
                    out["device"] += user + kernel
                else:
                    out["user"] += user
                    out["kernel"] += kernel
        return out

    def rss(self):
        """MiB in RAM now."""
        pages = 0
        for process in self.family():
            try:
                with open(f"/proc/{process}/statm", encoding="utf-8") as file:
                    pages += int(file.read().split()[1])
            except (OSError, IndexError):
                pass
        return pages * os.sysconf("SC_PAGESIZE") / 2**20
