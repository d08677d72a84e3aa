"""The end of a listing's page, as an opaque text for the next request. The text contains a version and the listing's
name."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

from reconciler.errors import InvalidValue
from reconciler.telling.ports.paging import Position

#: A cursor of another version is refused, because its position may mean something else.
VERSION = 1
#: A position has at most three names of 160 characters, of four bytes each in UTF-8.
CURSOR_CHARACTERS_MAX = 4_096
#: Base64 for addresses (RFC 4648, 5), without padding.
CURSOR_PATTERN = "^[A-Za-z0-9_-]*$"


def cursor_of(listing: str, end: Position | None) -> str | None:
    """Makes the cursor. None: there is no next page."""
    if end is None:
        return None
    values = [{"hex": value.hex()} if isinstance(value, bytes) else value for value in end]
    text = json.dumps([VERSION, listing, values], separators=(",", ":"), ensure_ascii=False)
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def position_of(listing: str, cursor: str) -> Position:
    """Reads a cursor. Raises InvalidValue for a text that cursor_of() did not make for this listing."""
    remedy = "take next_cursor of the answer before as it is, or leave it out to begin again"
    try:
        bounded = cursor[: CURSOR_CHARACTERS_MAX + 1].encode("ascii")
        version, of, values = json.loads(urlsafe_b64decode(bounded + b"=" * (-len(bounded) % 4)))
        position = tuple(map(_value, values))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InvalidValue("cursor", f"{cursor[:40]}...", remedy) from error
    if (version, of) != (VERSION, listing) or len(cursor) > CURSOR_CHARACTERS_MAX:
        raise InvalidValue("cursor", f"{cursor[:40]}...", remedy)
    return position


def _value(value: Any) -> int | float | str | bytes:
    """Reads one value. Raises what json.loads() raises, and TypeError."""
    if isinstance(value, dict):
        return bytes.fromhex(value["hex"])
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError("no part of a position")
    return value
