"""Finds columns whose database treats different names or keys as equal: their collation ignores case, accents or more.

Tables of this project compare bytes. A conversion of a whole database, or a user's own migration, may change that. Then
two groups share the rows of one unique index.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from reconciler.contract.schema import Table
from reconciler.contract.tables import INBOX_TABLES, LEDGER_TABLES, OUTBOX_TABLES
from reconciler.sql.engines import reading

FOLDED_REMEDY = (
    "give the columns the collations that `reconciler db sql` shows (MySQL: ascii_bin, utf8mb4_bin; PostgreSQL: a "
    "deterministic one)"
)
_TREES = {"outbox": OUTBOX_TABLES, "inbox": INBOX_TABLES, "ledger": LEDGER_TABLES}
#: Columns by which statements find rows, besides primary keys and unique columns.
_NAMES = frozenset({"topic", "producer_group", "consumer_group"})
_TEXTS = frozenset({"key", "name", "short"})

#: Dialect -> statement for the columns that do not compare bytes, each with its collation or type. MySQL's _cs
#: collations are left out, because they distinguish all characters of names.
_FOLDING = {
    "postgresql": (
        "SELECT a.attname, COALESCE(l.collname, t.typname) FROM pg_catalog.pg_class AS c "
        "JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped "
        "JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid "
        # Read as JSON, because PostgreSQL has this column only from release 12 on.
        "LEFT JOIN pg_catalog.pg_collation AS l ON l.oid = a.attcollation "
        "AND to_jsonb(l) ->> 'collisdeterministic' = 'false' "
        "WHERE c.oid = to_regclass(:name)::oid AND (l.oid IS NOT NULL OR t.typname = 'citext')"
    ),
    "mysql": (
        "SELECT COLUMN_NAME, COLLATION_NAME FROM information_schema.COLUMNS "
        "WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = :name AND COLLATION_NAME IS NOT NULL "
        "AND COLLATION_NAME NOT LIKE '%\\_bin' AND COLLATION_NAME NOT LIKE '%\\_cs' AND COLLATION_NAME <> 'binary'"
    ),
    "sqlite": (
        "SELECT x.name, x.coll FROM pragma_index_list(:name) AS i, pragma_index_xinfo(i.name) AS x "
        "WHERE x.key = 1 AND x.name IS NOT NULL AND x.coll <> 'BINARY'"
    ),
}


def folded_columns(engine: sa.Engine, tree: str, columns: Sequence[str] = ()) -> list[str]:
    """Returns the columns of keys and names that do not compare bytes, as "table.column (collation)".

    `columns`: only these columns; empty: all. A table that is missing or not in the catalogue has no such column.
    Raises DatabaseAway.
    """
    found: set[str] = set()
    for table in _TREES[tree]:
        wanted = frozenset(columns) or _names_of(table)
        found.update(f"{table.name}.{name} ({how})" for name, how in _folding(engine, table) if name in wanted)
    return sorted(found)


def is_exactly(column: sa.ColumnElement[str], text: str, dialect: str) -> sa.ColumnElement[bool]:
    """Returns a condition that is true if the column equals the text byte for byte, whatever its collation ignores."""
    match dialect:
        case "postgresql":
            return sa.collate(column, "C") == text
        case "sqlite":
            return sa.collate(column, "BINARY") == text
        case _:
            return sa.cast(column, sa.BINARY()) == sa.cast(sa.literal(text, sa.String()), sa.BINARY())


def _names_of(table: Table) -> frozenset[str]:
    texts = {column.name for column in table.columns if column.kind in _TEXTS}
    unique = {name for names in table.unique for name in names}
    return frozenset(texts & ({*table.primary_key} | unique | _NAMES))


def _folding(engine: sa.Engine, table: Table) -> list[tuple[str, str]]:
    dialect = "mysql" if engine.dialect.name == "mariadb" else engine.dialect.name
    try:
        with reading(engine) as connection:
            rows = connection.execute(sa.text(_FOLDING[dialect]), {"name": table.name}).all()
    except DBAPIError:  # another product, whose catalogue differs
        return []
    return [(str(column), str(how)) for column, how in rows]
