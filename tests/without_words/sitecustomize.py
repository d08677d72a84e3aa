"""Every sentence is its code: on PYTHONPATH this file is loaded at the start of each Python process of a test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from reconciler.words import catalogue

_entries = catalogue._of


def _codes(language: str, table: Mapping[str, Any], code: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    return ((name, name) for name, _ in _entries(language, table, code))


@contextmanager
def without_words() -> Iterator[None]:
    """In this process, until it is left."""
    catalogue._of = _codes
    catalogue.sentences.cache_clear()
    try:
        yield
    finally:
        catalogue._of = _entries
        catalogue.sentences.cache_clear()


if __name__ == "sitecustomize":
    catalogue._of = _codes
