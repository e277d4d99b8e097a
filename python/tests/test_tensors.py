# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from conftest import Rig, echo, own_uri
from test_threads import Managed, managed_of

import accel_transport as at

TYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
         "complex64", "complex128", "bool"]  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_of_numpy_returns(dtype: str, rig: Rig) -> None:
    sent = (np.arange(24) % 2).astype(dtype).reshape(2, 3, 4)
    response = rig.pair(own_uri("local"), echo).call(sent)
    tensor = response.tensor(0)
    assert (tensor.shape, tensor.dtype, tensor.nbytes) == (sent.shape, dtype, sent.nbytes)
    for got in (np.from_dlpack(tensor), np.asarray(tensor)):
        assert got.dtype == sent.dtype
        assert np.array_equal(got, sent)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (1, 2, 3, 4, 5, 6, 1, 1)])
def test_every_shape_returns(uri: str, shape: tuple[int, ...], rig: Rig) -> None:
    sent = np.ones(shape, dtype=np.float32)
    got = np.from_dlpack(rig.pair(uri, echo).call(sent).tensor(0))
    assert got.shape == shape
    assert np.array_equal(got, sent)


def test_several_tensors_return(uri: str, rig: Rig) -> None:
    sent = [np.arange(5, dtype=np.int64), np.eye(3), np.array([True, False])]
    got = rig.pair(uri, echo).call(sent).tensors
    assert all(np.array_equal(np.from_dlpack(a), b) for a, b in zip(got, sent, strict=True))


def test_64_tensors_return_and_65_are_refused(uri: str, rig: Rig) -> None:
    channel = rig.pair(uri, echo)
    many = [np.array([i]) for i in range(64)]
    assert [int(np.asarray(one)[0]) for one in channel.call(many).tensors] == list(range(64))
    with pytest.raises(at.InvalidArgument, match="64"):
        channel.call([*many, many[0]])


def test_strided_and_fortran_arrays_are_sent_row_major(uri: str, rig: Rig) -> None:
    channel = rig.pair(uri, echo)
    base = np.arange(24.0).reshape(4, 6)
    for sent in (base[::2, 1::2], np.asfortranarray(base), base.T, base[::-1]):
        assert np.array_equal(np.from_dlpack(channel.call(sent).tensor(0)), sent)


def test_handler_sees_the_request_and_writes_the_response_in_place(uri: str, rig: Rig) -> None:
    def double(request: at.Exchange) -> None:
        x = np.from_dlpack(request.tensor(0))
        assert not x.flags.writeable
        np.multiply(x, 2, out=np.from_dlpack(request.response_tensor(x.shape, x.dtype)))
        request.reply()

    channel = rig.pair(uri, double)
    with channel.begin() as call:
        room = np.from_dlpack(call.tensor((2, 3), "float32"))
        room[:] = 7
        call.submit()
        response = call.wait()
    assert response.copies == 0
    assert np.array_equal(np.from_dlpack(response.tensor(0)), np.full((2, 3), 14, np.float32))


def test_answer_of_parts_of_its_own_room_is_what_they_were(uri: str, rig: Rig) -> None:
    first = np.arange(100, dtype=np.uint8)

    def room(request: at.Exchange) -> np.ndarray:
        whole = np.frombuffer(request.response, dtype=np.uint8)
        whole[:100] = first
        return whole[:100]

    handlers = {
        "piece": lambda request: room(request)[1:],
        "swapped": lambda request: [room(request)[50:], room(request)[:50]],
        "backwards": lambda request: room(request)[::-1],
        "columns": lambda request: room(request).reshape(10, 10).T,
        "bytes": lambda request: room(request).data[::-2],
    }
    channel = rig.connect(rig.serve(uri, handlers), slots=16)
    answers = {name: [np.from_dlpack(one) for one in channel.call(b"", target=name).tensors] for name in handlers}
    assert np.array_equal(answers["piece"][0], first[1:])
    assert np.array_equal(answers["swapped"][0], first[50:])
    assert np.array_equal(answers["swapped"][1], first[:50])
    assert np.array_equal(answers["backwards"][0], first[::-1])
    assert np.array_equal(answers["columns"][0], first.reshape(10, 10).T)
    assert bytes(channel.call(b"", target="bytes")) == bytes(first[::-2])


def test_gaps_between_tensors_have_no_bytes_of_other_messages(uri: str, rig: Rig) -> None:
    seen: list[bytes] = []

    def handler(request: at.Exchange) -> object:
        seen.append(bytes(request.data))
        if request.target == "placed":
            np.from_dlpack(request.response_tensor((1,), "uint8"))[:] = 1
            request.reply()
            return None
        return b"\xff" * 1000 if request.target == "old" else [np.ones(1, np.uint8), np.ones(2, np.uint8)]

    server = rig.serve(uri, {name: handler for name in ("old", "new", "placed")})
    channel = rig.connect(server, slots=1)
    for name in ("new", "placed"):
        channel.call(b"\xff" * 1000, target="old")
        if name == "new":
            answer = bytes(channel.call([np.ones(1, np.uint8), np.ones(2, np.uint8)], target=name))
        else:
            with channel.begin() as call:
                np.from_dlpack(call.tensor((1,), "uint8"))[:] = 1
                call.submit(target=name)
                answer = bytes(call.wait())
        for message in (seen[-1], answer):
            assert len(message) > 64
            assert set(message) <= {0, 1}


def test_array_keeps_its_slot(uri: str, rig: Rig) -> None:
    channel = rig.pair(uri, echo, slots=1)
    response = channel.call(np.arange(4))
    array = np.from_dlpack(response.tensor(0))
    with pytest.raises(BufferError, match="in use"):
        response.release()
    del response
    with pytest.raises(at.Overloaded, match="all 1 slots are held"):
        channel.call(b"next")
    assert array.tolist() == [0, 1, 2, 3]
    del array
    assert bytes(channel.call(b"next")) == b"next"


def test_array_outlives_channel_and_server(uri: str, rig: Rig) -> None:
    server = rig.serve(uri, echo)
    channel = rig.connect(server)
    array = np.from_dlpack(channel.call(np.arange(1000)).tensor(0))
    channel.close()
    server.stop()
    del channel, server
    gc.collect()
    assert array.sum() == 499_500


def test_read_only_is_said_and_a_legacy_capsule_refused(uri: str, rig: Rig) -> None:
    tensor = rig.pair(uri, echo).call(np.arange(3)).tensor(0)
    assert tensor.readonly
    assert tensor.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="read-only"):
        tensor.__dlpack__()
    with pytest.raises(BufferError, match="without a copy"):
        tensor.__dlpack__(max_version=(1, 1), copy=True)
    with pytest.raises(BufferError, match="stream"):
        tensor.__dlpack__(max_version=(1, 1), stream=2)
    assert memoryview(tensor).readonly


def test_unused_capsule_lets_its_slot_go(uri: str, rig: Rig) -> None:
    channel = rig.pair(uri, echo, slots=1)
    capsule = channel.call(np.arange(3)).tensor(0).__dlpack__(max_version=(1, 1))
    with pytest.raises(at.Overloaded):
        channel.call(b"")
    del capsule
    channel.call(b"")


class OnlyDlpack:
    """A tensor without the buffer protocol, as PyTorch's."""

    def __init__(self, array: np.ndarray, versioned: bool = True) -> None:
        self._array = array
        self._versioned = versioned

    def __dlpack__(self, **arguments: Any) -> object:
        if not self._versioned and arguments:
            raise TypeError("no arguments")
        return self._array.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


@pytest.mark.parametrize("versioned", [True, False])
def test_tensor_without_buffer_is_sent_by_dlpack(uri: str, versioned: bool, rig: Rig) -> None:
    sent = np.arange(6, dtype=np.int16).reshape(2, 3)
    got = rig.pair(uri, echo).call(OnlyDlpack(sent, versioned)).tensor(0)
    assert np.array_equal(np.from_dlpack(got), sent)


class Padded(OnlyDlpack):
    """Elements of 4 bits, with a byte for each."""

    def __dlpack__(self, **arguments: Any) -> object:
        capsule = super().__dlpack__(**arguments)
        managed = Managed.from_address(managed_of(capsule))
        managed.flags |= 4
        managed.content.bits = 4
        return capsule


def test_padded_tensor_of_small_elements_is_refused(uri: str, rig: Rig) -> None:
    channel = rig.pair(uri, echo)
    with pytest.raises(at.Unsupported, match="packed"):
        channel.call(Padded(np.arange(4, dtype=np.int8)))
    assert bytes(channel.call(b"goes on")) == b"goes on"


def test_received_tensor_can_be_sent_on(uri: str, rig: Rig) -> None:
    channel = rig.pair(uri, echo)
    first = channel.call(np.arange(3))
    assert np.from_dlpack(channel.call(first.tensor(0)).tensor(0)).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "data", [np.array(["text"]), np.array([object()]), np.array([1], dtype=">i4"), np.zeros(2, dtype="M8[s]"),
             np.zeros(1, dtype=[("a", "i4")]), OnlyDlpack(np.arange(6)[::2]), np.zeros((1,) * 9), [], [b"x"], 3, None,
             "text", object()])  # fmt: skip
def test_what_is_no_payload_is_refused(data: object, rig: Rig) -> None:
    channel = rig.pair(own_uri("local"), echo)
    with pytest.raises(at.InvalidArgument):
        channel.call(data)
    assert bytes(channel.call(b"goes on")) == b"goes on"


def test_response_array_of_bfloat16_says_to_take_dlpack(rig: Rig) -> None:
    def handler(request: at.Exchange) -> None:
        request.response_tensor((2,), "bfloat16")
        request.reply()

    tensor = rig.pair(own_uri("local"), handler).call(b"").tensor(0)
    assert (tensor.dtype, tensor.nbytes) == ("bfloat16", 4)
    with pytest.raises(BufferError, match="DLPack"):
        memoryview(tensor)
