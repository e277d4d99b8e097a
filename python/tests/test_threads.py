# SPDX-License-Identifier: Apache-2.0
"""What threads do beside each other: those of the library, and those of other packages, which have no GIL."""

from __future__ import annotations

import ctypes
import gc
import threading

import numpy as np
from conftest import PATIENCE, Rig, own_uri

import accel_transport as at

USED = ctypes.c_char_p(b"used_dltensor_versioned")


class Content(ctypes.Structure):
    """The begin of a DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    )


class Managed(ctypes.Structure):
    """The begin of a DLManagedTensorVersioned."""

    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("content", Content),
    )


def managed_of(capsule: object) -> int:
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    managed = api.PyCapsule_GetPointer(ctypes.py_object(capsule), b"dltensor_versioned")
    assert isinstance(managed, int)
    return managed


def take(capsule: object) -> int:
    """What a consumer of DLPack does: the tensor is its own, and ends with its deleter."""
    managed = managed_of(capsule)
    ctypes.pythonapi.PyCapsule_SetName(ctypes.py_object(capsule), USED)
    return managed


def delete_on_a_thread_without_python(managed: int) -> int:
    """As a package in C++ does it. The thread, for `join`."""
    thread = ctypes.c_ulong()
    begin = ctypes.PyDLL(None).pthread_create
    deleter = Managed.from_address(managed).deleter
    assert begin(ctypes.byref(thread), None, ctypes.c_void_p(deleter), ctypes.c_void_p(managed)) == 0
    return thread.value


def join(thread: int) -> None:
    assert ctypes.CDLL(None).pthread_join(ctypes.c_ulong(thread), None) == 0


def test_tensor_is_deleted_without_the_gil_while_its_channel_is_used(rig: Rig) -> None:
    channel = rig.pair(own_uri("local"), lambda request: np.arange(4), slots=64)
    for _ in range(40):
        taken = [take(channel.call(b"").tensor(0).__dlpack__(max_version=(1, 0))) for _ in range(channel.slots)]
        threads = []
        for one in taken:
            threads.append(delete_on_a_thread_without_python(one))
            for _ in range(20):
                assert channel.statistics["stale"] == 0  # enters the channel
        for thread in threads:
            join(thread)
    assert len(channel.call(b"")) > 0


def test_worker_keeps_what_python_stores_for_its_thread(uri: str, rig: Rig) -> None:
    class Connection:
        def __init__(self) -> None:
            self.uses = 0

        def __del__(self) -> None:
            closed.set()

    closed = threading.Event()
    own = threading.local()

    def handler(request: at.Exchange) -> object:
        if not hasattr(own, "connection"):
            own.connection = Connection()
        own.connection.uses += 1
        return b"%d" % own.connection.uses

    server = rig.serve(uri, handler, workers=1)
    channel = rig.connect(server)
    assert [bytes(channel.call(b"")) for _ in range(3)] == [b"1", b"2", b"3"]
    assert not closed.is_set()
    server.stop()
    gc.collect()
    assert closed.wait(PATIENCE)
