# SPDX-License-Identifier: Apache-2.0
"""Options as keyword arguments. They have the names and values of the URI's keys, but durations are seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict
from urllib.parse import quote

from ._errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

Poll = Literal["busy", "adaptive", "block"]


class _BothEnds(TypedDict, total=False):
    peer_timeout: float
    poll: Poll
    spin: float
    zerocopy: bool
    pacing: str
    device: str
    gid_index: int
    mtu: int
    ack_timeout: float
    ack_retries: int
    direct: bool
    key_file: str
    cert_file: str
    ca_file: str
    encrypt: Literal["auto", "required", "off"]
    insecure: bool


class ChannelOptions(_BothEnds, total=False):
    """Of `connect`, `Channel` and `ChannelPool`; docs/uris.md has what they mean. Durations are seconds."""

    slots: int
    request_bytes: int
    response_bytes: int
    connect_timeout: float
    connect_retry: float
    call_timeout: float
    quarantine_timeout: float
    close_timeout: float
    priority: Literal["normal", "high"]
    reconnect: bool
    backoff_min: float
    backoff_max: float
    server_key: str
    server_name: str


class ServerOptions(_BothEnds, total=False):
    """Of `Server`; docs/uris.md has what they mean. Durations are seconds."""

    workers: int
    max_sessions: int
    max_slots: int
    max_request_bytes: int
    max_response_bytes: int
    max_memory_bytes: int
    max_exchanges: int
    max_client_sessions: int
    max_client_memory_bytes: int
    max_connections: int
    max_client_connections: int
    max_handshakes: int
    memory: str
    streams: int
    priority_streams: int
    stream_per_session: bool
    pin_slots: bool
    drain_timeout: float
    data_port: int
    authorized_keys: str
    anonymous: bool


_durations = frozenset(
    key
    for options in (ChannelOptions, ServerOptions)
    for key, kind in options.__annotations__.items()
    if getattr(kind, "__forward_arg__", kind) == "float"
) | {"peer_timeout", "spin", "ack_timeout"}


def _text(key: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if key in _durations:
        if not isinstance(value, (int, float)) or not 0 <= value < 1e9:
            raise InvalidArgument(f"{key} is a number of seconds, not {value!r}")
        return f"{round(value * 1e9)}ns"
    if not isinstance(value, (int, str)):
        raise InvalidArgument(f"{key} has no value like {value!r}")
    return quote(str(value), safe="/:,.*-_")


def _keys(uri: str) -> set[str]:
    _, _, query = uri.partition("?")
    return {option.partition("=")[0] for option in query.split("&") if option}


def with_options(uris: list[str], options: Mapping[str, object]) -> list[str]:
    """The URIs, the first of them with these options as keys. A key that a URI has goes before the same option."""
    if not uris or not all(isinstance(uri, str) for uri in uris):
        raise InvalidArgument("a URI is a str such as 'tcp://host:5555'")
    taken = set().union(*map(_keys, uris))
    added = "&".join(f"{key}={_text(key, value)}" for key, value in options.items() if key not in taken)
    if not added:
        return uris
    joint = "&" if "?" in uris[0] else "?"
    return [uris[0] + joint + added, *uris[1:]]


def refuse_keys(uris: object, keys: tuple[str, ...]) -> None:
    """Of options that this module has to know."""
    for uri in uris if isinstance(uris, (list, tuple)) else ():
        for key in keys:
            if isinstance(uri, str) and key in _keys(uri):
                raise InvalidArgument(f"give {key} as a keyword argument, not in the URI")
