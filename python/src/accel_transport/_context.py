# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import threading
from typing import NamedTuple

from ._core import Context

_lock = threading.Lock()
_shared: Context | None = None


def shared_context() -> Context:
    """The context of all channels and servers that name none."""
    global _shared
    with _lock:
        if _shared is None:
            _shared = Context()
        return _shared


def _after_fork() -> None:
    global _lock, _shared
    _lock = threading.Lock()
    _shared = None  # the parent's ends without effect here


os.register_at_fork(after_in_child=_after_fork)


class Scheme(NamedTuple):
    """Whether a scheme works on this machine, and why."""

    name: str
    usable: bool
    reason: str


def doctor(context: Context | None = None) -> list[Scheme]:
    """Every scheme of this build, best first, and what this machine lacks for it."""
    return [Scheme(*found) for found in (context or shared_context()).schemes()]
