"""Rows of many keys at once, by one index probe a key, whatever the planner believes about the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql


def probe(
    connection: sa.Connection,
    query: sa.Select[Any],
    column: sa.Column[str],
    keys: Sequence[str],
    *,
    always: sa.Subquery | None = None,
) -> sa.CursorResult[Any]:
    """Executes the query for those of its rows whose column is one of the keys, in no order. Columns keep their names.

    `always`: one row whose columns come first in every row; without a match they stand in one row beside NULLs.

    PostgreSQL answers `IN (500 keys)` by reading all rows of a subscription while its statistics are missing or old,
    and on a table that has just grown they are; its driver needs 7 ms for 500 parameters, besides. A LATERAL subquery
    with OFFSET is planned by itself, for one key. Other databases probe the index for a list.
    """
    if connection.dialect.name == "postgresql":
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
