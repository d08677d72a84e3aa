"""The catalogue: code -> sentence with places, of one language. A test compares it with the codes and their fields."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

ENGLISH = "en"
#: Code -> its own name.
LANGUAGES = {ENGLISH: "English", "zh": "中文"}


@cache
def sentences(language: str) -> Mapping[str, str]:
    """Code -> sentence in one of LANGUAGES, with a place in braces for each field."""
    found: dict[str, str] = {}
    for file in sorted(files(__package__).iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            found |= _of(language, tomllib.loads(file.read_text("utf-8")), ())
    return found


def _of(language: str, table: Mapping[str, Any], code: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if name == language:
            yield ".".join(code), value
        elif isinstance(value, dict):
            yield from _of(language, value, (*code, name))
