"""Parses the JSON that fastjson writes. This JSON may have integer keys without quotes, and objects as keys
(offsetTable of 202 and 208).

Name servers before 4.9.4 answer routes in this dialect. Cluster information and statistics use it in every version. An
object that is a key becomes a tuple of its (name, value) pairs, sorted by name.
"""

from __future__ import annotations

import json
import re
from typing import TypeAlias

from reconciler.errors import ProtocolViolation

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[JsonKey, JsonValue] | None"
JsonKey: TypeAlias = "str | int | tuple[tuple[str, object], ...]"

#: Deepest nesting that is parsed, which is more than any reply of a broker has. The limit keeps a hostile peer from
#: exhausting the stack.
MAXIMUM_DEPTH = 32

_read_text = json.JSONDecoder(strict=False).raw_decode
_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?\d{1,20}(\.\d{1,20})?([eE][+-]?\d{1,3})?")
_LITERALS: tuple[tuple[str, bool | None], ...] = (("true", True), ("false", False), ("null", None))


def parse_tolerant_json(data: bytes) -> JsonValue:
    """Parses the value in a reply's body. Raises only ProtocolViolation for a body that is no JSON."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ProtocolViolation("a JSON body is no UTF-8") from error
    try:
        parsed: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return _Parser(text).whole()
    return parsed


def parse_object(data: bytes) -> dict[JsonKey, JsonValue]:
    """Parses the object in a reply's body. Raises ProtocolViolation for any other value, and for a body that is no
    JSON."""
    parsed = parse_tolerant_json(data)
    if not isinstance(parsed, dict):
        raise ProtocolViolation("a JSON body is no object")
    return parsed


class _Parser:
    """A recursive-descent parser with a limited depth. One object parses one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def whole(self) -> JsonValue:
        value = self._value(0)
        self._skip_space()
        if self._at != len(self._text):
            raise self._violation("more after the end")
        return value

    def _value(self, depth: int) -> JsonValue:
        if depth > MAXIMUM_DEPTH:
            raise self._violation(f"nested deeper than {MAXIMUM_DEPTH}")
        self._skip_space()
        character = self._text[self._at : self._at + 1]
        if character == "{":
            return self._object(depth)
        if character == "[":
            return self._array(depth)
        if character == '"':
            return self._string()
        for literal, value in _LITERALS:
            if self._text.startswith(literal, self._at):
                self._at += len(literal)
                return value
        return self._number()

    def _object(self, depth: int) -> JsonValue:
        found: dict[JsonKey, JsonValue] = {}
        self._at += 1
        if self._took("}"):
            return found
        while True:
            key = _as_key(self._value(depth + 1))
            if key is None:
                raise self._violation("neither text nor number nor a flat object as key")
            if not self._took(":"):
                raise self._violation("no colon after a key")
            found[key] = self._value(depth + 1)
            if self._took("}"):
                return found
            if not self._took(","):
                raise self._violation("no comma in an object")

    def _array(self, depth: int) -> JsonValue:
        found: list[JsonValue] = []
        self._at += 1
        if self._took("]"):
            return found
        while True:
            found.append(self._value(depth + 1))
            if self._took("]"):
                return found
            if not self._took(","):
                raise self._violation("no comma in an array")

    def _string(self) -> str:
        try:
            text, self._at = _read_text(self._text, self._at)
        except ValueError as error:
            raise self._violation("a text without end") from error
        return str(text)

    def _number(self) -> JsonValue:
        match = _NUMBER.match(self._text, self._at)
        if match is None:
            raise self._violation("neither value nor end")
        self._at = match.end()
        text = match.group()
        return float(text) if match.group(1) or match.group(2) else int(text)

    def _took(self, character: str) -> bool:
        self._skip_space()
        if self._text.startswith(character, self._at):
            self._at += 1
            return True
        return False

    def _skip_space(self) -> None:
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _violation(self, what: str) -> ProtocolViolation:
        return ProtocolViolation(f"bad JSON at character {self._at}: {what}")


def _as_key(value: JsonValue) -> JsonKey | None:
    if isinstance(value, str) or type(value) is int:
        return value
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        pairs = ((name, part) for name, part in value.items() if isinstance(name, str))
        if not any(isinstance(part, list | dict) for part in value.values()):
            return tuple(sorted(pairs, key=lambda pair: pair[0]))
    return None
