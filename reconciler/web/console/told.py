"""Lines that commands, brokers and databases tell in English: in the language of the page where the catalogue has them.

A line is made in one place, in English (policy/account.py, policy/life_story.py, contract/verdicts.py). The catalogue
recognises it by its words, and what it does not recognise stays English and is marked so.
"""

from __future__ import annotations

import re
import string
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from markupsafe import Markup

from reconciler.web.console.catalogue import Catalogue, with_commands
from reconciler.web.excerpts import isolated, shown

#: Longer lines are told as they are: to recognise one takes time by its length.
RECOGNISED_CHARACTERS_MAX = 600
#: Lines within lines.
_DEPTH_MAX = 5
#: The places of a line within a line, such as a verdict's meaning behind a subscription, and what they take.
_INNER = {"rest": ".+", "head": "[^;]+"}
#: What any other place takes: one word, or a list of words.
_WORDS = r"\S+(?:, \S+)*"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLine:
    """One line, recognised in English and told in another language."""

    english: re.Pattern[str]
    text: Markup


def as_told(line: str, words: Catalogue) -> Markup:
    """A line for a page."""
    told = _recognised(line, words.language, depth=0)
    return Markup('<span lang="en">{}</span>').format(with_commands(shown(line))) if told is None else told


@cache
def known_lines(language: str) -> Sequence[KnownLine]:
    """Those of a language; none of English."""
    document = tomllib.loads(files("reconciler.web.console").joinpath("languages", "told.toml").read_text("utf-8"))
    return [
        KnownLine(english=_pattern(line["en"]), text=with_commands(line[language]))
        for line in document["line"]
        if language in line and language != "en"
    ]


def _pattern(english: str) -> re.Pattern[str]:
    return re.compile("".join(_parts(english)), re.DOTALL)


def _parts(english: str) -> Iterator[str]:
    for words, place, _, _ in string.Formatter().parse(english):
        yield re.escape(words)
        if place is not None:
            yield f"(?P<{place}>{_INNER.get(place, _WORDS)})"


def _recognised(line: str, language: str, *, depth: int) -> Markup | None:
    if len(line) > RECOGNISED_CHARACTERS_MAX or depth >= _DEPTH_MAX:
        return None
    for known in known_lines(language):
        found = known.english.fullmatch(line)
        if found is None:
            continue
        filled: dict[str, str] = {}
        for place, value in found.groupdict().items():
            inner = _recognised(value, language, depth=depth + 1) if place in _INNER else isolated(shown(value))
            if inner is None:
                break
            filled[place] = inner
        else:
            return known.text.format(**filled)
    return None
