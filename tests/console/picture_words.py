"""The words that pictures of the console show, kept beside them: a picture is old when the product has other words."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from reconciler.words.catalogue import sentences

FOLDER = Path(__file__).parents[2] / "docs/how-to/pictures"
#: Picture -> its texts that were of the catalogue when it was taken.
WORDS = FOLDER / "words.json"


def is_in_the_catalogue(text: str, language: str) -> bool:
    """Whether a sentence of that language, with values in its places, is the text."""
    whole, patterns = _sentences(language)
    return text in whole or any(pattern.fullmatch(text) for pattern in patterns)


@cache
def _sentences(language: str) -> tuple[frozenset[str], tuple[re.Pattern[str], ...]]:
    """Sentences without values, and patterns of the others; all have words of their own between their values."""
    parts = {tuple(re.split(r"\{\w+\}", sentence)) for sentence in sentences(language).values()}
    worded = [of for of in parts if any(re.search(r"\w{2}", one) for one in of)]
    patterns = [re.compile(".+".join(map(re.escape, of))) for of in worded if len(of) > 1]
    return frozenset(of[0] for of in worded if len(of) == 1), tuple(patterns)
