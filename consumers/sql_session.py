"""One way to run our few statements on whatever connection the service's handler uses.

SQLAlchemy Session or Connection, or a plain DB-API connection of sqlite3, psycopg (3 or 2) or PyMySQL. Nothing here
begins, commits or rolls back a transaction, but for the autobegin that SQLAlchemy does at the first statement.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session, scoped_session

from reconciler.errors import UsageError

#: DB-API package -> dialect name of reconciler.sql.engines.NOW_MS_SQL.
_DRIVERS = {"sqlite3": "sqlite", "psycopg": "postgresql", "psycopg2": "postgresql", "pymysql": "mysql"}
_NAME = re.compile(r":([a-z_]+)")

_PSYCOPG_IDLE = 0
_PSYCOPG_IN_TRANSACTION = 2
_MYSQL_DUPLICATE_ENTRY = 1062  # ER_DUP_ENTRY
_MYSQL_NO_SAVEPOINT = 1305  # ER_SP_DOES_NOT_EXIST
_MYSQL_IN_TRANSACTION = 1  # SERVER_STATUS_IN_TRANS


_SAVEPOINT = "reconciler_inbox"


class SqlSession:
    """A connection of the service, as far as the inbox needs it. Confined to the thread that owns the connection."""

    def __init__(self, connection: Any) -> None:
        """Raises UsageError for a connection of a kind that is not known, or one in autocommit."""
        self._alchemy: sa.Connection | None = None
        self._owner: sa.Connection | Session | None = None
        if isinstance(connection, scoped_session):
            connection = connection()
        if isinstance(connection, Session):
            self._alchemy = connection.connection()
            self._owner = connection
        elif isinstance(connection, sa.Connection):
            self._alchemy = self._owner = connection
            if not connection.in_transaction():
                connection.begin()
        if self._alchemy is not None:
            self._raw: Any = self._alchemy.connection.driver_connection
            self.dialect = "mysql" if self._alchemy.dialect.name == "mariadb" else self._alchemy.dialect.name
        else:
            # engine.raw_connection() is SQLAlchemy's proxy around the driver's connection.
            self._raw = getattr(connection, "driver_connection", None) or connection
            self.dialect = _DRIVERS.get(_package_of(self._raw), "")
        self._package = _package_of(self._raw)
        self._is_known = self._package in _DRIVERS
        if self.dialect not in _DRIVERS.values():
            raise UsageError(
                f"{type(connection).__module__}.{type(connection).__name__} is no connection that the inbox knows: "
                "pass a SQLAlchemy Session or Connection, or one of sqlite3, psycopg or PyMySQL"
            )
        if self._is_autocommit():
            raise UsageError(
                "the connection is in autocommit: inbox row and effect would not be one transaction. "
                "Begin a transaction, or switch autocommit off"
            )

        self._transaction = None if self._owner is None else self._owner.get_transaction()
        self._is_marked = False

    def execute(self, sql: str, parameters: Mapping[str, object]) -> int:
        """Runs a statement with :names; returns the number of rows it touched."""
        if self._alchemy is not None:
            if self._is_known:
                # SQLAlchemy only passes it on: a text() of its own costs three times as much, for every message.
                return int(self._alchemy.exec_driver_sql(self._driver_sql(sql), dict(parameters)).rowcount)
            return int(self._alchemy.execute(sa.text(sql), parameters).rowcount)
        cursor = self._raw.cursor()
        try:
            cursor.execute(self._driver_sql(sql), dict(parameters))
            return int(cursor.rowcount)
        finally:
            cursor.close()

    def select_one(self, sql: str, parameters: Mapping[str, object]) -> Sequence[Any] | None:
        """The first row of a query with :names."""
        if self._alchemy is not None:
            row = self._alchemy.execute(sa.text(sql), parameters).first()
            return None if row is None else tuple(row)
        cursor = self._raw.cursor()
        try:
            cursor.execute(self._driver_sql(sql), dict(parameters))
            found = cursor.fetchone()
        finally:
            cursor.close()
        if isinstance(found, Mapping):  # DictCursor, dict_row
            return tuple(found.values())
        return None if found is None else tuple(found)

    def is_duplicate_key(self, error: Exception) -> bool:
        """Whether the database refused a row because its key exists: MySQL error 1062 and nothing else."""
        original = getattr(error, "orig", None) or error
        return type(original).__name__ == "IntegrityError" and _mysql_number(error) == _MYSQL_DUPLICATE_ENTRY

    def mark(self) -> None:
        """After the inbox row, before the handler: `is_intact` will know whether it is still the same transaction.

        InnoDB answers a deadlock (1213) by rolling back the whole transaction; the next statement begins another one,
        without the row, and neither driver nor SQLAlchemy hears of it. A savepoint ends with its transaction.
        """
        if self.dialect == "mysql":
            self.execute(f"SAVEPOINT {_SAVEPOINT}", {})
            self._is_marked = True

    def is_intact(self) -> bool:
        """Whether the transaction is the one of the beginning, open and sound.

        An aborted one of PostgreSQL commits as a rollback. A DB-API connection of PostgreSQL or SQLite cannot tell its
        second transaction from its first; SQLAlchemy can.
        """
        if self._owner is not None and self._owner.get_transaction() is not self._transaction:
            return False
        if self._is_marked:
            self._is_marked = False
            try:
                self.execute(f"RELEASE SAVEPOINT {_SAVEPOINT}", {})
            except Exception as error:
                if _mysql_number(error) == _MYSQL_NO_SAVEPOINT:
                    return False
                raise
        if self._package == "sqlite3":
            return bool(self._raw.in_transaction)
        if self._package == "pymysql":
            return bool(self._raw.server_status & _MYSQL_IN_TRANSACTION)
        return self._postgres_status() == _PSYCOPG_IN_TRANSACTION

    def _is_autocommit(self) -> bool:
        if self._package == "sqlite3":
            # Python 3.12 has the attribute autocommit; -1 is the older behaviour ruled by isolation_level.
            mode = getattr(self._raw, "autocommit", -1)
            by_itself = self._raw.isolation_level is None if mode == -1 else mode is True
            return by_itself and not self._raw.in_transaction
        if self._package == "pymysql":
            return bool(self._raw.get_autocommit()) and not self._raw.server_status & _MYSQL_IN_TRANSACTION
        return bool(self._raw.autocommit) and self._postgres_status() == _PSYCOPG_IDLE

    def _postgres_status(self) -> int:
        # libpq's PGTransactionStatusType: 0 idle, 2 in transaction, 3 in a failed one.
        if self._package == "psycopg":
            return int(self._raw.info.transaction_status)
        return int(self._raw.get_transaction_status())

    def _driver_sql(self, sql: str) -> str:
        return sql if self._package == "sqlite3" else _pyformat(sql)  # paramstyle named


def _mysql_number(error: Exception) -> object:
    original = getattr(error, "orig", None) or error
    return original.args[0] if original.args else None


def _package_of(raw: object) -> str:
    return type(raw).__module__.partition(".")[0]


@lru_cache(maxsize=64)
def _pyformat(sql: str) -> str:
    return _NAME.sub(r"%(\1)s", sql.replace("%", "%%"))
