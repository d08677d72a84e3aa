"""Reads the rows of many keys at once, by one index probe per key, whatever the planner's statistics say.

has_key() decides which text is a key.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from reconciler.contract.unique_key import UNIQUE_KEY_CHARACTERS_MAX, UNIQUE_KEY_CHARACTERS_MIN

#: Pattern of a character that no key has, for regular expressions and for GLOB.
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

    `always`: a query with exactly one row, whose columns come first in every row of the answer. If no key is found, the
    answer is one row, with NULLs after these columns.

    While PostgreSQL's statistics are missing or old, as on a table that has just grown, it reads all rows of a
    subscription for `IN (500 keys)`. PostgreSQL's driver also needs 7 ms for 500 parameters. PostgreSQL plans a LATERAL
    subquery with OFFSET separately, for one key. Other databases probe the index for each key of a list.
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


def key_that_meets(unique_key: str, found: Collection[str]) -> str | None:
    """Returns the key of a row that the database took for `unique_key`: it differs in case, or has blanks at its end.

    A collation without case gives such a row, and so does a column of the type CHAR, which fills keys with blanks.
    None: no row of `found` is such a row.
    """
    folded = _folded(unique_key)
    return next((key for key in found if key != unique_key and _folded(key) == folded), None)


def _folded(key: str) -> str:
    return key.rstrip(" ").casefold()


def has_key(column: sa.ColumnElement[str], dialect: str) -> sa.ColumnElement[bool]:
    """Returns a condition that is true if the text is a unique key. Pages leave out other rows, because no witness can
    be asked about them.

    Nearly all rows match, and COALESCE keeps PostgreSQL from estimating few. Collation C is needed because PostgreSQL
    refuses regular expressions under a collation that treats different texts as equal.
    """
    is_long = sa.func.length(column).between(UNIQUE_KEY_CHARACTERS_MIN, UNIQUE_KEY_CHARACTERS_MAX)
    if dialect != "sqlite":
        compared = sa.collate(column, "C") if dialect == "postgresql" else column
        return sa.func.coalesce(is_long & ~compared.regexp_match(_NO_CHARACTER_OF_KEYS), sa.false())
    is_plain = column.op("NOT GLOB", is_comparison=True)(f"*{_NO_CHARACTER_OF_KEYS}*")
    return sa.and_(sa.func.typeof(column) == "text", is_long, is_plain)


def with_keys(sql: str, keys: Sequence[Any]) -> tuple[sa.TextClause, dict[str, Any]]:
    """Returns a statement for SQL with `:keys`, and its parameters. Keys are always bound as parameters."""
    return sa.text(sql).bindparams(sa.bindparam("keys", expanding=True)), {"keys": list(keys)}
