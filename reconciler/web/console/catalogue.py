"""Texts of the catalogue on pages: escaped, and what is filled in is made visible."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from markupsafe import Markup, escape

from reconciler.web.excerpts import isolated, shown
from reconciler.words import sentences

#: What the texts mark as a command of the shell.
_COMMAND = re.compile("`([^`]+)`")


def with_commands(text: str) -> Markup:
    """The text, escaped, with commands of the shell marked as such."""
    return Markup(_COMMAND.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - it is escaped


class Catalogue:
    """The texts of one language. Immutable."""

    def __init__(self, language: str, texts: Mapping[str, str]) -> None:
        self.language = language
        self.texts = texts

    def text(self, key: str, /, **values: object) -> Markup:
        """A text with its places filled; what is filled in is bounded, made visible, isolated and escaped.

        Raises KeyError for a key that is not there: a test compares templates and catalogue.
        """
        filled = {name: isolated(shown(value)) if type(value) is str else value for name, value in values.items()}
        return with_commands(self.texts[key]).format(**filled)

    def word(self, family: str, value: object) -> Markup:
        """The word for one value of a closed list; a value that is none of them, as in a damaged row, is shown."""
        key = f"{family}.{value}"
        return self.text(key) if key in self.texts else escape(shown(str(value)))


@cache
def catalogue_of(language: str) -> Catalogue:
    """That of one of LANGUAGES."""
    return Catalogue(language, sentences(language))
