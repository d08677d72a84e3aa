"""Seeded damage: to bytes, to JSON values, to texts. The same chance gives the same damage, on every machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

#: Words of 32 bits that lengths and counts are compared with.
WORDS = (0, 1, 2, 255, 65_535, 65_536, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
NUMBERS = (
    0,
    -1,
    1,
    2**31 - 1,
    2**31,
    2**32,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    10**40,
    0.5,
    1e308,
    float("inf"),
    float("nan"),
)
TEXTS = (
    *("", " ", "\x00", "\r\n", "é", "\ud800", "\U0001f4b8", "%s%n", "../../etc/passwd", "a" * 3_000, "0x10", "1e5"),
    *("-1", "null", "99999999999999999999", "٣", "true", "[]", "{}", "{", '"', "'", "\\", "*", "||", "a||b", "://"),
    *("[::1]:1", "1.2.3.4:70000", "9" * 5_000, "²"),
)
LONGEST_BYTES = 64 * 1024


def damaged(data: bytes, chance: Random, others: Sequence[bytes] = ()) -> bytes:
    """One to four of: a bit, a byte, a word, a hole, an insertion, a cut, a repetition, a piece of another input."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(changed) + 1)
        match chance.randrange(8):
            case 0 if at < len(changed):
                changed[at] ^= 1 << chance.randrange(8)
            case 1 if at < len(changed):
                changed[at] = chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))
            case 2:
                changed[at : at + 4] = chance.choice(WORDS).to_bytes(4, "big")
            case 3:
                del changed[at : at + chance.randint(1, 20)]
            case 4:
                changed[at:at] = chance.randbytes(chance.randint(1, 20))
            case 5:
                del changed[at:]
            case 6 if others:
                other = chance.choice(others)
                start = chance.randrange(len(other) + 1)
                changed[at:at] = other[start : start + chance.randint(1, 200)]
            case _:
                changed += changed[at : at + chance.randint(1, 60)] * chance.choice((1, 1, 2, 50))
    return bytes(changed[:LONGEST_BYTES])


def any_value(chance: Random) -> Any:
    """A JSON value that a reader may not expect."""
    match chance.randrange(6):
        case 0:
            return chance.choice(NUMBERS)
        case 1:
            return chance.choice((None, True, False))
        case 2:
            return [chance.choice(TEXTS)] * chance.choice((0, 1, 2, 600))
        case 3:
            return {chance.choice(TEXTS): chance.choice(NUMBERS) for _ in range(chance.choice((0, 1, 3)))}
        case 4:
            return nested(chance.choice((3, 40, 400)), chance)
        case _:
            return chance.choice(TEXTS)


def nested(depth: int, chance: Random) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if chance.random() < 0.5 else {"a": value}
    return value


def damaged_value(value: Any, chance: Random) -> Any:
    """One place of a JSON value replaced, removed or repeated."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        name = chance.choice(sorted(value))
        changed = dict(value)
        match chance.randrange(6):
            case 0:
                del changed[name]
            case 1:
                changed[chance.choice(TEXTS)] = changed.pop(name)
            case _:
                changed[name] = damaged_value(value[name], chance)
        return changed
    if isinstance(value, list) and value and chance.random() < 0.9:
        at = chance.randrange(len(value))
        # Long lists of short things: repeated lists of repeated lists would fill the memory before any target is asked.
        many = 600 if len(repr(value[at])) < 500 else 2
        repeated = [value[at]] * chance.choice((0, 2, many))
        return [
            *value[:at],
            *(repeated if chance.random() < 0.3 else [damaged_value(value[at], chance)]),
            *value[at + 1 :],
        ]
    return any_value(chance)


def damaged_json(data: bytes, chance: Random) -> bytes:
    """A document of the same shape with one to three places damaged; bytes that are no JSON are damaged as bytes."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return damaged(data, chance)
    for _ in range(chance.randint(1, 3)):
        value = damaged_value(value, chance)
    text = json.dumps(value, ensure_ascii=chance.random() < 0.5)
    return text.encode("utf-8", "surrogatepass")[:LONGEST_BYTES]


def damaged_lines(data: bytes, chance: Random, values: Sequence[str]) -> bytes:
    """Lines of `name = value` with values changed, lines doubled, removed and moved."""
    lines = data.decode("utf-8", "replace").splitlines()
    for _ in range(chance.randint(1, 4)):
        if not lines:
            break
        at = chance.randrange(len(lines))
        match chance.randrange(6):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, chance.choice(lines))
            case 2:
                lines.insert(at, chance.choice(TEXTS[:12]))
            case _:
                name, separator, _old = lines[at].partition(" = ")
                if separator:
                    lines[at] = f"{name} = {chance.choice(values)}"
    return "\n".join(lines).encode("utf-8", "surrogatepass")[:LONGEST_BYTES]
