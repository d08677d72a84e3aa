"""Makes the first use of a glossary word on a page of docs a link to its meaning.

Pages are written without these links. The console and the site add these links when a page is shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from posixpath import dirname, relpath

from reconciler.commands import docs

GLOSSARY = "glossary.md"
#: Words that a stranger cannot know. All other words of the glossary are everyday words, or words of RocketMQ.
# fmt: off
HOUSE_WORDS = frozenset({
    "half message", "half", "check-back", "unique key", "announcement", "unique-key topic", "outbox", "inbox",
    "ledger", "tombstone", "witness", "half set", "commit set", "grace period", "watermark", "trickle", "verdict",
    "settled", "accounted for", "rung", "republish", "hand-over", "circuit breaker", "shadow mode", "quarantine",
    "dismiss", "sweep", "sweeper", "recorder", "sign of life", "shard",
})
# fmt: on
#: Chinese words that get no link, because they are everyday words with further meanings.
_EVERYDAY = frozenset({"方式", "隔离"})
#: Matches "half" as the name of a message, but not in "half an hour" or "half of the keys".
_HALF = r"half(?! (?:an?|of|the|past|as)\b|-)"
_ROW = re.compile(r"^\| (.+?) \| (.+?) \| (.+?)? ?\|", re.MULTILINE)
#: Parts of a page that get no link: code, remarks and live parts, headings, links and pictures.
_LEFT = (
    r"^ *```.*?^ *```$|^#+ .*?$|<!-- live.*?<!-- /live -->|<!--.*?-->|`[^`\n]*`"
    r"|!?\[[^\]]*\](?:\([^)]*\)|\[[^\]]*\])|<\S+>"
)


@cache
def _meanings(language: str) -> Mapping[str, str]:
    """Returns house word -> meaning in one language. The meanings contain no code marks."""
    found: dict[str, str] = {}
    for first, second, third in _ROW.findall(docs.source(docs.in_language(GLOSSARY, language))):
        english, meaning = (first, second) if language == "en" else (second, third)
        for word in english.split(", "):
            if word in HOUSE_WORDS and first not in _EVERYDAY:
                found[word if language == "en" else first] = re.sub(r'[`"]', "", meaning)
    return found


@cache
def _words(language: str) -> re.Pattern[str]:
    found = sorted(_meanings(language), key=len, reverse=True)
    longest = "|".join(_HALF if word == "half" else re.escape(word) for word in found)
    word = rf"\b({longest})(?:e?s)?\b" if language == "en" else f"({longest})"
    return re.compile(rf"{_LEFT}|{word}", re.MULTILINE | re.DOTALL | re.IGNORECASE)


def with_glossary(text: str, page: str) -> str:
    """Returns the Markdown of a page of docs, with a link at the first use of each house word."""
    language = "zh" if page.startswith(docs.CHINESE) else "en"
    glossary = docs.in_language(GLOSSARY, language)
    if page == glossary:
        return text
    meanings, seen = _meanings(language), set[str]()
    target = relpath(glossary, dirname(page) or ".")

    def linked(found: re.Match[str]) -> str:
        word = (found[1] or "").lower()
        if not word or word in seen:
            return found[0]
        seen.add(word)
        return f'[{found[0]}]({target} "{meanings[word]}")'

    return _words(language).sub(linked, text)
