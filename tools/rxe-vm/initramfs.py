# SPDX-License-Identifier: Apache-2.0
"""The formats around a kernel: cpio archives, compressed modules and images."""
import lzma
import shutil
import subprocess

from trouble import Unavailable

XZ = b"\xfd7zXZ\0"
ZSTD = b"\x28\xb5\x2f\xfd"
ELF = b"\x7fELF"


class Archive:
    """Writes a cpio archive ("newc") of files and the folders they are in."""

    def __init__(self, path):
        self.path = path
        self.entries = 0
        self.folders = set()

    def __enter__(self):
        self.file = open(self.path, "wb")
        return self

    def __exit__(self, *failure):
        self.write("TRAILER!!!", 0, b"")
        self.file.close()

    def add(self, name, mode, content):
        parts = name.split("/")[:-1]
        for depth in range(len(parts)):
            self.add_folder("/".join(parts[:depth + 1]))
        self.write(name, 0o100000 | mode, content)

    def add_folder(self, name):
        if name not in self.folders:
            self.folders.add(name)
            self.write(name, 0o040755, b"")

    def write(self, name, mode, content):
        self.entries += 1
        encoded = name.encode() + b"\0"
        # inode, mode, owner, group, links, time, size, device (4 numbers), length of the name, checksum
        fields = (self.entries, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
        header = b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
        for part in (header, content):
            self.file.write(part + b"\0" * (-len(part) % 4))


def plain_name(module):
    return module.name.split(".ko")[0] + ".ko"


def unpacked(module):
    content = module.read_bytes()
    if content.startswith(XZ):
        return lzma.decompress(content)
    if content.startswith(ZSTD):
        if shutil.which("zstd") is None:
            raise Unavailable("the kernel's modules are packed, and there is no zstd (package zstd)")
        return subprocess.run(["zstd", "-dcq"], input=content, stdout=subprocess.PIPE, check=True).stdout
    return content


def kernel_to_boot(image):
    """The ELF file inside a compressed kernel: it saves an emulated processor seconds. The image itself where none is
    found."""
    start = image.find(XZ)
    while start >= 0:
        try:
            content = lzma.LZMADecompressor().decompress(image[start:])
            if content.startswith(ELF):
                return content
        except lzma.LZMAError:
            pass
        start = image.find(XZ, start + 1)
    start = image.find(ZSTD) if shutil.which("zstd") else -1
    while start >= 0:
        # Behind the stream there is more, at which zstd fails after it has written all.
        content = subprocess.run(["zstd", "-dcq"], input=image[start:], stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL).stdout
        if content.startswith(ELF):
            return content
        start = image.find(ZSTD, start + 1)
    return image
