"""Fenced blocks of the tutorials and the how-to pages, and what a test does with each of them.

A mark is an HTML comment on a line of its own before the fence; several stand below each other:

    ```bash      run in the page's one shell, in order
                 `exit: 1`, or `exit: 3 or 4`: how its last failing command must end; without it none may fail
                 `shows: TEXT`: its output has the text
                 `soon: TEXT`: what follows its only `sleep N; ` is repeated until the output has the text
                 `in: NAME`: in another shell, which the page's test has opened
    ```toml      a piece of a settings file that the settings must accept
                 `under: web`: the lines stand in the section [web]
                 `settings`: merged into the settings file of the page's deployment, too
    ```python    executed; all of a page share their names
    ```sql       executed; `on: inbox` names the database, `with: before=5` gives values of `:before`
    ```          (or text, json) behind one that ran: its output, compared
    any          `file: NAME`: written into that file of the page's folder, and nothing more
                 `given: NAME`: the page's test does this before the block
                 `not run: REASON`: the reason says what is missing here; one that begins with "by night" is run then
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

__all__ = ["DOCS", "PAGES", "Block", "Purpose", "blocks_of", "complaints"]

DOCS = Path(__file__).parents[1] / "docs"
#: Pages that are steps to a goal: the tutorials and the how-to pages.
PAGES = tuple(
    sorted(p.relative_to(DOCS).as_posix() for room in ("tutorial", "how-to") for p in DOCS.glob(f"{room}/*.md"))
)

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_MARKS = re.compile(r"(?:^ *<!-- .+? -->\n)+\Z", re.MULTILINE)
_MARK = re.compile(r"<!-- ([a-z ]+?)(?:: (.+?))? -->")


class Purpose(StrEnum):
    """What is done with a block."""

    SHELL = "run"
    SETTINGS = "accepted"
    PYTHON = "executed"
    SQL = "executed on a database"
    OUTPUT = "compared"
    FILE = "written"
    NOT_RUN = "left out"


_BY_LANGUAGE = {
    "bash": Purpose.SHELL,
    "toml": Purpose.SETTINGS,
    "python": Purpose.PYTHON,
    "sql": Purpose.SQL,
} | dict.fromkeys(("", "text", "json"), Purpose.OUTPUT)
_ALLOWED = {
    Purpose.SHELL: {"exit", "shows", "soon", "in", "given"},
    Purpose.SETTINGS: {"under", "settings", "given"},
    Purpose.PYTHON: {"given"},
    Purpose.SQL: {"on", "with", "given"},
    Purpose.OUTPUT: set(),
    Purpose.FILE: {"file", "given"},
    Purpose.NOT_RUN: {"not run"},
}
_PROMISES = frozenset({Purpose.SHELL})
_EXIT = re.compile(r"\d+( or \d+)*")
_ASSIGNED = re.compile(r"\w+=\S+( \w+=\S+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block with its marks; a mark without a text has an empty one."""

    page: str
    line: int
    language: str
    text: str
    marks: dict[str, str]

    @property
    def purpose(self) -> Purpose | None:
        """None: a test knows nothing to do with it."""
        if "not run" in self.marks:
            return Purpose.NOT_RUN
        if "file" in self.marks:
            return Purpose.FILE
        return _BY_LANGUAGE.get(self.language)

    @property
    def place(self) -> str:
        """Page and line of the fence."""
        return f"{self.page}:{self.line}"

    @property
    def is_polled(self) -> bool:
        """Whether a part of it is repeated."""
        return "soon" in self.marks


def blocks_of(page: str, text: str) -> Iterator[Block]:
    """In their order."""
    for fence in _FENCE.finditer(text):
        marks = _MARKS.search(text, 0, fence.start())
        yield Block(
            page=page,
            line=text.count("\n", 0, fence.start()) + 1,
            language=fence["language"],
            text=textwrap.dedent(fence["text"]),
            marks=dict(_MARK.findall(marks[0])) if marks else {},
        )


def complaints(page: str, text: str) -> list[str]:
    """Why a block of the page would not be looked at by any test."""
    found = []
    before: Block | None = None
    for block in map(_by_night, blocks_of(page, text)):
        found += [f"{block.place}: {why}" for why in _complaints(block, before)]
        before = block
    if text.count("```") != 2 * len(list(blocks_of(page, text))):
        found.append(f"{page}: a fence is not closed, or not alone on its line")
    return found


def _by_night(block: Block) -> Block:
    if block.marks.get("not run", "").startswith("by night"):
        return replace(block, marks={name: text for name, text in block.marks.items() if name != "not run"})
    return block


def _complaints(block: Block, before: Block | None) -> Iterator[str]:
    purpose = block.purpose
    if purpose is None:
        yield f"nothing runs {block.language!r}: give it `file:`, or `not run:` with a reason"
        return
    for name in sorted(block.marks.keys() - _ALLOWED[purpose]):
        yield f"a block that is {purpose.value} has no mark {name!r}"
    if purpose is Purpose.OUTPUT and (before is None or before.purpose not in _PROMISES):
        yield "no block that runs stands before this output"
    if purpose is Purpose.NOT_RUN and not block.marks["not run"]:
        yield "say why it is not run"
    if block.is_polled and len(re.findall(r"sleep \d+; ", block.text)) != 1:
        yield "`soon:` needs one `sleep N; ` before what is repeated"
    if purpose is Purpose.SQL and not block.marks.get("on"):
        yield "`on:` has to name a database"
    if not _EXIT.fullmatch(block.marks.get("exit", "0")):
        yield "`exit:` needs a number, or several with `or`"
    if not _ASSIGNED.fullmatch(block.marks.get("with", "a=1")):
        yield "`with:` needs name=value"
