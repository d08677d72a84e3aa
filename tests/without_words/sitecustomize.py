"""Every sentence is its code: on PYTHONPATH this file is loaded at the start of each Python process of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from reconciler.contract import stored_facts
from reconciler.words import catalogue

_entries = catalogue._of


def _codes(language: str, table: Mapping[str, Any], code: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    return ((name, name) for name, _ in _entries(language, table, code))


@contextmanager
def without_words() -> Iterator[None]:
    """In this process, until it is left."""
    _say(_codes)
    try:
        yield
    finally:
        _say(_entries)


def _say(entries: Callable[..., Iterator[tuple[str, str]]]) -> None:
    catalogue._of = entries
    catalogue.sentences.cache_clear()
    catalogue.sentence.cache_clear()
    stored_facts._told.cache_clear()  # it keeps the texts of facts


if __name__ == "sitecustomize":
    catalogue._of = _codes
