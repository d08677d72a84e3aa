"""SQLAlchemy tables made from the definitions in contract/tables.py, for our queries and for users' migrations."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from reconciler.contract import tables as contract
from reconciler.contract.schema import ColumnKind, Table
from reconciler.errors import warn_of_former_paths

_ASCII = {"charset": "ascii", "collation": "ascii_bin"}


def _key(length: int) -> sa.types.TypeEngine[Any]:
    # ascii_bin compares keys byte by byte. MySQL's default collation would ignore case.
    return sa.String(length).with_variant(mysql.VARCHAR(length, **_ASCII), "mysql", "mariadb")


def _name(length: int) -> sa.types.TypeEngine[Any]:
    return sa.String(length).with_variant(
        mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
    )


def _text() -> sa.types.TypeEngine[Any]:
    return sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4"), "mysql", "mariadb")


def _bytes() -> sa.types.TypeEngine[Any]:
    return sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")


def column_type(kind: ColumnKind) -> sa.types.TypeEngine[Any]:
    """Returns the SQL type of a kind. The lengths keep each index below MySQL's limit of 3072 bytes."""
    match kind:
        case "key":
            return _key(64)
        case "name":
            return _name(160)
        case "short":
            return _key(32)
        case "text" | "json":
            return _text()
        case "bytes":
            return _bytes()
        case "digest":
            return sa.LargeBinary(32).with_variant(mysql.VARBINARY(32), "mysql", "mariadb")
        case "integer":
            return sa.Integer()
        case "bigint":
            return sa.BigInteger()


def _has_partial_indexes(*_: object, dialect: sa.Dialect, **_others: object) -> bool:
    return dialect.name in ("postgresql", "sqlite")


def build_table(table: Table, metadata: sa.MetaData) -> sa.Table:
    """Makes one SQLAlchemy table in the given metadata, with its indexes and unique constraints."""
    columns = [
        sa.Column(
            c.name,
            column_type(c.kind),
            primary_key=c.name in table.primary_key,
            nullable=c.nullable,
            autoincrement=False,
            comment=c.doc,
        )
        for c in table.columns
    ]
    short = table.name.removeprefix("reconciler_")
    built = sa.Table(
        table.name,
        metadata,
        *columns,
        comment=table.doc,
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mariadb_engine="InnoDB",
        mariadb_charset="utf8mb4",
    )
    for names in table.indexes:
        sa.Index(f"ix_reconciler_{short}_{'_'.join(n.split('_')[0] for n in names)}", *(built.c[n] for n in names))
    for names in table.sparse_indexes:
        has_value = built.c[names[-1]].is_not(None)
        sa.Index(
            f"ix_reconciler_{short}_{'_'.join(n.split('_')[0] for n in names)}",
            *(built.c[n] for n in names),
            postgresql_where=has_value,
            sqlite_where=has_value,
        )
    if table.undecided_index:
        is_undecided = built.c[table.undecided_index[-1]].is_not(None)
        sa.Index(
            f"ix_reconciler_{short}_undecided",
            *(built.c[name] for name in table.undecided_index),
            postgresql_where=is_undecided,
            sqlite_where=is_undecided,
        )
    for index in table.page_indexes:
        only = None if index.only_with is None else built.c[index.only_with].is_not(None)
        about = [name for name in (index.within, index.only_with, index.time) if name is not None]
        made = sa.Index(
            f"ix_reconciler_{short}_page_{'_'.join(n.split('_')[0] for n in about)}",
            *(built.c[name] for name in table.columns_of(index)),
            postgresql_where=only,
            sqlite_where=only,
        )
        if index.only_with is not None:
            made.ddl_if(callable_=_has_partial_indexes)
    if table.count_index:
        sa.Index(
            f"ix_reconciler_{short}_count",
            *(built.c[name] for name in table.count_index),
            postgresql_where=has_any_value(built.c[table.count_index[-1]]),
        )
    for names in table.unique:
        sa.Index(
            f"uq_reconciler_{short}_{'_'.join(n.split('_')[0] for n in names)}",
            *(built.c[n] for n in names),
            unique=True,
        )
    return built


def has_any_value(column: sa.Column[Any]) -> sa.ColumnElement[bool]:
    """Returns a condition that is true for every row. PostgreSQL uses an index with this condition only for a statement
    that has the same condition."""
    return column >= sa.literal_column("'-9223372036854775808'::bigint")


outbox_metadata = sa.MetaData()
inbox_metadata = sa.MetaData()
ledger_metadata = sa.MetaData()

outbox = build_table(contract.OUTBOX, outbox_metadata)
outbox_identity = build_table(contract.OUTBOX_IDENTITY, outbox_metadata)
outbox_filter = build_table(contract.OUTBOX_FILTER, outbox_metadata)
inbox = build_table(contract.INBOX, inbox_metadata)
candidate = build_table(contract.CANDIDATE, ledger_metadata)
repair = build_table(contract.REPAIR, ledger_metadata)
round_row = build_table(contract.ROUND, ledger_metadata)
subscription_row = build_table(contract.SUBSCRIPTION, ledger_metadata)
half = build_table(contract.HALF, ledger_metadata)
floor = build_table(contract.FLOOR, ledger_metadata)
outage = build_table(contract.OUTAGE, ledger_metadata)
hold = build_table(contract.HOLD, ledger_metadata)
broker = build_table(contract.BROKER, ledger_metadata)
environment_row = build_table(contract.ENVIRONMENT, ledger_metadata)
quarantine = build_table(contract.QUARANTINE, ledger_metadata)
operator_action = build_table(contract.OPERATOR_ACTION, ledger_metadata)
job = build_table(contract.JOB, ledger_metadata)
idempotency_key = build_table(contract.IDEMPOTENCY_KEY, ledger_metadata)
notice = build_table(contract.NOTICE, ledger_metadata)


def column_names(connection: sa.Connection, table: str) -> frozenset[str]:
    """Returns the columns that a table has in the database, which may be of another release. Empty: the table does not
    exist."""
    try:
        return frozenset(column["name"] for column in sa.inspect(connection).get_columns(table))
    except sa.exc.NoSuchTableError:
        return frozenset()


#: Dialect -> statement that asks whether a name belongs to a table with its own rows, such as MariaDB's versioned
#: tables.
_IS_TABLE = {
    "postgresql": "SELECT relkind IN ('r', 'p') FROM pg_catalog.pg_class WHERE oid = to_regclass(:name)",
    "mysql": "SELECT TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') FROM information_schema.TABLES "
    "WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = :name",
    "sqlite": "SELECT type = 'table' FROM sqlite_master WHERE name = :name",
}


def is_view(connection: sa.Connection, table: str) -> bool:
    """Returns True if the name belongs to a view, a foreign table, or anything else that shows rows of other tables.
    Returns False, too, if the catalogue does not show the name. Raises the driver's errors."""
    dialect = "mysql" if connection.dialect.name == "mariadb" else connection.dialect.name
    is_table = connection.scalar(sa.text(_IS_TABLE[dialect]), {"name": table})
    return is_table is not None and not is_table


def is_whole_number(column: sa.ColumnElement[int], dialect: str) -> sa.ColumnElement[bool]:
    """Returns a condition that is false for text, bytes and fractions. Only SQLite stores these in a column of whole
    numbers."""
    return sa.func.typeof(column) == "integer" if dialect == "sqlite" else sa.true()


warn_of_former_paths(
    __name__,
    {
        **dict.fromkeys(("outbox", "outbox_identity", "outbox_filter"), "checkback_producers.tables"),
        "inbox": "checkback_consumers.tables",
    },
)
