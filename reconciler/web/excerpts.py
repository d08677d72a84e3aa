"""The one limit for texts from outside, in documents and on pages."""

from __future__ import annotations

import unicodedata

from reconciler.contract.visible_text import excerpt, visible

#: Names and cursors are never longer. A longer text, such as an error, is complete in the ledger and on the command
#: line.
TEXT_CHARACTERS_MAX = 4_096
#: Deepest nesting of objects and lists that is written. Deeper objects are left out, because writing them would need an
#: endless stack.
DEPTH_MAX = 32
#: Unicode's classes of letters that run to the left.
_LEFTWARD = frozenset({"R", "AL"})
_TOO_DEEP = "… (cut: too deep)"


def shown(text: str) -> str:
    """Prepares a text for a page: cuts a long text, and shows invisible characters as their numbers."""
    return visible(excerpt(text, TEXT_CHARACTERS_MAX))


def isolated(text: str) -> str:
    """Isolates a text within our sentence. Otherwise letters that run to the left would change the order of the words
    around the text."""
    runs_left = any(unicodedata.bidirectional(character) in _LEFTWARD for character in text)
    return f"\u2068{text}\u2069" if runs_left else text


def excerpts(document: object, *, depth: int = 0) -> object:
    """Cuts every text of a JSON document that is above the limit. A mark says how long the text was."""
    if isinstance(document, str):
        return excerpt(document, TEXT_CHARACTERS_MAX)
    if not isinstance(document, dict | list | tuple):
        return document
    if depth >= DEPTH_MAX:
        return _TOO_DEEP
    if isinstance(document, dict):
        members = {name: excerpts(value, depth=depth + 1) for name, value in document.items()}
        return {excerpts(name): value for name, value in members.items()}
    return [excerpts(value, depth=depth + 1) for value in document]
