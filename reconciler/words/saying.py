"""Facts in words: the sentence of a code with the values of its fields in their places."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from reconciler.clock import utc_text
from reconciler.contract.facts import COUNTED_MAX, Fact, Field, FieldValue
from reconciler.words.catalogue import ENGLISH, sentences


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of what is said."""

    text: str
    #: The field that it fills. None: it is the catalogue's own text.
    field: Field | None = None
    #: The value of a field of kind TIME.
    at_ms: int | None = None


def said(fact: Fact, language: str = ENGLISH) -> str:
    """The fact as plain text. Fields are as they came: who shows the text makes it visible."""
    return "".join(piece.text for piece in pieces(fact, language))


def said_and_coded(
    named: Mapping[str, Sequence[Fact]],
) -> tuple[dict[str, list[str]], dict[str, list[dict[str, object]]]]:
    """Lists of facts for JSON, by their names: as English sentences, and as codes with fields."""
    sentences_of = {name: [said(fact) for fact in facts] for name, facts in named.items()}
    return sentences_of, {name: [fact.as_dict() for fact in facts] for name, facts in named.items()}


def pieces(fact: Fact, language: str = ENGLISH) -> Iterator[Piece]:
    """The fact as its pieces, in order, those of facts within it included."""
    kinds, values = fact.code.fields, fact.fields
    for text, place in _parts(sentences(language)[fact.code.name]):
        if text:
            yield Piece(text)
        if place is not None:
            yield from _filled(kinds[place], values[place], language)


@cache
def _parts(sentence: str) -> tuple[tuple[str, str | None], ...]:
    """Text and the field behind it."""
    return tuple((text, place) for text, place, _, _ in string.Formatter().parse(sentence))


def _filled(kind: Field, value: FieldValue, language: str) -> Iterator[Piece]:
    if isinstance(value, Fact):
        yield from pieces(value, language)
    elif isinstance(value, tuple):
        for number, one in enumerate(value):
            if number:
                yield Piece(sentences(language)[f"words.between-{kind}"])
            yield from pieces(one, language) if isinstance(one, Fact) else (Piece(str(one), kind),)
    elif isinstance(value, str):
        yield Piece(value, kind)
    elif kind is Field.TIME:
        yield Piece(utc_text(value), kind, value)
    else:
        yield Piece(counted(value, language) if kind is Field.COUNT else str(value), kind)


def counted(count: int, language: str = ENGLISH) -> str:
    """A count of rows, or a sum of such counts."""
    if count <= COUNTED_MAX:
        return str(count)
    return sentences(language)["words.more-than"].format(number=COUNTED_MAX)
