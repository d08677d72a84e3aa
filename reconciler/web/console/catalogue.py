"""Texts of the catalogue on pages. The texts are escaped. Invisible characters in their values are shown as numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from markupsafe import Markup, escape

from reconciler.web.excerpts import isolated, shown
from reconciler.words import sentences

#: Finds the shell commands in a text of the catalogue.
_COMMAND = re.compile("`([^`]+)`")


def with_commands(text: str) -> Markup:
    """Escapes the text, and marks the shell commands in it."""
    return Markup(_COMMAND.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - it is escaped


class Catalogue:
    """The texts of one language. Immutable."""

    def __init__(self, language: str, texts: Mapping[str, str]) -> None:
        self.language = language
        self.texts = texts

    def text(self, key: str, /, **values: object) -> Markup:
        """Returns a text with its placeholders filled. Values are limited, made visible, isolated and escaped.

        Raises KeyError for an unknown key. A test compares the keys in templates with the catalogue.
        """
        filled = {name: isolated(shown(value)) if type(value) is str else value for name, value in values.items()}
        return with_commands(self.texts[key]).format(**filled)

    def word(self, family: str, value: object) -> Markup:
        """Returns the word for a value of a closed list. For any other value, as in a damaged row, returns the value
        itself."""
        key = f"{family}.{value}"
        return self.text(key) if key in self.texts else escape(shown(str(value)))


@cache
def catalogue_of(language: str) -> Catalogue:
    """Returns the catalogue of one of LANGUAGES."""
    return Catalogue(language, sentences(language))
