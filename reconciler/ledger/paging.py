"""Reads pages of a listing by an index, the newest row first, so that the size of the table does not matter.

A listing is ordered by a time and then by the rest of the primary key, all descending, so no two rows are equal. An
index has the order of the listing after the environment (`page_indexes` in contract/tables.py). A page continues after
the last row of the page before, even if that row is deleted by then.

For a filter that no index covers, a database might read the whole table to find the few rows of a page. So one call
reads at most LOOKED_AT_MAX rows of the listing, and returns the position at which it stopped.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from reconciler.contract.row_rules import is_storable
from reconciler.contract.tables import BY_PREFIXES
from reconciler.errors import InvalidValue
from reconciler.sql.key_probes import probe
from reconciler.telling.ports.paging import LedgerFilter, Position

#: Maximum number of rows that one page reads if the index does not cover a filter.
LOOKED_AT_MAX = 20_000
_BIGINT_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """One listing with its filters."""

    #: Selects the columns to read. Includes the columns of the order.
    query: sa.Select[Any]
    #: A time, then the rest of the primary key.
    order: Sequence[sa.Column[Any]]
    #: Conditions that an index with this order covers.
    indexed: Sequence[sa.ColumnElement[bool]]
    #: The conditions that the index does not cover.
    sifted: Sequence[sa.ColumnElement[bool]] = ()
    #: Column and values of unique keys: an index of its own finds these few rows.
    keys: tuple[sa.Column[str], Sequence[str]] | None = None

    def page(
        self, connection: sa.Connection, *, limit: int, after: Position | None
    ) -> tuple[Sequence[sa.Row[Any]], Position | None]:
        """Returns rows, and the position after which the next page begins. Raises InvalidValue for a position of
        another listing."""
        if after is not None:
            _require_position(self.order, after, connection.dialect.name)
        if self.keys is not None:
            rows, end = self._of_keys(connection, self.keys, after), None
        else:
            rows, end = self._walked(connection, limit, after)
        if len(rows) > limit:
            return rows[:limit], self._position(rows[limit - 1])
        return rows, end

    def _of_keys(
        self, connection: sa.Connection, keys: tuple[sa.Column[str], Sequence[str]], after: Position | None
    ) -> Sequence[sa.Row[Any]]:
        """Returns the rows after the position, sorted by Python: ORDER BY might make the planner read the whole
        index."""
        column, values = keys
        every = probe(connection, self.query.where(*self.indexed, *self.sifted), column, values).all()
        behind = [row for row in every if after is None or _rank(self._position(row)) < _rank(after)]
        return sorted(behind, key=lambda row: _rank(self._position(row)), reverse=True)

    def _walked(
        self, connection: sa.Connection, limit: int, after: Position | None
    ) -> tuple[Sequence[sa.Row[Any]], Position | None]:
        """Returns up to `limit + 1` rows, and the position at which the reading was cut."""
        dialect, walked = connection.dialect.name, list(self.indexed)
        if after is not None:
            walked.append(compared(self.order, operator.lt, after, dialect))
        end = self._end_of_walk(connection, walked) if self.sifted else None
        if end is not None:
            walked.append(compared(self.order, operator.ge, end, dialect))
            # A planner estimates a comparison of whole rows as a third of the table, but two comparisons of the time as
            # a range.
            walked.append(self.order[0] >= _literal(self.order[0], end[0]))
            if after is not None:
                walked.append(self.order[0] <= _literal(self.order[0], after[0]))
        query = self.query.where(*walked, *self.sifted).order_by(*self._newest_first()).limit(limit + 1)
        return connection.execute(query).all(), end

    def _end_of_walk(self, connection: sa.Connection, walked: Sequence[sa.ColumnElement[bool]]) -> Position | None:
        """Returns the position of the last row that this page reads. None if fewer rows remain than a page may read."""
        query = sa.select(*self.order).where(*walked).order_by(*self._newest_first())
        row = connection.execute(query.offset(LOOKED_AT_MAX - 1).limit(1)).first()
        return None if row is None else tuple(row)

    def _position(self, row: sa.Row[Any]) -> Position:
        return tuple(getattr(row, column.name) for column in self.order)

    def _newest_first(self) -> Sequence[sa.ColumnElement[Any]]:
        return [column.desc() for column in self.order]


def compared(
    order: Sequence[sa.Column[Any]], compare: Callable[[Any, Any], Any], position: Position, dialect: str
) -> sa.ColumnElement[bool]:
    """Returns one comparison of rows. For MySQL and MariaDB, which use no index for such a comparison, returns one
    comparison per column.

    `position`: one value per column of the order.
    """
    values = [_literal(column, value) for column, value in zip(order, position, strict=True)]
    if dialect not in ("mysql", "mariadb"):
        found: sa.ColumnElement[bool] = compare(sa.tuple_(*order), sa.tuple_(*values))
        return found
    return _spelled_out(list(zip(order, values, strict=True)), compare)


def _spelled_out(
    pairs: Sequence[tuple[sa.Column[Any], sa.ColumnElement[Any]]], compare: Callable[[Any, Any], Any]
) -> sa.ColumnElement[bool]:
    (column, value), rest = pairs[0], pairs[1:]
    if not rest:
        found: sa.ColumnElement[bool] = compare(column, value)
        return found
    outside, inside = (column < value, column <= value) if compare is operator.lt else (column > value, column >= value)
    return inside & (outside | _spelled_out(rest, compare))


def _literal(column: sa.Column[Any], value: float | str | bytes) -> sa.ColumnElement[Any]:
    if isinstance(value, bytes):  # a text in SQLite that is no UTF-8
        return sa.cast(sa.literal(value, sa.LargeBinary()), sa.Text())
    return sa.literal(value, column.type)


def _require_position(order: Sequence[sa.Column[Any]], after: Position, dialect: str) -> None:
    fits = _fits_sqlite if dialect == "sqlite" else _fits
    if len(after) != len(order) or not all(map(fits, order, after)):
        raise InvalidValue("cursor", "of another listing", "take the one of the page before, or none")


def _fits(column: sa.Column[Any], value: object) -> bool:
    """Returns True if a database can compare the value with the column."""
    if isinstance(column.type, sa.Integer):
        return type(value) is int and -_BIGINT_MAX <= value <= _BIGINT_MAX
    return isinstance(value, str) and is_storable(value)


def _fits_sqlite(column: sa.Column[Any], value: object) -> bool:
    """Returns True if SQLite can compare the value with the column. Damaged rows may have any text, a fraction or bytes
    in any column."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode() == value
    return isinstance(value, float | bytes) or _fits(column, value)


def within(
    owner: sa.Column[str], environment: str, time: sa.Column[int], only: LedgerFilter
) -> list[sa.ColumnElement[bool]]:
    """Returns the conditions for rows of the environment between the filter's times."""
    found = [owner == environment]
    if only.since_ms is not None:
        found.append(time >= only.since_ms)
    if only.before_ms is not None:
        found.append(time < only.before_ms)
    return found


def equal(wanted: Mapping[sa.Column[Any], str | None]) -> list[sa.ColumnElement[bool]]:
    """Returns one condition per value that is not None."""
    return [column == str(value) for column, value in wanted.items() if value is not None]


def done_by(column: sa.Column[str], by: str | None) -> list[sa.ColumnElement[bool]]:
    """Returns the condition for acts of one person. A bare name matches a login and a user of the console. `by`: None
    matches every person."""
    if by is None:
        return []
    is_bare = not by.startswith(BY_PREFIXES)
    return [column.in_([by, *(f"{prefix}{by}" for prefix in BY_PREFIXES if is_bare)])]


def _rank(position: Position) -> Any:
    """Returns a rank that sorts values as SQLite does: numbers, then texts, then bytes."""
    return [(0 if isinstance(v, int | float) else 1 if isinstance(v, str) else 2, v) for v in position]
