"""How much of one text from outside is shown, in documents and on pages alike: the one bound of all of them."""

from __future__ import annotations

import unicodedata

from reconciler.contract.visible_text import excerpt, visible

#: No name is longer, and no cursor. What is longer, such as an error, is whole in the ledger and on the command line.
TEXT_CHARACTERS_MAX = 4_096
#: Objects and lists within each other. Deeper ones are left out, since writing them would need a stack without end.
DEPTH_MAX = 32
#: Unicode's classes of such letters.
_LEFTWARD = frozenset({"R", "AL"})
_TOO_DEEP = "… (cut: too deep)"


def shown(text: str) -> str:
    """For a page: of a long text the beginning, and what cannot be seen as its number."""
    return visible(excerpt(text, TEXT_CHARACTERS_MAX))


def isolated(text: str) -> str:
    """Within a sentence of ours: letters that run to the left turn nothing around them, figures included."""
    runs_left = any(unicodedata.bidirectional(character) in _LEFTWARD for character in text)
    return f"\u2068{text}\u2069" if runs_left else text


def excerpts(document: object, *, depth: int = 0) -> object:
    """A document of JSON in which no text is longer than the bound, but for the mark that says how long it was."""
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
