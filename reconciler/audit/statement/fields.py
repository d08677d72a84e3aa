"""Finds the fields in which a statement differs from the outputs beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


def altered_fields(written: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the path of every value in which two documents differ, with a sentence about the difference."""
    have, want = dict(_leaves(written)), dict(_leaves(expected))
    for path in sorted(have.keys() | want.keys()):
        if path not in want:
            yield path, f"says {_shown(have[path])}, which the outputs do not say"
        elif path not in have:
            yield path, f"is missing; the outputs say {_shown(want[path])}"
        elif have[path] != want[path] or type(have[path]) is not type(want[path]):
            yield path, f"says {_shown(have[path])}, the outputs say {_shown(want[path])}"


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields every value that contains no other value, with the value's path (RFC 6901 without escapes).

    The paths are sorted by name.
    """
    if isinstance(value, dict) and value:
        for name in sorted(value):
            yield from _leaves(value[name], f"{path}/{name}")
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}/{index}")
    else:
        yield path, value


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."
