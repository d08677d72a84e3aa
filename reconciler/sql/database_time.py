"""Database time: the present time by the database's own clock, for statements and rows."""

from __future__ import annotations

import sqlalchemy as sa

#: SQL for the present time by the database's own clock, also within a long transaction, in milliseconds since 1970 UTC.
#: SQLite's julianday is a double and often a little too small, so it is rounded, and not cut to the millisecond before.
NOW_MS_SQL = {
    "sqlite": "CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)",
    "postgresql": "CAST(extract(epoch from clock_timestamp()) * 1000 AS BIGINT)",
    # UNIX_TIMESTAMP takes a local time, which is ambiguous in the hour that is repeated when summer time ends.
    "mysql": "CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 AS SIGNED)",
    "mariadb": "CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 AS SIGNED)",
}


def now_ms_sql(dialect: str) -> str:
    """Returns the SQL expression of database time in milliseconds, for text statements."""
    return NOW_MS_SQL[dialect]


def now_ms(dialect: str) -> sa.ColumnElement[int]:
    """Returns NOW_MS_SQL as an expression for SQLAlchemy statements."""
    return sa.literal_column(NOW_MS_SQL[dialect], sa.BigInteger())


def asked_once(now: sa.ColumnElement[int], dialect: str) -> sa.ColumnElement[int]:
    """Returns database time as one value: PostgreSQL would evaluate clock_timestamp for each row, and use no index."""
    return sa.select(now).scalar_subquery() if dialect == "postgresql" else now


def database_now_ms(connection: sa.Connection) -> int:
    """Reads database time."""
    return int(connection.execute(sa.select(now_ms(connection.dialect.name))).scalar_one())
