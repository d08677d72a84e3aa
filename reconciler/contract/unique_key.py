"""The *unique key* of a message: its property UNIQ_KEY, which is equal on the half and on the committed copy. The
"msgId" is another id.

Clients write these keys:

- 32 digits: remoting clients (MessageClientIDSetter of Java, 4.0.0). Clients of Java, C++, Node and this project write
  upper case. Keys of Go (rocketmq-client-go 2.1.2, primitive.CreateUniqID) end in lower case
- 34 digits: gRPC clients of RocketMQ 5 (MessageIdCodec); Rust writes lower case
- 56 digits: Java clients on an IPv6 host (MessageClientIDSetter, 4.6.0)

A unique key is an opaque name: 16 to 64 of the characters 0-9, A-Z, a-z, "_" and "-". Keys that differ in case are two
keys. A key is never decoded into an address, and no process connects to an address in a key.

The *member* of a key is its form in Redis sets and in columns of the history. Each key has one member, and no two keys
have the same member:

- the member of a key of 32 to 64 upper-case hexadecimal digits, with an even number of digits, is the 16 to 32 bytes
  that the digits spell
- the member of every other key is a zero byte and the key's ASCII text, followed by zero bytes up to a length of 33
  bytes: 33 to 65 bytes
"""

from __future__ import annotations

import re
import zlib
from binascii import unhexlify
from typing import TypeGuard

from reconciler.errors import MalformedInput

#: Number of characters of the shortest accepted key, and of the longest.
UNIQUE_KEY_CHARACTERS_MIN = 16
UNIQUE_KEY_CHARACTERS_MAX = 64
#: The form of a key, in words for people.
UNIQUE_KEY_SHAPE = f'{UNIQUE_KEY_CHARACTERS_MIN} to {UNIQUE_KEY_CHARACTERS_MAX} letters, digits, "_" or "-"'

#: The property that carries the key (MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX).
UNIQUE_KEY_PROPERTY = "UNIQ_KEY"

#: Least and most bytes of a member that is digits, and then of a member that is text.
DIGITS_BYTES_MIN, DIGITS_BYTES_MAX = 16, 32
TEXT_BYTES_MIN, TEXT_BYTES_MAX = 33, 1 + UNIQUE_KEY_CHARACTERS_MAX

#: UNIQUE_KEY_SHAPE for the whole text, as a regular expression.
UNIQUE_KEY_PATTERN = "[0-9A-Za-z_-]{16,64}"
_SHAPE = re.compile(UNIQUE_KEY_PATTERN)
_KEY_BYTES = frozenset(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_-")
_HEXADECIMAL = frozenset(b"0123456789ABCDEFabcdef")
#: The prefix of the text for bytes that are the member of no key. No key contains the colon.
_NO_KEY = "bytes:"


def is_unique_key(text: object) -> TypeGuard[str]:
    """Returns True for 16 to 64 of the characters that a key may have."""
    return isinstance(text, str) and _SHAPE.fullmatch(text) is not None


def require_unique_key(text: object) -> str:
    """Returns the key itself. Raises MalformedInput for any text without the form of a key."""
    if is_unique_key(text):
        return text
    raise MalformedInput(f"{repr(text)[:80]} is no unique key: expected {UNIQUE_KEY_SHAPE}")


def is_digits(unique_key: str) -> bool:
    """Returns True if the key's member is the bytes that the key spells. Releases up to 0.2.0 know only such keys."""
    return _spelled(unique_key) is not None


def in_other_case(unique_key: str) -> tuple[str, ...]:
    """Returns the forms of this key that a client may write in another case: a first part in one case, and the rest in
    the other case. At most two forms per character."""
    upper, lower = unique_key.upper(), unique_key.lower()
    places = range(len(unique_key) + 1)
    found = dict.fromkeys(one[:n] + rest[n:] for one, rest in ((upper, lower), (lower, upper)) for n in places)
    found.pop(unique_key, None)
    return tuple(found)


def member_of(unique_key: str) -> bytes:
    """Returns the key's bytes, in the form of Redis sets and history columns. key_of is the inverse."""
    spelled = _spelled(unique_key)
    if spelled is not None:
        return spelled
    if unique_key.startswith(_NO_KEY):
        return unhexlify(unique_key.removeprefix(_NO_KEY))
    return (b"\0" + unique_key.encode("ascii")).ljust(TEXT_BYTES_MIN, b"\0")


def _spelled(unique_key: str) -> bytes | None:
    """Returns the 16 to 32 bytes that upper-case digits spell. None: the text spells no such bytes. This function runs
    for every consumed message."""
    if unique_key != unique_key.upper():
        return None
    try:
        spelled = unhexlify(unique_key)
    except ValueError:
        return None
    return spelled if DIGITS_BYTES_MIN <= len(spelled) <= DIGITS_BYTES_MAX else None


def key_of(member: bytes) -> str:
    """Returns the key of a member. For other bytes, returns a text that is no key; member_of turns this text into the
    bytes again."""
    if DIGITS_BYTES_MIN <= len(member) <= DIGITS_BYTES_MAX:
        return member.hex().upper()
    text = _text_of(member)
    return f"{_NO_KEY}{member.hex().upper()}" if text is None else text


def is_member(member: bytes) -> bool:
    """Returns True if the bytes are the member of a key. A client with the right to SADD can write any bytes into a
    set."""
    return DIGITS_BYTES_MIN <= len(member) <= DIGITS_BYTES_MAX or _text_of(member) is not None


def _text_of(member: bytes) -> str | None:
    """Returns the key of a member that holds text. None: the bytes are no such member."""
    if not TEXT_BYTES_MIN <= len(member) <= TEXT_BYTES_MAX or member[0]:
        return None
    text = (member[1:].rstrip(b"\0") if len(member) == TEXT_BYTES_MIN else member[1:]).decode("latin-1")
    return text if is_unique_key(text) and not is_digits(text) else None


def fault_of_member(member: bytes) -> str | None:
    """Returns, for people, why no announced key equals this member of a Redis set. None: the member may be a key.

    Thirty-two bytes that are all hexadecimal digits are a key's text, written by mistake. No client makes a key that
    spells such bytes.
    """
    length = len(member)
    is_text = length == DIGITS_BYTES_MAX and all(byte in _HEXADECIMAL for byte in member)
    if is_text or (TEXT_BYTES_MIN <= length < TEXT_BYTES_MAX and all(byte in _KEY_BYTES for byte in member)):
        return f"the text of a key: {length} characters; expected its bytes, as docs/reference/redis-keys.md has them"
    if is_member(member):
        return None
    expected = f"{DIGITS_BYTES_MIN} to {DIGITS_BYTES_MAX} bytes, or a zero byte and {UNIQUE_KEY_SHAPE}"
    return f"{length} bytes; expected {expected}"


def shard_of(unique_key: str, shards: int) -> int:
    """Returns the shard of a key, which is also the key's queue in the unique-key topic: CRC-32 of the ASCII text."""
    return zlib.crc32(unique_key.encode("ascii")) % shards
