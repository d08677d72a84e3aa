"""Printing: a table for people, one JSON document for programs; the same data in both."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

SCHEMA_VERSION = 1
#: Nobody resizes a file: wide enough that a unique key, two times and a sentence stand in one row.
WIDTH_WITHOUT_TERMINAL = 160


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

    table = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        # Text: cells come from brokers and databases, and [brackets] in them are no markup.
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    console = Console(highlight=False, stderr=to_people)
    if not console.is_terminal:
        console = Console(highlight=False, stderr=to_people, width=WIDTH_WITHOUT_TERMINAL)
    console.print(table)


def time_text(milliseconds: int | None) -> str:
    """RFC 3339 UTC with milliseconds, or nothing."""
    if milliseconds is None:
        return ""
    return datetime.fromtimestamp(milliseconds / 1000, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _jsonable(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex().upper()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)
