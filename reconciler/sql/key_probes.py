"""Reads rows of many keys at once by one index probe per key, whatever the planner's statistics; and decides which text
is a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from reconciler.contract.unique_key import UNIQUE_KEY_CHARACTERS_MAX, UNIQUE_KEY_CHARACTERS_MIN

#: A character that no key has; the same for regular expressions and for GLOB.
_NO_CHARACTER_OF_KEYS = "[^0-9A-Za-z_-]"


def probe(
    connection: sa.Connection,
    query: sa.Select[Any],
    column: sa.Column[str],
    keys: Sequence[str],
    *,
    always: sa.Subquery | None = None,
) -> sa.CursorResult[Any]:
    """Executes the query for rows whose column is one of the keys, in no order. Columns keep their names.

    `always`: a query of one row. Its columns come first in every row; if no key is found, there is one row with NULLs
    after these columns.

    PostgreSQL answers `IN (500 keys)` by reading all rows of a subscription while its statistics are missing or old, as
    on a table that has just grown. Its driver also needs 7 ms for 500 parameters. A LATERAL subquery with OFFSET is
    planned by itself, for one key. Other databases probe the index for a list.
    """
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql  # two dozen modules that services on other databases do not need

        array = sa.bindparam("asked_keys", list(keys), type_=postgresql.ARRAY(sa.Text()))
        asked = sa.func.unnest(array).table_valued("key", name="asked").render_derived()
        lateral = query.where(column == asked.c.key).offset(sa.literal_column("0")).lateral("found")
        found: sa.FromClause = lateral
        matches: sa.FromClause = sa.join(asked, lateral, sa.true())
    elif always is None:
        return connection.execute(query.where(column.in_(keys)))
    else:
        found = matches = query.where(column.in_(keys)).subquery("found")
    if always is None:
        return connection.execute(sa.select(found).select_from(matches))
    return connection.execute(sa.select(always, found).select_from(always.outerjoin(matches, sa.true())))


def has_key(column: sa.ColumnElement[str], dialect: str) -> sa.ColumnElement[bool]:
    """Returns a condition that is false for a text that is no unique key: no witness can be asked about such a row, so
    it is left out of pages.

    COALESCE keeps PostgreSQL from estimating that few rows match the expression, because all do. PostgreSQL has no
    regular expressions under a collation that treats different texts as equal.
    """
    is_long = sa.func.length(column).between(UNIQUE_KEY_CHARACTERS_MIN, UNIQUE_KEY_CHARACTERS_MAX)
    if dialect != "sqlite":
        compared = sa.collate(column, "C") if dialect == "postgresql" else column
        return sa.func.coalesce(is_long & ~compared.regexp_match(_NO_CHARACTER_OF_KEYS), sa.false())
    is_plain = column.op("NOT GLOB", is_comparison=True)(f"*{_NO_CHARACTER_OF_KEYS}*")
    return sa.and_(sa.func.typeof(column) == "text", is_long, is_plain)
