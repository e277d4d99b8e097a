# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
from conftest import PATIENCE, Rig, echo, own_uri

import accel_transport as at
from accel_transport._options import with_options


@pytest.mark.parametrize(
    ("uris", "options", "expected"),
    [
        (["tcp://a:1"], {}, ["tcp://a:1"]),
        (["tcp://a:1"], {"slots": 4, "insecure": True}, ["tcp://a:1?slots=4&insecure=true"]),
        (["tcp://a:1?slots=8"], {"slots": 4, "call_timeout": 0.1}, ["tcp://a:1?slots=8&call_timeout=100000000ns"]),
        (["tcp://a:1", "shm://b?insecure=true"], {"insecure": False, "workers": 2}, None),
        (["tcp://a:1"], {"key_file": "/etc/a&b?.key"}, ["tcp://a:1?key_file=/etc/a%26b%3F.key"]),
        (["tcp://a:1"], {"spin": 0, "peer_timeout": 1}, ["tcp://a:1?spin=0ns&peer_timeout=1000000000ns"]),
        (["tcp://a:1"], {"memory": "cuda:0"}, ["tcp://a:1?memory=cuda:0"]),
    ],
)
def test_options_become_keys(uris: list[str], options: dict[str, object], expected: list[str] | None) -> None:
    expected = expected or ["tcp://a:1?workers=2", "shm://b?insecure=true"]
    assert with_options(uris, options) == expected


@pytest.mark.parametrize("options", [{"call_timeout": "1s"}, {"call_timeout": -1}, {"slots": 1.5}, {"slots": None}])
def test_values_of_other_types_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(at.InvalidArgument, match=next(iter(options))):
        at.Channel("local://x", **options)


def test_misspelt_option_lists_the_valid_ones(rig: Rig) -> None:
    server = rig.serve(own_uri("local"), echo)
    with pytest.raises(at.InvalidArgument, match="slots"):
        at.Channel(server.endpoints[0], slot=3)  # type: ignore[call-arg]


def test_options_take_effect(uri: str, rig: Rig) -> None:
    channel = rig.pair(uri, echo, slots=3, request_bytes=8192, response_bytes=4096)
    assert (channel.slots, channel.max_request_bytes, channel.max_response_bytes) == (3, 8192, 4096)


def test_server_listens_on_several_uris(rig: Rig) -> None:
    with at.Server([own_uri("shm"), own_uri("local")], echo, max_slots=2) as server:
        for endpoint in server.endpoints:
            with at.connect(endpoint, slots=2, call_timeout=PATIENCE, peer_timeout=PATIENCE) as channel:
                assert bytes(channel.call(b"x")) == b"x"
    for uris in ([], [3], "") if True else ():
        with pytest.raises((at.InvalidArgument, at.Unsupported)):
            at.Server(uris, echo)  # type: ignore[arg-type]
