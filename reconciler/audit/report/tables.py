"""Tables of the page. Every cell repeats the words of its column, because a narrow screen shows a row as a card."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from reconciler.audit.report.markup import Markup, join, tag

#: Column of a table: words and CSS class.
Column = tuple[str, str]


class Cell(NamedTuple):
    """Cell whose style differs from the style of its column."""

    content: object
    css: str


def table(caption: str, columns: Sequence[Column], rows: Iterable[Markup], *, css: str | None = None) -> Markup:
    """Makes a scrolling table with its header."""
    parts = (tag("caption", caption), table_head(*columns), tag("tbody", *rows))
    return scrolling(tag("table", *parts, class_=css), caption)


def table_row(columns: Sequence[Column], *contents: object, css: str | None = None) -> Markup:
    """Makes a row. The first content is the row's header. A Cell has a CSS class of its own.

    A tuple is a cell of several parts.
    """
    header, *others = contents
    cells = [tag("th", _joined(header), scope="row")]
    for (words, column_css), content in zip(columns[1:], others, strict=True):
        shown = content if isinstance(content, Cell) else Cell(content, column_css)
        cells.append(tag("td", _joined(shown.content), class_=shown.css or None, data_label=words or None))
    return tag("tr", *cells, class_=css)


def table_head(*columns: Column) -> Markup:
    """Makes the column headers."""
    return tag("thead", tag("tr", *(tag("th", words, scope="col", class_=css or None) for words, css in columns)))


def scrolling(content: Markup, label: str) -> Markup:
    """Wraps wide content in an element that scrolls by pointer and keyboard."""
    return tag("div", content, class_="scroll", role="region", tabindex="0", aria_label=label)


def _joined(content: object) -> object:
    return join(content) if isinstance(content, tuple) else content
