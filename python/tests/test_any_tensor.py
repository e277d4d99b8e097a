# SPDX-License-Identifier: Apache-2.0
"""Any shape, type and layout returns as it was sent."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import Rig, echo, own_uri
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as any_numpy
from test_tensors import TYPES

import accel_transport as at

# Bounded by examples, not by time; always the same ones, so that a run says the same again.
bounded = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

shapes = any_numpy.array_shapes(min_dims=0, max_dims=8, min_side=0, max_side=4)
arrays = any_numpy.arrays(st.sampled_from(TYPES).map(np.dtype), shapes)


@st.composite
def layouts(draw: st.DrawFn) -> np.ndarray:
    """An array as it is, or a view of it: transposed, with steps, backwards, or of one element repeated."""
    array = draw(arrays)
    if array.ndim == 0:
        return array
    steps = st.sampled_from([None, 1, 2, -1, -2])
    view = array[tuple(slice(None, None, draw(steps)) for _ in array.shape)].transpose(
        draw(st.permutations(range(array.ndim)))
    )
    return np.broadcast_to(view, (2, *view.shape)) if view.ndim < 8 and draw(st.booleans()) else view


@pytest.fixture(params=["local", "tcp"])
def channel(request: pytest.FixtureRequest, rig: Rig) -> at.Channel:
    return rig.pair(own_uri(request.param), echo, request_bytes=1 << 22, response_bytes=1 << 22)


def same(got: np.ndarray, sent: np.ndarray) -> bool:
    """Bit by bit: NaNs have payloads."""
    return got.shape == sent.shape and got.dtype == sent.dtype and got.tobytes() == sent.tobytes()


@bounded
@given(sent=layouts())
def test_any_array_returns(channel: at.Channel, sent: np.ndarray) -> None:
    tensor = channel.call(sent).tensor(0)
    assert tensor.shape == sent.shape
    assert same(np.from_dlpack(tensor), sent)
    assert same(np.asarray(tensor), sent)


@bounded
@given(sent=st.lists(layouts(), min_size=1, max_size=5))
def test_any_list_of_arrays_returns(channel: at.Channel, sent: list[np.ndarray]) -> None:
    got = [np.from_dlpack(one) for one in channel.call(sent).tensors]
    assert len(got) == len(sent)
    assert all(same(one, other) for one, other in zip(got, sent, strict=True))


@bounded
@example(shape=(0, 2, 2), dtype="bfloat16")
@given(shape=shapes, dtype=st.sampled_from([*TYPES, "bfloat16", "float8_e4m3fn", "float8_e5m2"]))
def test_room_for_any_tensor_is_as_large_as_it(channel: at.Channel, shape: tuple[int, ...], dtype: str) -> None:
    size = {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}.get(dtype) or np.dtype(dtype).itemsize
    with channel.begin() as call:
        room = call.tensor(shape, dtype)
        assert (room.shape, room.dtype, room.nbytes) == (shape, dtype, size * int(np.prod(shape, dtype=int)))
        del room
        call.submit()
        assert call.wait().tensor(0).shape == shape


@bounded
@given(data=st.binary(max_size=4096), step=st.sampled_from([1, 2, -1]))
def test_any_bytes_return(channel: at.Channel, data: bytes, step: int) -> None:
    assert bytes(channel.call(memoryview(data)[::step])) == data[::step]


@bounded
@given(
    shape=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=10).map(tuple),
    dtype=st.sampled_from(TYPES) | st.text(max_size=12),
)
def test_what_is_no_tensor_is_refused(channel: at.Channel, shape: tuple[int, ...], dtype: str) -> None:
    with channel.begin() as call:
        try:
            room = call.tensor(shape, dtype)
        except (at.InvalidArgument, at.MessageTooLarge):
            return
        assert room.nbytes <= channel.max_request_bytes
