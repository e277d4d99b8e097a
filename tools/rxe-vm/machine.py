# SPDX-License-Identifier: Apache-2.0
"""Boots the virtual machine, passes the command's output on, and ends it: at the latest at its deadline."""
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import initramfs
from trouble import Deadline, MachineFailed

GUEST = Path(__file__).resolve().parent / "guest"
KVM_GET_API_VERSION = 0xAE00
KVM_CREATE_VM = 0xAE01
# The guest's clock, its console and its speed; a broken kernel ends the machine.
KERNEL_LINE = ("console=ttyS0 quiet loglevel=4 panic=-1 oops=panic nokaslr mitigations=off tsc=reliable no_timer_check "
               "audit=0 apparmor=0 selinux=0 random.trust_cpu=on cryptomgr.notests net.ifnames=0 "
               "rcupdate.rcu_expedited=1")
# qemu emulates `rep movsb` and `rep stosb` byte by byte: without ERMS and FSRM the kernel and the C library copy and
# clear memory in larger pieces, ten times as fast. Without SMAP and LA57 system calls and page faults are shorter.
EMULATED_PROCESSOR = "max,-erms,-fsrm,-smap,-la57"
BOOT_SECONDS = {"tcg": 180, "counted": 180, "kvm": 20}


def run(boot, chosen):
    """The command's exit status."""
    broken_kvm = chosen.cache / "kvm-failed"
    accelerator = chosen.accelerator
    if accelerator == "auto":
        accelerator = "kvm" if has_kvm() and not broken_kvm.exists() else "tcg"
    for attempt in range(1, chosen.attempts + 1):
        with tempfile.TemporaryDirectory(dir=chosen.cache, prefix="run.") as folder:
            one = Attempt(boot, chosen, Path(folder), accelerator)
            status = one.run()
            if status is not None:
                return status
            tell(f"attempt {attempt} of {chosen.attempts} failed ({accelerator}): {one.failure}")
            tell("what qemu and the guest's console said last:\n" + one.last_words())
            if accelerator == "kvm" and chosen.accelerator == "auto" and one.is_kvm_to_blame():
                tell(f"from now on without KVM, unless {broken_kvm} is removed")
                broken_kvm.touch()
                accelerator = "tcg"
    raise MachineFailed("the virtual machine failed; the command has no result")


def tell(text):
    sys.stdout.flush()
    print(f"rxe-vm: {text}", file=sys.stderr, flush=True)


def has_kvm():
    try:
        with open("/dev/kvm", "r+b", buffering=0) as kvm:
            if fcntl.ioctl(kvm, KVM_GET_API_VERSION) != 12:
                return False
            os.close(fcntl.ioctl(kvm, KVM_CREATE_VM, 0))
            return True
    except OSError:
        return False


class Attempt:
    """One boot. `job` is shared with the guest: the command goes in, its result comes out."""

    def __init__(self, boot, chosen, folder, accelerator):
        self.boot = boot
        self.chosen = chosen
        self.folder = folder
        self.accelerator = accelerator
        self.job = folder / "job"
        self.console = folder / "console"
        self.log = folder / "qemu.log"
        self.started = self.job / "started"
        self.failure = ""

    def run(self):
        """The command's exit status; None: the machine failed, for `failure`."""
        self.write_job()
        begin = time.monotonic()
        with open(self.log, "wb") as log:
            # Its input stays open and empty: at an end of it qemu would close the channel of the output too.
            qemu = subprocess.Popen(self.command_line(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        pass_on = threading.Thread(target=copy_output, args=(qemu.stdout,), daemon=True)
        pass_on.start()
        try:
            self.failure = self.wait(qemu, begin)
        finally:
            qemu.kill()
            qemu.wait()
            pass_on.join(10)
        return None if self.failure else self.read_result(qemu.returncode, time.monotonic() - begin)

    def wait(self, qemu, begin):
        """Until qemu ends by itself; else why it has to be ended."""
        while True:
            try:
                qemu.wait(0.1)
                return ""
            except subprocess.TimeoutExpired:
                seconds = time.monotonic() - begin
            if "KVM internal error" in self.log_text():
                return "KVM does not work here"
            if seconds > BOOT_SECONDS[self.accelerator] and not self.started.exists():
                return f"it had not booted after {seconds:.0f} s"
            if seconds > self.chosen.timeout:
                raise Deadline(f"the command had not ended after {self.chosen.timeout:g} s")

    def read_result(self, qemu_status, seconds):
        """Only the file counts: qemu ends in the same way after a panic."""
        try:
            text = (self.job / "result").read_text()
        except FileNotFoundError:
            panic = "Kernel panic" in self.console_text()
            self.failure = "the guest's kernel panicked" if panic else f"no result (qemu ended with {qemu_status})"
            return None
        if not text.strip().isdigit():
            raise MachineFailed(f"the guest could not be set up: {text.strip()}\n{self.last_words()}")
        boot_seconds = self.started.read_text().strip()
        tell(f"exit status {text.strip()}; booted in {boot_seconds} s, {seconds:.1f} s in all; {self.accelerator}; "
             f"{self.boot.about}")
        if text.strip() != "0" and self.console_text():
            tell("what the guest's kernel said last:\n" + self.last_words())
        return int(text)

    def is_kvm_to_blame(self):
        return "KVM internal error" in self.log_text() or not self.started.exists()

    def write_job(self):
        self.job.mkdir()
        shutil.copy(GUEST / "enter", self.job)
        command = self.chosen.command
        if len(command) == 1:
            command = ["bash", "-c", command[0]]
        (self.job / "command").write_bytes(zero_ended(command))
        environment = self.job / "environment"
        environment.touch(0o600)
        environment.write_bytes(zero_ended(f"{name}={value}" for name, value in os.environ.items()))
        (self.job / "folder").write_text(os.getcwd())
        with initramfs.Archive(self.folder / "init.cpio") as archive:
            archive.add("init", 0o755, (GUEST / "init").read_bytes())
        with open(self.folder / "initramfs", "wb") as whole:
            for part in (self.boot.modules, self.folder / "init.cpio"):
                whole.write(part.read_bytes())
        if self.chosen.results is not None:
            self.chosen.results.mkdir(parents=True, exist_ok=True)
            (self.job / "results").write_text(str(self.chosen.results.resolve()))

    def command_line(self):
        accelerator = {"kvm": "kvm", "tcg": "tcg,thread=multi,tb-size=256",
                       "counted": "tcg,thread=single,tb-size=256"}[self.accelerator]
        processor = "max" if self.accelerator == "kvm" else EMULATED_PROCESSOR
        cpus = 1 if self.accelerator == "counted" else self.chosen.cpus
        line = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
                "-machine", "pc,usb=off,vmport=off,hpet=off,smbus=off", "-accel", accelerator, "-cpu", processor,
                "-smp", str(cpus), "-m", str(self.chosen.memory),
                "-kernel", str(self.boot.kernel), "-initrd", str(self.folder / "initramfs"), "-append", KERNEL_LINE,
                "-serial", f"file:{self.console}",
                "-device", "virtio-serial", "-chardev", "stdio,id=output,signal=off",
                "-device", "virtserialport,chardev=output,name=output"]
        if self.accelerator == "counted":
            line += ["-icount", "shift=0,sleep=on"]
        line += share("host", "/", "readonly=on,multidevs=remap")
        line += share("job", self.job)
        if self.chosen.results is not None:
            line += share("results", self.chosen.results.resolve())
        return line

    def log_text(self):
        return self.log.read_text(errors="replace")

    def console_text(self):
        return self.console.read_text(errors="replace") if self.console.exists() else ""

    def last_words(self):
        said = self.log_text().splitlines()[:10] + self.console_text().splitlines()[-40:]
        return "\n".join(said)


def share(tag, path, options=None):
    described = f"local,id={tag},path={str(path).replace(',', ',,')},security_model=none"
    return ["-fsdev", described + ("," + options if options else ""), "-device",
            f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]


def zero_ended(texts):
    return b"".join(os.fsencode(text) + b"\0" for text in texts)


def copy_output(pipe):
    while part := pipe.read1(65536):
        sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()
