"""Prints a result as a table for people, or as one JSON document for programs, with the same data.

If the terminal is too narrow for a table, each row becomes a record. The first line of a record has the row's first
values. Each further line has one value.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from reconciler.clock import utc_text
from reconciler.contract.visible_text import visible, visible_json
from reconciler.instrumentation.console import console, say

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    #: Cells of one row.
    Row = Sequence[Text]

SCHEMA_VERSION = 1
#: Least width of a column with sentences. Sentences in narrower columns are hard to read.
NARROWEST_SENTENCE = 30
#: Least width of a value in a record: the width of a unique key.
NARROWEST_VALUE = 32
#: Indent of each line of a record except the first line.
INDENT = "  "


class Output(StrEnum):
    """The form of a command's output."""

    TABLE = "table"
    JSON = "json"


def print_json(document: Mapping[str, Any]) -> None:
    """Prints one JSON object with its schema version to standard output."""
    # A stream may escape a letter that it cannot write, in a form that JSON does not have. So only UTF gets such
    # letters.
    is_ascii = not (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    text = json.dumps({"schema_version": SCHEMA_VERSION, **document}, default=_jsonable, ensure_ascii=is_ascii)
    say(visible_json(text))


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    first: Sequence[str] = (),
    to_people: bool = False,
    as_records: bool = False,
) -> None:
    """Prints a table or records to standard output, as plain text unless that is a terminal.

    `first`: the columns that a person needs first, which also begin a record. `to_people`: prints to standard error,
    for tables that belong to a question. `as_records`: prints records even if a table fits, for wide tables of few
    rows.
    """
    from rich.text import Text  # slow to load

    screen = console(to_people=to_people)
    if not rows:
        screen.print(Text(visible(f"{title}: none")))
        return
    order = [columns.index(name) for name in first]
    order += [number for number in range(len(columns)) if number not in order]
    names = [columns[number] for number in order]
    cells = [[Text(visible("" if row[n] is None else str(row[n]))) for n in order] for row in rows]
    whole = _columns_kept_whole(cells)
    if not as_records and _width_needed(names, cells, whole) <= screen.width:
        screen.print(_table(title, names, cells, whole))
    else:
        lines = _records(screen, names, cells, leading=max(1, len(first)))
        screen.print(Text("\n").join([Text(visible(title), "table.title"), *lines]), soft_wrap=True)


def with_business_ids(
    columns: Sequence[str], rows: Sequence[tuple[object, ...]], names: Mapping[str, str], *, key: str = "unique key"
) -> tuple[Sequence[str], Sequence[tuple[object, ...]]]:
    """Returns columns and rows with an additional column for the business id of each key.

    If no key has a business id, the table stays as it is.
    """
    if not names:
        return columns, rows
    place = columns.index(key)
    named = [(*row[: place + 1], names.get(str(row[place])), *row[place + 1 :]) for row in rows]
    return (*columns[: place + 1], "business id", *columns[place + 1 :]), named


def time_text(milliseconds: int | None) -> str:
    """Returns a time as RFC 3339 UTC with milliseconds. Returns an empty text for None."""
    return "" if milliseconds is None else utc_text(milliseconds, timespec="milliseconds")


def _columns_kept_whole(rows: Sequence[Row]) -> Collection[int]:
    """Returns the numbers of the columns whose values are single words. People copy such values: keys, times."""
    return {number for number in range(len(rows[0])) if not any(" " in row[number].plain for row in rows)}


def _width_needed(names: Sequence[str], rows: Sequence[Row], whole: Collection[int]) -> int:
    """Returns the width of a table in which no word is broken and each sentence takes a few lines."""
    needed = 1
    for number, name in enumerate(names):
        longest = max(row[number].cell_len for row in rows)
        # A column of single words does not wrap its heading, either. A line and two spaces separate two columns.
        needed += 3 + (max(longest, len(name)) if number in whole else min(longest, NARROWEST_SENTENCE))
    return needed


def _table(title: str, names: Sequence[str], rows: Sequence[Row], whole: Collection[int]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(visible(title)), title_justify="left", header_style="bold")
    for number, name in enumerate(names):
        table.add_column(name, overflow="fold", no_wrap=number in whole)
    for row in rows:
        table.add_row(*row)
    return table


def _records(screen: Console, names: Sequence[str], rows: Sequence[Row], *, leading: int) -> Iterator[Text]:
    """Yields the lines of all records. Empty cells are left out.

    `leading`: number of cells in a record's first line. Each further line has one cell and the name of its column.
    """
    from rich.text import Text

    label = max((len(name) for name in names[leading:]), default=0)
    width = screen.width  # read once, because each access measures the terminal again
    for row in rows:
        head = Text(INDENT, "bold").join(cell for cell in row[:leading] if cell.plain)
        yield from _hanging(screen, width, Text("", "bold"), Text(INDENT), head)
        for name, cell in zip(names[leading:], row[leading:], strict=True):
            if cell.plain:
                before = f"{INDENT}{name:{label}}{INDENT}"
                yield from _hanging(screen, width, Text(before), Text(" " * len(before)), cell)


def _hanging(screen: Console, width: int, before: Text, below: Text, text: Text) -> Iterator[Text]:
    """Yields the text in lines of this width. Only a word that is longer than a line is broken."""
    room = max(NARROWEST_VALUE, width - below.cell_len)
    fits = text.cell_len <= room and "\n" not in text.plain
    for number, line in enumerate([text] if fits else text.wrap(screen, room)):
        line.rstrip()
        yield (below if number else before) + line


def _jsonable(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex().upper()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)
