# SPDX-License-Identifier: Apache-2.0
"""What may go wrong, other than the command itself."""


class Unavailable(Exception):
    """This machine lacks something: qemu, the kernel's package, a tool."""


class MachineFailed(Exception):
    """The virtual machine did not run the command to its end."""


class Deadline(Exception):
    """The command ran too long."""
