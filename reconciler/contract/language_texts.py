"""Texts in the languages of people: a room has one TOML file a language, with the same keys."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def language_texts(room: str, language: str) -> Mapping[str, str]:
    """Dotted key -> text, of the file of the language in the room's folder `languages`. `room`: name of the package."""
    document = files(room).joinpath("languages", f"{language}.toml").read_text("utf-8")
    return dict(_dotted(tomllib.loads(document), ""))


def _dotted(table: Mapping[str, Any], above: str) -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _dotted(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
