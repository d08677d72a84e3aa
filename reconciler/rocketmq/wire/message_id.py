"""Offset message ids, which are the store host and the commit-log offset in hex (MessageDecoder.createMessageId,
decodeMessageId).

An id has 32 digits for IPv4, and 56 for IPv6. A unique key may look like an id, so never connect to an address that was
decoded from a unique key.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

from reconciler.errors import MalformedInput

_V4 = struct.Struct(">4siq")
_V6 = struct.Struct(">16siq")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetMessageId:
    """The place of a stored record. `host` is the broker's brokerIP1. The client may be unable to reach this
    address."""

    host: str
    port: int
    commit_log_offset: int


def encode_offset_message_id(host: str, port: int, commit_log_offset: int) -> str:
    """Encodes an id in upper-case hex. Raises MalformedInput if the host is no IP address."""
    try:
        if ":" in host:
            return _V6.pack(socket.inet_pton(socket.AF_INET6, host), port, commit_log_offset).hex().upper()
        return _V4.pack(socket.inet_pton(socket.AF_INET, host), port, commit_log_offset).hex().upper()
    except (OSError, struct.error) as error:
        raise MalformedInput(f"no offset message id for {host!r}:{port} at {commit_log_offset}") from error


def decode_offset_message_id(text: str) -> OffsetMessageId:
    """Decodes an id. Raises MalformedInput for any other text, and for an impossible port or offset."""
    try:
        data = bytes.fromhex(text)
    except ValueError as error:
        raise MalformedInput(f"{text[:80]!r} is no offset message id") from error
    if len(data) == _V4.size and len(text) == 2 * _V4.size:
        packed, port, offset = _V4.unpack(data)
        host = socket.inet_ntop(socket.AF_INET, packed)
    elif len(data) == _V6.size and len(text) == 2 * _V6.size:
        packed, port, offset = _V6.unpack(data)
        host = socket.inet_ntop(socket.AF_INET6, packed)
    else:
        raise MalformedInput(f"{text[:80]!r} is no offset message id: expected 32 or 56 hexadecimal digits")
    if not 0 < port <= 65_535 or offset < 0:
        raise MalformedInput(f"{text!r} is no offset message id: port {port}, offset {offset}")
    return OffsetMessageId(host=host, port=port, commit_log_offset=offset)
