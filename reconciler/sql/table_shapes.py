"""Compares the tables of a database with their definitions: what a person dropped, renamed or altered.

Promises rest on the primary keys and unique indexes, on the types of columns, and on transactions: without its primary
key an inbox takes a message twice, an outbox without transactions keeps the row of an order that was rolled back, and a
crash of the server empties an UNLOGGED table of PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.engine.interfaces import ReflectedColumn
from sqlalchemy.exc import DBAPIError

from reconciler.clock import Clock
from reconciler.contract.schema import Column, Table
from reconciler.contract.tables import INBOX_TABLES, LATER_TABLES, LEDGER_TABLES, OUTBOX_TABLES
from reconciler.errors import ConfigurationError, DatabaseAway, DatabaseSilent, StatementTooSlow
from reconciler.sql.driver_errors import shown, translate
from reconciler.sql.engines import reading
from reconciler.sql.rights import Right, refused_rights
from reconciler.sql.tables import column_type, inbox_metadata, is_view, ledger_metadata, outbox_metadata

_TREES = {
    "outbox": (OUTBOX_TABLES, outbox_metadata),
    "inbox": (INBOX_TABLES, inbox_metadata),
    "ledger": (LEDGER_TABLES, ledger_metadata),
}
_TEXTS = frozenset({"key", "name", "short", "text", "json"})
_BYTES = frozenset({"bytes", "digest"})
_BINARY = (sa.LargeBinary, sa.BINARY, sa.VARBINARY, sa.BLOB, mysql.MEDIUMBLOB, mysql.LONGBLOB)
#: Names and engines of our tables of MySQL and MariaDB that have no transactions. A view has no engine.
WITHOUT_TRANSACTIONS = (
    "SELECT t.TABLE_NAME, t.ENGINE FROM information_schema.TABLES AS t "
    "JOIN information_schema.ENGINES AS e ON e.ENGINE = t.ENGINE "
    "WHERE t.TABLE_SCHEMA = DATABASE() AND LEFT(t.TABLE_NAME, 11) = 'reconciler_' AND e.TRANSACTIONS = 'NO'"
)
#: Names of our tables of PostgreSQL that a crash of the server empties, or a partition of which it empties.
_UNLOGGED = (
    "SELECT one.relname FROM pg_catalog.pg_class AS one "
    "WHERE LEFT(one.relname, 11) = 'reconciler_' AND one.relkind IN ('r', 'p') AND pg_table_is_visible(one.oid) "
    "AND (one.relpersistence = 'u' OR EXISTS (SELECT 1 FROM pg_catalog.pg_inherits AS part JOIN pg_catalog.pg_class "
    "AS of_it ON of_it.oid = part.inhrelid WHERE part.inhparent = one.oid AND of_it.relpersistence = 'u'))"
)

#: Errors of a statement that got no answer, from a server that may well know the engines.
_UNANSWERED = (StatementTooSlow, DatabaseSilent)
#: The engines of the ledger's tables are looked at again after this time.
TRANSACTIONS_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShapes:
    """What differs, as texts for people. Tables that the login may not see are left out."""

    #: Names of tables that do not exist.
    missing: Sequence[str] = field(default_factory=list)
    #: "table (column, column)": a primary key or unique index that does not exist.
    not_unique: Sequence[str] = field(default_factory=list)
    #: "table.column": the column does not exist, or "table.column TYPE" that cannot hold each value.
    columns: Sequence[str] = field(default_factory=list)
    #: "table (ENGINE)".
    without_transactions: Sequence[str] = field(default_factory=list)
    #: Names of tables that a crash of the server empties.
    unlogged: Sequence[str] = field(default_factory=list)
    #: "table (column, column)": an index that does not exist. Statements become slow.
    indexes: Sequence[str] = field(default_factory=list)


def read_shapes(engine: sa.Engine, tree: str) -> TableShapes:
    """Reads the catalogue of the database. A view has no shape. Raises DatabaseAway."""
    tables, metadata = _TREES[tree]
    with reading(engine) as connection:
        if tree in ("outbox", "inbox") and is_view(connection, tables[0].name):
            return TableShapes()
        inspector, dialect = sa.inspect(connection), connection.dialect.name
        present = set(inspector.get_table_names())
        known = [table for table in tables if table.name in present]
        unique = {table.name: _unique(inspector, table.name) for table in known}
        indexes = {table.name: _indexes(inspector, table.name) for table in known}
        columns = {table.name: {one["name"]: one for one in inspector.get_columns(table.name)} for table in known}
        without_transactions = _without_transactions(connection, tree) if has_engines(engine) else []
        unlogged = _unlogged(connection) if dialect == "postgresql" else frozenset()
    return TableShapes(
        missing=_missing(engine, tables, metadata, present),
        not_unique=[
            f"{table.name} ({', '.join(names)})"
            for table in known
            for names in (table.primary_key, *table.unique)
            if frozenset(names) not in unique[table.name]
        ],
        columns=[text for table in known for text in _altered(table, columns[table.name], dialect)],
        without_transactions=without_transactions,
        unlogged=sorted(unlogged & metadata.tables.keys()),
        indexes=[
            f"{table.name} ({', '.join(names)})"
            for table in known
            for names in _wanted(table, dialect)
            if not any(one[: len(names)] == names for one in indexes[table.name])
        ],
    )


def missing_tables(engine: sa.Engine, tree: str) -> list[str]:
    """Returns the tables that do not exist. Tables of releases after 0.2.0 may be missing. Raises DatabaseAway.

    MySQL and MariaDB do not list a table to which the login has no right, so a table that may not be read counts as
    existing. If the outbox or the inbox is a view, no other table is required.
    """
    tables, metadata = _TREES[tree]
    with reading(engine) as connection:
        if tree in ("outbox", "inbox") and is_view(connection, tables[0].name):
            return []
        present = set(sa.inspect(connection).get_table_names())
    return _missing(engine, tables, metadata, present)


def _missing(engine: sa.Engine, tables: Sequence[Table], metadata: sa.MetaData, present: Collection[str]) -> list[str]:
    needed = (one.name for one in tables if one.name not in LATER_TABLES)
    unseen = [Right("SELECT", metadata.tables[name]) for name in needed if name not in present]
    refused = refused_rights(engine, unseen)
    return [one.table.name for one in unseen if one not in refused]


class LedgerTransactions:
    """Makes sure that the ledger's tables have transactions, and looks at them again now and then, because somebody may
    alter a table while processes run. Shared by threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: When all tables had transactions, in monotonic seconds.
        self._seen_at = float("-inf")

    def require(self, connection: sa.Connection) -> None:
        """Raises DatabaseAway if a table keeps rows of transactions that were rolled back. Once it is altered back, the
        next call finds that."""
        now = self._clock.monotonic_seconds()
        if not has_engines(connection.engine) or now - self._seen_at < TRANSACTIONS_SECONDS:
            return
        found = _without_transactions(connection, "ledger")
        if found:
            raise DatabaseAway(
                f"{shown(connection.engine)}: tables keep rows of transactions that were rolled back: "
                f"{', '.join(found)}",
                remedy="ALTER TABLE ... ENGINE=InnoDB for each of them",
            )
        self._seen_at = now


def has_engines(engine: sa.Engine) -> bool:
    """Returns True for MySQL and MariaDB, in which a table may have no transactions."""
    return engine.dialect.name in ("mysql", "mariadb")


def require_lasting_rows(engine: sa.Engine, table: str) -> None:
    """Raises ConfigurationError if rows of the table prove nothing: the table keeps those of transactions that were
    rolled back, or loses those that were committed. Raises DatabaseAway."""
    require_transactions(engine, table)
    if is_unlogged(engine, table):
        raise ConfigurationError(
            f"{shown(engine)}: {table} is UNLOGGED, so that a crash of the server empties it: "
            f"ALTER TABLE {table} SET LOGGED"
        )


def is_unlogged(engine: sa.Engine, table: str) -> bool:
    """Returns True if a crash of the server empties the table. Raises DatabaseAway."""
    if engine.dialect.name != "postgresql":
        return False
    with reading(engine) as connection:
        return table in _unlogged(connection)


def require_transactions(engine: sa.Engine, table: str) -> None:
    """Raises ConfigurationError if the table keeps rows of transactions that were rolled back. Raises DatabaseAway."""
    if not has_engines(engine):
        return
    with reading(engine) as connection:
        kind = _engines(connection, f"{WITHOUT_TRANSACTIONS} AND t.TABLE_NAME = '{table}'").get(table)
    if kind is not None:
        raise lacks_transactions(shown(engine), table, kind)


def lacks_transactions(database: str, table: str, kind: str) -> ConfigurationError:
    """Returns the error of a table whose engine has no transactions."""
    return ConfigurationError(
        f"{database}: {table} has the engine {kind}, which keeps the rows of transactions that were rolled back: "
        f"ALTER TABLE {table} ENGINE=InnoDB"
    )


def _without_transactions(connection: sa.Connection, tree: str) -> list[str]:
    """Returns "table (ENGINE)" for each such table of the tree."""
    _, metadata = _TREES[tree]
    return [f"{name} ({kind})" for name, kind in _engines(connection).items() if name in metadata.tables]


def _engines(connection: sa.Connection, sql: str = WITHOUT_TRANSACTIONS) -> dict[str, str]:
    return {str(name): str(kind) for name, kind in _catalogue(connection, sql)}


def _unlogged(connection: sa.Connection) -> frozenset[str]:
    return frozenset(str(name) for (name,) in _catalogue(connection, _UNLOGGED))


def _catalogue(connection: sa.Connection, sql: str) -> Sequence[Any]:
    """Returns the rows of a statement to the database's catalogue. Another product's catalogue has none."""
    try:
        return connection.exec_driver_sql(sql).all()
    except DBAPIError as error:
        if error.connection_invalidated or isinstance(translate(error, connection.engine), _UNANSWERED):
            raise
        return ()


def _unique(inspector: sa.Inspector, table: str) -> set[frozenset[str | None]]:
    """Returns the columns of each primary key, unique index and unique constraint that covers all rows."""
    whole: list[tuple[str | None, ...]] = [
        tuple(one["column_names"])
        for one in inspector.get_indexes(table)
        if one["unique"] and not {"postgresql_where", "sqlite_where"} & {*one.get("dialect_options", {})}
    ]
    whole += [tuple(one["column_names"]) for one in inspector.get_unique_constraints(table)]
    whole.append(tuple(inspector.get_pk_constraint(table)["constrained_columns"]))
    return {frozenset(names) for names in whole}


def _indexes(inspector: sa.Inspector, table: str) -> list[tuple[str | None, ...]]:
    names = [tuple(one["column_names"]) for one in inspector.get_indexes(table)]
    names += [tuple(one["column_names"]) for one in inspector.get_unique_constraints(table)]
    return [*names, tuple(inspector.get_pk_constraint(table)["constrained_columns"])]


def _wanted(table: Table, dialect: str) -> Iterator[tuple[str, ...]]:
    """Yields the columns of each index that is not unique."""
    has_partial = dialect in ("postgresql", "sqlite")
    yield from (*table.indexes, *table.sparse_indexes)
    yield from (table.columns_of(one) for one in table.page_indexes if one.only_with is None or has_partial)
    yield from (names for names in (table.count_index, table.undecided_index) if names)


def _altered(table: Table, found: Mapping[str, ReflectedColumn], dialect: str) -> Iterator[str]:
    for column in table.columns:
        one = found.get(column.name)
        if one is None:
            yield f"{table.name}.{column.name}"
        elif not _holds(column, one["type"], dialect):
            yield f"{table.name}.{column.name} {one['type']}"


def _holds(column: Column, found: sa.types.TypeEngine[Any], dialect: str) -> bool:
    """Returns False if the type changes or refuses values of the column. An unknown type counts as fitting."""
    if isinstance(found, sa.types.NullType):
        return True
    if column.kind in _TEXTS:
        wanted = getattr(column_type(column.kind), "length", None)
        length = getattr(found, "length", None)
        is_short = wanted is not None and length is not None and length < wanted
        # CHAR fills texts with blanks.
        return isinstance(found, sa.String) and not isinstance(found, sa.CHAR) and not is_short
    if column.kind in _BYTES:
        return isinstance(found, _BINARY)
    is_wide = column.kind != "bigint" or dialect == "sqlite" or isinstance(found, sa.BigInteger)
    return isinstance(found, sa.Integer) and is_wide
