# SPDX-License-Identifier: Apache-2.0
"""What holds for the installed package alone: a build of the tree links libibverbs, and has no other libraries inside.

`./run wheel` runs all tests with the wheel, these also on softnic.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import PATIENCE, Rig, echo

import accel_transport as at


def _installed() -> bool:
    try:
        importlib.metadata.distribution("accel-transport")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


pytestmark = pytest.mark.skipif(not _installed(), reason="the module is not installed: this is a build of the tree")


def test_import_needs_no_device_libraries() -> None:
    script = """
import accel_transport
maps = open("/proc/self/maps").read()
print([name for name in ("libibverbs", "libmlx5", "libcuda.so", "numpy", "torch") if name in maps])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout == "[]\n"


def test_machine_without_libibverbs_is_told(tmp_path: Path) -> None:
    (tmp_path / "libibverbs.so.1").touch()  # the loader takes it for the library, and cannot load it
    script = """
import os
import accel_transport as at
print({one.name: one.reason for one in at.doctor()}["rdma"])
with at.Server(f"shm://python-{os.getpid()}", lambda request: request.data) as server:
    with at.connect(server.endpoints[0]) as channel:
        channel.call(b"goes on")
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert "libibverbs.so.1 is not installed" in done.stdout


def test_pyzmq_has_its_own_library_beside_ours(rig: Rig) -> None:
    zmq = pytest.importorskip("zmq")
    with zmq.Context() as context, context.socket(zmq.REP) as server, context.socket(zmq.REQ) as client:
        client.connect(f"tcp://127.0.0.1:{server.bind_to_random_port('tcp://127.0.0.1')}")
        ours = rig.connect(rig.serve("zmq://127.0.0.1:0", echo, insecure=True), insecure=True)
        client.send(b"theirs")
        assert np.from_dlpack(ours.call(np.arange(3)).tensor(0)).tolist() == [0, 1, 2]
        server.send(server.recv())
        assert client.recv() == b"theirs"


def test_call_over_rdma_where_there_is_a_device(rig: Rig) -> None:
    (rdma,) = [one for one in at.doctor() if one.name == "rdma"]
    if not rdma.usable:
        pytest.skip(rdma.reason)
    channel = rig.connect(rig.serve("rdma://127.0.0.1:0", echo, insecure=True), insecure=True)
    sent = np.arange(100_000, dtype=np.float32)
    assert np.array_equal(np.from_dlpack(channel.call(sent).tensor(0)), sent)
