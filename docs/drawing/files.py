"""All pictures by the names of their files; those in Chinese lie beside the others."""

from __future__ import annotations

import tomllib
from pathlib import Path

from docs.drawing import accidents, processes, sequence
from docs.drawing.one_message import ONE_MESSAGE

FOLDER = Path(__file__).parents[1] / "explanation/pictures"
CHINESE: dict[str, str] = tomllib.loads((Path(__file__).parent / "chinese.toml").read_text(encoding="utf-8"))


def pictures() -> dict[str, str]:
    """Each SVG. Raises KeyError for a text without a translation, ValueError for one that is too long for its place."""
    drawn: dict[str, str] = {}
    for language, ending, words in (("en", ".svg", str), ("zh-Hans", ".zh.svg", CHINESE.__getitem__)):
        for story in stories():
            drawn[story.name + ending] = sequence.drawn(story, words, language=language)
        drawn[processes.NAME + ending] = processes.drawn(words, language=language)
    return drawn


def stories() -> list[sequence.Story]:
    """The message that comes back, and the accidents."""
    return [ONE_MESSAGE, *accidents.all_stories()]


def sentences() -> list[str]:
    """Every text of every picture."""
    return [*sequence.sentences(stories()), *processes.sentences()]
