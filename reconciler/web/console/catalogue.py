"""Texts of the catalogue on pages. They are escaped, and their values are made visible."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from markupsafe import Markup, escape

from reconciler.web.excerpts import isolated, shown
from reconciler.words import sentences

#: Mark of a shell command in the texts.
_COMMAND = re.compile("`([^`]+)`")


def with_commands(text: str) -> Markup:
    """Escapes the text, and marks shell commands in it."""
    return Markup(_COMMAND.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - it is escaped


class Catalogue:
    """The texts of one language. Immutable."""

    def __init__(self, language: str, texts: Mapping[str, str]) -> None:
        self.language = language
        self.texts = texts

    def text(self, key: str, /, **values: object) -> Markup:
        """Fills the places of a text. Values are limited, made visible, isolated and escaped.

        Raises KeyError for an unknown key; a test compares templates and catalogue.
        """
        filled = {name: isolated(shown(value)) if type(value) is str else value for name, value in values.items()}
        return with_commands(self.texts[key]).format(**filled)

    def word(self, family: str, value: object) -> Markup:
        """Returns the word for a value of a closed list. A value outside the list, as in a damaged row, is shown
        itself."""
        key = f"{family}.{value}"
        return self.text(key) if key in self.texts else escape(shown(str(value)))


@cache
def catalogue_of(language: str) -> Catalogue:
    """Returns the catalogue of one of LANGUAGES."""
    return Catalogue(language, sentences(language))
