"""Facts on pages. A fact becomes a sentence in the page's language. Times are time elements, and values are visible and
isolated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from markupsafe import Markup, escape

from reconciler.commands.asking import business_ids
from reconciler.contract import verdicts
from reconciler.contract.facts import Fact, Field
from reconciler.contract.stored_facts import CODES, codes_of, fact_of
from reconciler.web.console.catalogue import Catalogue, with_commands
from reconciler.web.excerpts import isolated, shown
from reconciler.words import ENGLISH, TIMES, Piece, pieces

#: Function that makes a time element from milliseconds. `timespec`: precision of the shown time.
Moment = Callable[..., Markup]
#: Codes that a kept answer may contain.
_KEPT = {**CODES, **codes_of(business_ids, verdicts)}


def on_page(said: Fact | str, words: Catalogue, moment: Moment) -> Markup:
    """Shows a fact as a sentence. Shows a text without a code as it is: a person's text, or an error."""
    if isinstance(said, str):
        return _foreign(said, words.language)
    return Markup("").join(_marked(said, words.language, moment))


def kept_on_page(line: Mapping[str, object], words: Catalogue, moment: Moment, *, text: str = "told") -> Markup:
    """Shows a line of a kept answer by its fact. If the fact is unknown, shows the text that another release kept under
    `text`."""
    return on_page(fact_of(line.get("fact"), _KEPT) or str(line[text]), words, moment)


def _marked(said: Fact, language: str, moment: Moment) -> Iterator[Markup]:
    """Yields the pieces of a sentence. A shell command contains values, so it may begin in one piece and end in
    another."""
    within = False
    for piece in pieces(said, language):
        if piece.field is not None:
            yield _filled(piece, language, moment)
            continue
        first, *others = piece.text.split("`")
        yield escape(first)
        for text in others:
            within = not within
            yield Markup("<code>") if within else Markup("</code>")
            yield escape(text)


def _filled(piece: Piece, language: str, moment: Moment) -> Markup:
    match piece.field:
        case Field.TIME | Field.EXACT_TIME | Field.EXACT_TIMES:
            return moment(piece.at_ms, timespec=TIMES[piece.field])
        case Field.TEXT:
            return _foreign(piece.text, language)
        case _:
            return Markup("{}").format(isolated(shown(piece.text)))


def _foreign(text: str, language: str) -> Markup:
    told = with_commands(isolated(shown(text)))
    return told if language == ENGLISH else Markup('<span lang="en">{}</span>').format(told)
