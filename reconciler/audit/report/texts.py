"""Texts of the page in one language, from the catalogue (reconciler/words/audit_report.toml).

Names, codes and numbers are the same in each language. Sentences of the result (why a rule was not checked, remarks,
messages) are signed in English. If a sentence has a code, a page says the sentence in its own language. Otherwise the
page repeats the English sentence.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

from reconciler.audit.report.markup import Markup, join, tag
from reconciler.audit.report.words import number
from reconciler.audit.result.sentences import Sentence
from reconciler.words.catalogue import ENGLISH, LANGUAGES, sentences

#: Languages that a report may have.
REPORT_LANGUAGES = tuple(LANGUAGES)


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts in one of LANGUAGES."""

    language: str = ENGLISH
    _sentences: Mapping[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_sentences", _sentences_of(self.language))

    def __call__(self, code: str, /, **places: object) -> str:
        """Returns the text of a code. Values fill the placeholders of the text."""
        return self._sentences[code].format(**places)

    def marked(self, code: str, /, **places: object) -> Markup:
        """Returns the text of a code as Markup. An element may fill a placeholder."""
        parts = string.Formatter().parse(self._sentences[code])
        filled = ((text, None if name is None else places[name]) for text, name, _, _ in parts)
        return join(part for pair in filled for part in pair if part != "")

    def counted(self, value: int, what: str) -> str:
        """Counts things in words: "1 key", "2 keys"."""
        return self(f"count.{what}.one" if value == 1 else f"count.{what}.many", number=number(value))

    def listed(self, parts: Iterable[str]) -> str:
        """Joins names to a list."""
        return sentences(self.language)["words.between-names"].join(parts)

    def fact(self, name: str) -> str:
        """Returns the words for a fact of a finding's evidence.

        If a fact has no text, the words are the fact's own name.
        """
        return self._sentences.get(f"fact.{name}", name.removesuffix("_ms").replace("_", " "))

    def quoted(self, sentence: str) -> str | Markup:
        """Returns a sentence of the result in the page's language. A sentence without a code stays English."""
        if self.language == ENGLISH or isinstance(sentence, Sentence):
            return self._said(sentence)
        return tag("span", sentence, lang=ENGLISH)

    def _said(self, value: object) -> str:
        if self.language == ENGLISH or not isinstance(value, Sentence):
            return str(value)
        return self(f"said.{value.code}", **{name: self._said(one) for name, one in value.fields.items()})


@cache
def _sentences_of(language: str) -> Mapping[str, str]:
    """Reads the texts of the page. A code has no prefix `report.` here."""
    found = sentences(language).items()
    return {code.removeprefix("report."): text for code, text in found if code.startswith("report.")}
