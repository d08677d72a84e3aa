"""Layout of results: a table for people, one JSON document for programs, with the same data.

If the terminal is too narrow for a table, each row is a record: its first words, then one line per value.
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
#: Sentences in narrower columns are hard to read.
NARROWEST_SENTENCE = 30
#: Width of a unique key.
NARROWEST_VALUE = 32
#: Indent of each line of a record except the first one.
INDENT = "  "


class Output(StrEnum):
    """Form of a command's output."""

    TABLE = "table"
    JSON = "json"


def print_json(document: Mapping[str, Any]) -> None:
    """Prints one JSON object with its schema version to standard output."""
    # The stream's own escape of a letter is not always a JSON escape.
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
    """Prints a table or records to standard output. `first`: the most wanted columns, which also begin a record.

    Plain text if the output is no terminal. `to_people`: prints to standard error, because the table is no data.
    `as_records`: records even if a table fits, for wide tables of few rows.
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
    """Adds a column with the business id of each key. Without business ids the table stays the same."""
    if not names:
        return columns, rows
    place = columns.index(key)
    named = [(*row[: place + 1], names.get(str(row[place])), *row[place + 1 :]) for row in rows]
    return (*columns[: place + 1], "business id", *columns[place + 1 :]), named


def time_text(milliseconds: int | None) -> str:
    """Formats RFC 3339 UTC with milliseconds; empty for None."""
    return "" if milliseconds is None else utc_text(milliseconds, timespec="milliseconds")


def _columns_kept_whole(rows: Sequence[Row]) -> Collection[int]:
    """Returns the columns of single words, such as keys and times, which people copy."""
    return {number for number in range(len(rows[0])) if not any(" " in row[number].plain for row in rows)}


def _width_needed(names: Sequence[str], rows: Sequence[Row], whole: Collection[int]) -> int:
    """Computes the width of a table that breaks no word and wraps sentences into a few lines."""
    needed = 1
    for number, name in enumerate(names):
        longest = max(row[number].cell_len for row in rows)
        # A heading of single words is not wrapped either. A line and two spaces separate columns.
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
    """Yields lines: the first `leading` cells of a row in one, then each other cell with its name. Empty cells are left
    out."""
    from rich.text import Text

    label = max((len(name) for name in names[leading:]), default=0)
    width = screen.width  # one look-up, because each access to it looks it up
    for row in rows:
        head = Text(INDENT, "bold").join(cell for cell in row[:leading] if cell.plain)
        yield from _hanging(screen, width, Text("", "bold"), Text(INDENT), head)
        for name, cell in zip(names[leading:], row[leading:], strict=True):
            if cell.plain:
                before = f"{INDENT}{name:{label}}{INDENT}"
                yield from _hanging(screen, width, Text(before), Text(" " * len(before)), cell)


def _hanging(screen: Console, width: int, before: Text, below: Text, text: Text) -> Iterator[Text]:
    """Yields the text in lines of that width. A word is broken only if it is longer than a line."""
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
