"""Text from outside as people may see it: nothing in it moves a cursor, turns the text around it, or hides.

Names, reasons and errors come from brokers, databases and message senders; a terminal obeys what it is shown.
"""

from __future__ import annotations

import json
import re
import unicodedata

#: What is not plainly one of ASCII's letters, so that long texts are looked at quickly.
_DOUBTFUL = re.compile(r"[^ -~\n\t]")
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
#: Letters and marks that show nothing, though their category says otherwise (Unicode's Default_Ignorable_Code_Point).
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")


def visible(text: str) -> str:
    """Characters that one cannot see, or that turn the text around them, as their numbers; line ends and tabs stay."""
    return _DOUBTFUL.sub(lambda found: _shown(found[0]), text)


def visible_line(text: str) -> str:
    """The visible text; further lines of it are indented, so that they cannot pass for lines of ours."""
    return re.sub(r"\n(?=\S)", "\n  ", visible(text.rstrip("\n")))


def visible_json(document: str) -> str:
    """A JSON text without line ends that holds the same values, with JSON's own escapes for what one cannot see."""
    return _DOUBTFUL.sub(lambda found: _escaped(found[0]), document)


def _shown(character: str) -> str:
    return f"\\u{{{ord(character):04X}}}" if _is_unseen(character) else character


def _escaped(character: str) -> str:
    if character == "\x7f":
        return "\\u007f"  # json takes it for a letter of ASCII
    return json.dumps(character)[1:-1] if _is_unseen(character) else character


def _is_unseen(character: str) -> bool:
    return unicodedata.category(character) in _UNSEEN or _BLANK.match(character) is not None
