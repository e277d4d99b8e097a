# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import accel_transport as at

PATIENCE = 60.0
"""Seconds after which something hangs. No test waits for it otherwise."""

_number = itertools.count()


def own_uri(scheme: str) -> str:
    if scheme == "tcp":
        return "tcp://127.0.0.1:0?insecure=true&peer_timeout=30s"
    return f"{scheme}://python-{os.getpid()}-{next(_number)}?peer_timeout=30s"


def patient(server: at.Server, options: dict[str, Any]) -> dict[str, Any]:
    """Options of a channel to this server, with deadlines that only a hang misses, however busy the machine is."""
    usual = {"call_timeout": PATIENCE, "connect_timeout": PATIENCE, "peer_timeout": PATIENCE / 2}
    if server.endpoints[0].startswith("tcp"):
        usual["insecure"] = True
    return usual | options


@pytest.fixture(params=["local", "shm", "tcp"])
def uri(request: pytest.FixtureRequest) -> str:
    """A URI for a server of the test's own."""
    return own_uri(request.param)


class Rig:
    """Servers and channels that the test's end closes."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def serve(self, uri: str, handler: Any, **options: Any) -> at.Server:
        return self._stack.enter_context(at.Server(uri, handler, **options))

    def connect(self, server: at.Server, **options: Any) -> at.Channel:
        return self._stack.enter_context(at.Channel(server.endpoints[0], **patient(server, options)))

    def pair(self, uri: str, handler: Callable[[at.Exchange], object], **options: Any) -> at.Channel:
        return self.connect(self.serve(uri, handler), **options)


@pytest.fixture
def rig() -> Iterator[Rig]:
    with ExitStack() as stack:
        yield Rig(stack)


def echo(request: at.Exchange) -> object:
    return request.tensors or request.data
