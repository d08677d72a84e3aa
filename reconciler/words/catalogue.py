"""The catalogue of one language: code -> sentence with placeholders. A test compares the catalogue with the codes and
their fields."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

ENGLISH = "en"
#: Code of a language -> the name of the language in that language.
LANGUAGES = {ENGLISH: "English", "zh": "中文"}


@cache
def sentences(language: str) -> Mapping[str, str]:
    """Returns code -> sentence in one of LANGUAGES. A sentence has a placeholder in braces for each field."""
    found: dict[str, str] = {}
    for text in _texts():
        found |= _of(language, tomllib.loads(text), ())
    return found


@cache
def sentence(code: str, language: str) -> str:
    """Returns the sentence of one code. Reading one line is faster than reading all entries, and most entries are one
    line."""
    entry = f"\n{code}.{language} = "
    for text in _texts():
        begin = text.find(entry)
        if begin >= 0:
            line = text[begin + 1 : text.index("\n", begin + 1)]
            return dict(_of(language, tomllib.loads(line), ()))[code]
    return sentences(language)[code]


@cache
def _texts() -> tuple[str, ...]:
    return tuple(file.read_text("utf-8") for file in files(__package__).iterdir() if file.name.endswith(".toml"))


def _of(language: str, table: Mapping[str, Any], code: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if name == language:
            yield ".".join(code), value
        elif isinstance(value, dict):
            yield from _of(language, value, (*code, name))
