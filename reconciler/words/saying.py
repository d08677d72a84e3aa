"""Says facts in words. The placeholders in the sentence of a code are filled with the values of the fact's fields."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from reconciler.clock import utc_text
from reconciler.contract.facts import COUNTED_MAX, Fact, Field, FieldValue
from reconciler.contract.stored_facts import FACTS, fact_in
from reconciler.words.catalogue import ENGLISH, sentence

#: Kinds of fields that are times -> the smallest unit of time that is shown.
TIMES: Mapping[Field, Literal["seconds", "milliseconds"]] = {
    Field.TIME: "seconds",
    Field.EXACT_TIME: "milliseconds",
    Field.EXACT_TIMES: "milliseconds",
}


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the text of a fact."""

    text: str
    #: The field whose value the piece shows. None: the piece is the catalogue's own text.
    field: Field | None = None
    #: The value of the field, if the field is one of TIMES.
    at_ms: int | None = None


def said(fact: Fact, language: str = ENGLISH) -> str:
    """Returns the fact as plain text. Values of fields are unchanged. The caller who shows the text must make special
    characters visible."""
    return "".join(piece.text for piece in pieces(fact, language))


def told(values: Mapping[str, object], language: str = ENGLISH) -> dict[str, object]:
    """Returns stored values for people. Each text that has a fact becomes the sentence of the fact in the language.
    Codes are left out."""
    found: dict[str, object] = {}
    for name, value in values.items():
        fact = fact_in(values, name)
        if fact is not None:
            found[name] = said(fact, language)
        elif name != FACTS:
            found[name] = told(value, language) if isinstance(value, Mapping) else value
    return found


def said_and_coded(
    named: Mapping[str, Sequence[Fact]],
) -> tuple[dict[str, list[str]], dict[str, list[dict[str, object]]]]:
    """Returns lists of facts by their names, for JSON. Each list comes as English sentences, and as codes with
    fields."""
    sentences_of = {name: [said(fact) for fact in facts] for name, facts in named.items()}
    return sentences_of, {name: [fact.as_dict() for fact in facts] for name, facts in named.items()}


def pieces(fact: Fact, language: str = ENGLISH) -> Iterator[Piece]:
    """Returns the pieces of the fact in order. Pieces of facts within this fact are included."""
    kinds, values = fact.code.fields, fact.fields
    for text, place in _parts(sentence(fact.code.name, language)):
        if text:
            yield Piece(text)
        if place is not None:
            yield from _filled(kinds[place], values[place], language)


@cache
def _parts(sentence: str) -> tuple[tuple[str, str | None], ...]:
    """Returns each text of the sentence with the field that follows it."""
    return tuple((text, place) for text, place, _, _ in string.Formatter().parse(sentence))


def _filled(kind: Field, value: FieldValue, language: str) -> Iterator[Piece]:
    if isinstance(value, Fact):
        yield from pieces(value, language)
    elif isinstance(value, tuple):
        for number, one in enumerate(value):
            if number:
                yield Piece(sentence(f"words.between-{kind}", language))
            yield from pieces(one, language) if isinstance(one, Fact) else (_piece(kind, one),)
    elif kind is Field.COUNT and isinstance(value, int):
        yield Piece(counted(value, language), kind)
    else:
        yield _piece(kind, value)


def _piece(kind: Field, value: object) -> Piece:
    if isinstance(value, int) and kind in TIMES:
        return Piece(utc_text(value, timespec=TIMES[kind]), kind, value)
    return Piece(f"{value:g}" if isinstance(value, float) else str(value), kind)


def counted(count: int, language: str = ENGLISH) -> str:
    """Returns the text of a count of rows, or of a sum of such counts."""
    if count <= COUNTED_MAX:
        return str(count)
    return sentence("words.more-than", language).format(number=COUNTED_MAX)
