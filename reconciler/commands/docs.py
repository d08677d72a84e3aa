"""Finds the pages of docs, which are installed with the product, by the names that messages use.

This module needs the standard library only, because a message about a missing package names a page, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from reconciler.errors import UsageError

#: The page that lists all other pages.
INDEX = "index.md"
#: The folder of the Chinese pages. A Chinese page has the same name as the English page.
CHINESE = "zh/"
#: File names of drawings end with this.
DRAWING = ".svg"
#: Matches the name of a page in a message, such as docs/how-to/install.md#extras.
MENTION = re.compile(r"\bdocs/((?:[\w-]+/)*[\w-]+\.md)(#[\w-]+)?")
_HEADING = re.compile(r"(#+) +(.*)")
_FENCE = re.compile(r" *(```|~~~)")
#: HTML comments for the tests of pages, for translators, and for the console.
_REMARK = re.compile(r"<!--.*?-->")


def folder() -> Traversable:
    """Returns the folder of the pages. A wheel has this folder beside the code."""
    packed = files("reconciler").joinpath("docs")
    return packed if packed.is_dir() else Path(__file__).parents[2] / "docs"


@cache
def page_names() -> frozenset[str]:
    """Returns the names of all pages relative to docs, such as `how-to/install.md`."""
    return frozenset(name for name in _found(folder(), "") if name.endswith(".md"))


@cache
def drawing_names() -> frozenset[str]:
    """Returns the names of all drawings relative to docs."""
    return frozenset(name for name in _found(folder(), "") if name.endswith(DRAWING))


def _found(place: Traversable, above: str) -> Iterator[str]:
    for one in place.iterdir():
        if one.is_dir():
            yield from _found(one, f"{above}{one.name}/")
        else:
            yield above + one.name


def in_language(name: str, language: str) -> str:
    """Returns the name of the page in this language. A page without a translation has only its English name."""
    translated = f"{CHINESE}{name}"
    return translated if translated in page_names() and (language == "zh" or name not in page_names()) else name


def source(name: str) -> str:
    """Returns the unchanged Markdown of a page."""
    return folder().joinpath(*name.split("/")).read_text(encoding="utf-8")


def without_remarks(text: str) -> str:
    """Returns the text without remarks on lines of their own."""
    return "".join(f"{line}\n" for line, is_code in lines_of(text) if is_code or not _REMARK.fullmatch(line.strip()))


@cache
def page_title(name: str) -> str:
    """Returns the first heading of a page."""
    return next(found[2] for line in source(name).splitlines() if (found := _HEADING.fullmatch(line)))


def lines_of(text: str) -> Iterator[tuple[str, bool]]:
    """Yields each line, and whether it is within a block of code."""
    is_code = False
    for line in text.splitlines():
        is_edge = _FENCE.match(line) is not None
        yield line, is_code or is_edge
        is_code ^= is_edge


def anchor_of(heading: str) -> str:
    """Returns the anchor that a code host, the site and the console give to a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def find(name: str) -> str:
    """Returns the text of a page or section. `name`: what a person types, such as docs/how-to/install.md#extras.

    The last part of a page's name, such as BreakerOpen, is enough. Raises UsageError for an unknown page or section.
    """
    wanted, _, anchor = name.strip().removeprefix("./").removeprefix("docs/").partition("#")
    wanted = wanted.removesuffix("/") or INDEX
    fitting = sorted(page for page in page_names() if page in {wanted, f"{wanted}.md", f"{wanted}/{INDEX}"})
    fitting = fitting or sorted(
        page for page in page_names() if not page.startswith(CHINESE) and page.endswith(f"/{wanted}.md")
    )
    if len(fitting) != 1:
        raise UsageError(
            f"{name}: {f'there are {len(fitting)} such pages: ' + ', '.join(fitting) if fitting else 'no such page'}; "
            "`reconciler docs` lists them"
        )
    text = without_remarks(source(fitting[0]))
    return _section(text, anchor, page=fitting[0]) if anchor else text


def _section(text: str, anchor: str, *, page: str) -> str:
    lines: list[str] = []
    depth = 0
    for line, is_code in lines_of(text):
        heading = None if is_code else _HEADING.fullmatch(line)
        if heading is not None and lines and len(heading[1]) <= depth:
            break
        if heading is not None and not lines and anchor_of(heading[2]) == anchor.lower():
            depth = len(heading[1])
        if depth:
            lines.append(line)
    if not lines:
        raise UsageError(f"{page} has no section {anchor}; `reconciler docs {page}` shows the whole page")
    return "\n".join(lines).rstrip("\n") + "\n"


def ways_to(texts: Sequence[str]) -> Sequence[str]:
    """Returns one line for each page that the texts name. The line contains the command that shows the page."""
    named = [f"docs/{found[1]}{found[2] or ''}" for text in texts for found in MENTION.finditer(text)]
    return [f"`reconciler docs {page}` shows that page" for page in dict.fromkeys(named)]
