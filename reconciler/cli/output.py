"""Printing: a table for people, one JSON document for programs; the same data in both."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from reconciler.clock import utc_text

if TYPE_CHECKING:
    from rich.text import Text

SCHEMA_VERSION = 1
#: Nobody resizes a file: wide enough that a unique key, two times and a sentence stand in one row.
WIDTH_WITHOUT_TERMINAL = 160
#: A column of sentences is read with less, but not gladly.
NARROWEST_COLUMN = 10


class Output(StrEnum):
    """Form of what a command prints."""

    TABLE = "table"
    JSON = "json"


def print_json(document: Mapping[str, Any]) -> None:
    """One JSON object on standard output, with its schema version."""
    # An escape of the stream's own is no JSON escape for every letter.
    is_ascii = not (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    json.dump({"schema_version": SCHEMA_VERSION, **document}, sys.stdout, default=_jsonable, ensure_ascii=is_ascii)
    sys.stdout.write("\n")
    sys.stdout.flush()


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], *, to_people: bool = False
) -> None:
    """A table on standard output, plain text where it is no terminal; `to_people`: on standard error, as no data."""
    from rich.console import Console  # slow to load
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, stderr=to_people)
    if not console.is_terminal:
        console = Console(highlight=False, stderr=to_people, width=WIDTH_WITHOUT_TERMINAL)
    # Text: cells come from brokers and databases, and [brackets] in them are no markup.
    cells = [[Text("" if cell is None else str(cell)) for cell in row] for row in rows]
    whole = _columns_kept_whole(columns, cells, console.width)
    table = Table(title=title, title_justify="left", header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=number in whole)
    for row_of_cells in cells:
        table.add_row(*row_of_cells)
    console.print(table)


def _columns_kept_whole(columns: Sequence[str], rows: Sequence[Sequence[Text]], width: int) -> Collection[int]:
    """Columns of single words, such as keys and times, which people copy, where a line has room for them."""
    lengths = {
        number: max((row[number].cell_len for row in rows), default=0)
        for number in range(len(columns))
        if not any(" " in row[number].plain for row in rows)
    }
    # A heading is not wrapped there, either. Between and around columns there are a line and two spaces.
    whole = {number: max(length, len(columns[number])) for number, length in lengths.items()}
    needed = sum(whole.values()) + NARROWEST_COLUMN * (len(columns) - len(whole)) + 3 * len(columns) + 1
    return whole if needed <= width else ()


def time_text(milliseconds: int | None) -> str:
    """RFC 3339 UTC with milliseconds, or nothing."""
    return "" if milliseconds is None else utc_text(milliseconds, timespec="milliseconds")


def _jsonable(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex().upper()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)
