# SPDX-License-Identifier: Apache-2.0
"""Finds the distribution's kernel and a static busybox, downloads both without installing them, and keeps what a boot
needs: the kernel, and an initramfs of busybox and the modules."""
import json
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import initramfs
from trouble import Unavailable

KERNEL_PACKAGE = re.compile(r"linux-(image|modules|modules-extra)-\d\S*")
TOOLS = {"qemu-system-x86_64": "qemu-system-x86", "depmod": "kmod", "modprobe": "kmod", "rdma": "iproute2",
         "apt-get": "apt", "dpkg-deb": "dpkg"}
# What the guest mounts its root and speaks to the host with, then what a command finds. Some have it built in.
FOR_ROOT = ["virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay"]
FOR_COMMANDS = ["dummy", "ib_uverbs", "rdma_ucm", "rdma_rxe", "tls"]
# Neither rxe nor tls names its ciphers and checksums as dependencies; the guest has no modprobe that would find them.
WHERE_PRESENT = ["crc32_generic", "crc32c_generic", "gcm", "ctr", "aesni_intel", "aes_generic"]
MODULES = FOR_ROOT + WHERE_PRESENT + FOR_COMMANDS


@dataclass
class Boot:
    kernel: Path
    modules: Path  # an initramfs without /init
    about: str


def prepare(cache):
    """What is in `cache`, which is filled first if it is empty."""
    if os.uname().machine != "x86_64":
        raise Unavailable(f"the virtual machine is x86-64, this machine is {os.uname().machine}")
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            raise Unavailable(f"there is no {tool} (package {package})")
    boot = cache / "boot"
    about = boot / "about.json"
    if not about.exists() or json.loads(about.read_text()).get("modules") != MODULES:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="download.") as folder:
            fill(Path(folder), Path(folder) / "boot")
            shutil.rmtree(boot, ignore_errors=True)
            (Path(folder) / "boot").rename(boot)
    return Boot(boot / "kernel", boot / "modules.cpio", json.loads(about.read_text())["about"])


def fill(scratch, boot):
    packages = download(scratch)
    tree = scratch / "tree"
    for package in scratch.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, tree], check=True)
    if not (tree / "lib" / "modules").exists():
        (tree / "lib").symlink_to("usr/lib")
    image, = (tree / "boot").glob("vmlinuz-*")
    release = image.name.removeprefix("vmlinuz-")
    boot.mkdir()
    (boot / "kernel").write_bytes(initramfs.kernel_to_boot(image.read_bytes()))
    with initramfs.Archive(boot / "modules.cpio") as archive:
        archive.add("bin/busybox", 0o755, next(tree.glob("**/bin/busybox")).read_bytes())
        add_modules(archive, tree, release)
    about = f"Linux {release}, from {' '.join(packages)}"
    (boot / "about.json").write_text(json.dumps({"about": about, "modules": MODULES}))


def add_modules(archive, tree, release):
    subprocess.run(["depmod", "-b", tree, release], check=True, stderr=subprocess.DEVNULL)
    added = set()
    for stage, names in (("root", FOR_ROOT), ("commands", WHERE_PRESENT + FOR_COMMANDS)):
        order = []
        for name in names:
            for file in files_of_module(tree, release, name):
                if file not in added:
                    added.add(file)
                    order.append(initramfs.plain_name(file))
                    archive.add(f"modules/{order[-1]}", 0o644, initramfs.unpacked(file))
        archive.add(f"modules/for_{stage}", 0o644, "".join(f"{name}\n" for name in order).encode())


def files_of_module(tree, release, name):
    """The module and what it depends on, in the order of loading; nothing where it is built in."""
    shown = subprocess.run(["modprobe", "-C", "/dev/null", "-d", tree, "-S", release, "--show-depends", name],
                           text=True, capture_output=True)
    if shown.returncode != 0:
        if name in WHERE_PRESENT:
            return []
        raise Unavailable(f"this kernel ({release}) has no module {name}")
    return [Path(line.split()[1]) for line in shown.stdout.splitlines() if line.startswith("insmod ")]


def download(scratch):
    """Downloads into `scratch`; the names of the packages."""
    failure = None
    for refreshed in (False, True):
        if refreshed and (os.geteuid() != 0 or not refresh()):
            break
        packages = kernel_packages()
        if not packages:
            failure = f"apt knows no kernel (package {meta_package()}); after apt-get update it may"
            continue
        packages.append("busybox-static")
        got = subprocess.run(["apt-get", "-q", "download", *packages], cwd=scratch, text=True, capture_output=True)
        if got.returncode == 0:
            return packages
        failure = f"apt-get download {' '.join(packages)}: {got.stderr.strip()}"
    raise Unavailable(failure)


def refresh():
    return subprocess.run(["apt-get", "-q", "update"], capture_output=True).returncode == 0


def meta_package():
    """The package that depends on the distribution's newest kernel."""
    system = dict(line.rstrip().split("=", 1) for line in open("/etc/os-release", encoding="utf-8") if "=" in line)
    family = {system.get("ID", "").strip('"'), *system.get("ID_LIKE", "").strip('"').split()}
    return "linux-image-generic" if "ubuntu" in family else "linux-image-amd64"


def kernel_packages():
    found, to_see = [], [meta_package()]
    while to_see:
        shown = subprocess.run(["apt-cache", "depends", to_see.pop()], text=True, capture_output=True)
        for name in re.findall(r"^\s+Depends: (\S+)$", shown.stdout, re.MULTILINE):
            if KERNEL_PACKAGE.fullmatch(name) and name not in found:
                found.append(name)
                to_see.append(name)
    return found
