"""The one language in which the contract describes tables: of databases (tables.py), of the history (history_row.py)
and of the audit's evidence (evidence_layout.py). SQL types, Arrow types and pages of the docs are made from it."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

#: How a value is stored, in a database | in Parquet:
#:
#: | `key` | text of 64 characters: the unique key | its bytes: 16, 17 or 28 of them, 32 at most, never the text |
#: | `name`, `short` | text of 160 and of 32 characters | text |
#: | `text`, `json` | text of any length | text |
#: | `digest` | 32 bytes | 32 bytes |
#: | `bytes` | bytes of any number | - |
#: | `integer`, `bigint` | 32 and 64 bits | 32 and 64 bits |
ColumnKind = Literal["key", "name", "short", "text", "json", "bytes", "digest", "integer", "bigint"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    name: str
    kind: ColumnKind
    doc: str
    _: KW_ONLY
    nullable: bool = False
    #: All words that a `short` text may be. Empty: any text is allowed.
    words: tuple[str, ...] = ()
    #: The kind of the members of a JSON object in a `json` text. None: the text has a decoder of its own.
    members: Literal["text", "number", "any"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PageIndex:
    """An index in the order of a listing: environment, `within`, the time, and then the remaining columns of the
    primary key."""

    time: str
    #: Rows with the same value in this column form a listing of their own.
    within: str | None = None
    #: The index covers only rows that have a value in this column. MySQL and MariaDB have no such index, and get no
    #: other index in its place.
    only_with: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table of a database, or one set of Parquet files. A set of Parquet files has no keys and no indexes."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    #: Indexes of only those rows that have a value in the last column. MySQL and MariaDB have no such indexes. Other
    #: rows are left out, because a planner without statistics must not prefer such an index to an index that finds a
    #: key.
    sparse_indexes: tuple[tuple[str, ...], ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    page_indexes: tuple[PageIndex, ...] = ()
    #: The index for counting rows: environment, the columns that make a kind, and a number per row. This index begins
    #: like the primary key, so has_any_value in sql/tables.py makes PostgreSQL use it for counts only.
    count_index: tuple[str, ...] = ()
    #: An index of rows that have a value in the last column, like sparse_indexes. It has a field of its own, because
    #: its generated name would be too long.
    undecided_index: tuple[str, ...] = ()

    def columns_of(self, index: PageIndex) -> tuple[str, ...]:
        """Returns the columns of an index of pages, in order."""
        first = ("environment", *([] if index.within is None else [index.within]), index.time)
        return (*first, *(name for name in self.primary_key if name not in first))

    @property
    def has_key(self) -> bool:
        """True if rows have a unique key. The key's prefix partitions the rows' Parquet files
        (contract/history_row.py)."""
        return any(column.kind == "key" for column in self.columns)
