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
    return any(re.fullmatch(pattern, text) for pattern in _patterns(language))


@cache
def _patterns(language: str) -> frozenset[str]:
    """Of sentences that have words of their own between their values."""
    parts = {sentence: re.split(r"\{\w+\}", sentence) for sentence in sentences(language).values()}
    return frozenset(
        ".+".join(map(re.escape, of)) for of in parts.values() if any(re.search(r"\w{2}", one) for one in of)
    )
