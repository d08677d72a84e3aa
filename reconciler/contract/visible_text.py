"""Makes text from outside safe to show: the text moves no cursor, does not turn the text around it, and hides nothing.

Names, reasons and errors come from brokers, databases and message senders, and a terminal obeys control characters.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator

#: Characters outside of printable ASCII. A long text without such characters is done quickly.
_DOUBTFUL = re.compile(r"[^ -~\n\t]+")
#: The most marks over and under one letter. No language has more marks on a letter. Further marks would cover the lines
#: around the letter.
MARKS_MAX = 4
_MARKS = frozenset({"Mn", "Me"})
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
#: Letters and marks that show nothing although their category says otherwise (Unicode's Default_Ignorable_Code_Point).
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")


def visible(text: str) -> str:
    """Returns the text with numbers in place of characters that are invisible, or that turn or cover the text around
    them.

    Line ends and tabs stay.
    """
    return _DOUBTFUL.sub(lambda found: "".join(_told(found[0], _number)), text)


def excerpt(text: str, characters_max: int) -> str:
    """Returns the text. Of a longer text, returns the beginning and the length."""
    return text if len(text) <= characters_max else f"{text[:characters_max]}… (cut: {len(text)} characters)"


def visible_line(text: str) -> str:
    """Returns the visible text. The text's further lines are indented, so that no line looks like a line of ours."""
    return re.sub(r"\n(?=\S)", "\n  ", visible(text.rstrip("\n")))


def visible_json(document: str) -> str:
    """Returns a JSON text of one line with the same values. JSON's own escapes spell invisible characters."""
    return _DOUBTFUL.sub(lambda found: "".join(_told(found[0], _escape)), document)


def _told(text: str, told: Callable[[str], str]) -> Iterator[str]:
    marks = 0
    for character in text:
        category = unicodedata.category(character)
        marks = marks + 1 if category in _MARKS else 0
        is_seen = category not in _UNSEEN and _BLANK.match(character) is None and marks <= MARKS_MAX
        yield character if is_seen else told(character)


def _number(character: str) -> str:
    return f"\\u{{{ord(character):04X}}}"


def _escape(character: str) -> str:
    # json.dumps leaves U+007F as it is.
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]
