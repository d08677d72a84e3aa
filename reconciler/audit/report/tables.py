"""Tables of the page. Every cell has its column's words, because a narrow screen shows a row as a card."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from reconciler.audit.report.markup import Markup, join, tag

#: Words and CSS class.
Column = tuple[str, str]


class Cell(NamedTuple):
    """Cell with another style than its column."""

    content: object
    css: str


def table(caption: str, columns: Sequence[Column], rows: Iterable[Markup], *, css: str | None = None) -> Markup:
    """Makes a scrolling table with its header."""
    parts = (tag("caption", caption), table_head(*columns), tag("tbody", *rows))
    return scrolling(tag("table", *parts, class_=css), caption)


def table_row(columns: Sequence[Column], *contents: object, css: str | None = None) -> Markup:
    """Makes a row. Its first content is the row's header. A Cell has a class of its own, a tuple has several parts."""
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
    """Makes wide content scroll in itself, also by keyboard."""
    return tag("div", content, class_="scroll", role="region", tabindex="0", aria_label=label)


def _joined(content: object) -> object:
    return join(content) if isinstance(content, tuple) else content
