"""The *unique key* of a message: property UNIQ_KEY, the same on the half and on the committed copy. Not the "msgId".

Shapes that exist (all upper-case hexadecimal):

- 32 digits: Java, C++ and this project's clients (MessageClientIDSetter, 4.0.0)
- 34 digits: gRPC clients of RocketMQ 5 (MessageIdCodec)
- 56 digits: Java clients on an IPv6 host (MessageClientIDSetter, 4.6.0)

A unique key is an opaque name. It is never decoded into an address, and no connection is made to what it spells.
"""

from __future__ import annotations

import re
import zlib
from typing import TypeGuard

from reconciler.errors import MalformedInput

#: Digits of the shortest and of the longest key that is accepted.
UNIQUE_KEY_DIGITS_MIN = 32
UNIQUE_KEY_DIGITS_MAX = 64

#: The property that carries the key (MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX).
UNIQUE_KEY_PROPERTY = "UNIQ_KEY"

_HEXADECIMAL = frozenset(b"0123456789ABCDEFabcdef")
_SHAPE = re.compile(r"(?:[0-9A-F]{2}){16,32}", re.ASCII)


def is_unique_key(text: object) -> TypeGuard[str]:
    """True for an even number of 32 to 64 upper-case hexadecimal digits."""
    return isinstance(text, str) and _SHAPE.fullmatch(text) is not None


def require_unique_key(text: object) -> str:
    """The key itself; raises MalformedInput for anything that has not the shape of one."""
    if isinstance(text, str) and _SHAPE.fullmatch(text):
        return text
    shown = repr(text)[:80]
    raise MalformedInput(f"{shown} is no unique key: expected 32 to 64 upper-case hexadecimal digits")


def member_of(unique_key: str) -> bytes:
    """The key's bytes, as Redis sets and history columns hold them: half the size of the text."""
    return bytes.fromhex(unique_key)


def key_of(member: bytes) -> str:
    """The key of a Redis member; the inverse of member_of."""
    return member.hex().upper()


def fault_of_member(member: bytes) -> str | None:
    """Why no announced key equals this member of a Redis set, for people; None: it may be a key."""
    digits = len(member)
    if digits >= UNIQUE_KEY_DIGITS_MIN and all(byte in _HEXADECIMAL for byte in member):
        return f"the text of a key: {digits} digits; expected the {digits // 2} bytes that they write out"
    fewest, most = UNIQUE_KEY_DIGITS_MIN // 2, UNIQUE_KEY_DIGITS_MAX // 2
    return None if fewest <= len(member) <= most else f"{len(member)} bytes; expected {fewest} to {most}"


def shard_of(unique_key: str, shards: int) -> int:
    """The shard of a key, which is also its queue in the unique-key topic: CRC-32 of the ASCII text."""
    return zlib.crc32(unique_key.encode("ascii")) % shards
