"""The caller's connection, as far as `record` needs it: its driver, its transaction, one statement.

Autocommit and "in a transaction" are the driver's own notions: sqlite3's isolation_level (3.12: autocommit) and
in_transaction, psycopg's autocommit and libpq's transaction status, PyMySQL's status flags of the last packet.
"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session, scoped_session

from checkback_producers.errors import UnsafeConnection

#: Package of the DB-API connection -> dialect and the marker of a parameter.
_DRIVERS = {"sqlite3": ("sqlite", "?"), "psycopg": ("postgresql", "%s"), "pymysql": ("mysql", "%s")}

_POSTGRES_IDLE = 0  # libpq PGTransactionStatusType: 0 idle, 1 active, 2 in transaction, 3 in a failed one, 4 unknown
_POSTGRES_UNKNOWN = 4
_MYSQL_IN_TRANSACTION = 1  # SERVER_STATUS_IN_TRANS
_MYSQL_AUTOCOMMIT = 2  # SERVER_STATUS_AUTOCOMMIT


class LocalConnection:
    """A connection in a transaction. Confined to the thread that owns the connection."""

    def __init__(self, connection: object) -> None:
        """Raises UnsafeConnection for an unknown kind, or for autocommit outside an explicit transaction.

        A SQLAlchemy Session or Connection begins its transaction here, if it has none, as at any first statement.
        """
        if isinstance(connection, scoped_session):
            connection = connection()
        if isinstance(connection, Session):
            connection = connection.connection()
        self._alchemy: sa.Connection | None = None
        raw: Any = connection
        if isinstance(connection, sa.Connection):
            self._alchemy = connection
            if not connection.in_transaction():
                connection.begin()
            raw = connection.connection
        # A SQLAlchemy pool's proxy wraps the driver's connection.
        self._raw: Any = getattr(raw, "dbapi_connection", None) or raw
        self._package, (self.dialect, self.marker) = _driver_of(self._raw, connection)
        if self._is_autocommit():
            raise UnsafeConnection(
                "the connection is in autocommit: outbox row and business would not be one transaction; "
                "begin a transaction, or switch autocommit off"
            )
        if self._package == "psycopg" and int(self._raw.info.pipeline_status):
            raise UnsafeConnection("the connection is in pipeline mode, where nothing tells whether a row was written")

    def execute(self, sql: str, parameters: tuple[object, ...]) -> int:
        """Runs one statement; returns the number of rows it wrote. The driver's errors pass, SQLAlchemy's around them.

        SQLAlchemy must see the statement, or it would not notice that the connection is broken.
        """
        if self._alchemy is not None:
            return int(self._alchemy.exec_driver_sql(sql, parameters).rowcount)
        with contextlib.closing(self._raw.cursor()) as cursor:
            cursor.execute(sql, parameters)
            return int(cursor.rowcount)

    def is_open(self) -> bool:
        """True while the transaction, or a later one of the same connection, is not ended."""
        if self._alchemy is not None:
            # A connection that went back to its pool may be in somebody else's transaction already.
            return not self._alchemy.closed and self._alchemy.in_transaction()
        return self._is_in_transaction()

    def _is_in_transaction(self) -> bool:
        if self._package == "sqlite3":
            try:
                return bool(self._raw.in_transaction)
            except sqlite3.ProgrammingError as error:
                # Closed means rolled back; another thread's connection cannot be asked.
                return "closed" not in str(error)
        if self._package == "psycopg":
            return int(self._raw.info.transaction_status) not in (_POSTGRES_IDLE, _POSTGRES_UNKNOWN)
        return bool(self._raw.open and self._raw.server_status & _MYSQL_IN_TRANSACTION)

    def _is_autocommit(self) -> bool:
        if self._is_in_transaction():
            return False  # begun explicitly
        if self._package == "sqlite3":
            # Python 3.12 has the attribute autocommit; -1 is the older control by isolation_level.
            mode = getattr(self._raw, "autocommit", -1)
            return self._raw.isolation_level is None if mode == -1 else mode is True
        if self._package == "psycopg":
            return bool(self._raw.autocommit)
        return bool(self._raw.server_status & _MYSQL_AUTOCOMMIT)


def _driver_of(raw: object, given: object) -> tuple[str, tuple[str, str]]:
    kinds = type(raw).__mro__
    for kind in kinds:
        package = kind.__module__.partition(".")[0]
        if package in _DRIVERS and hasattr(raw, "cursor") and not any(k.__name__.startswith("Async") for k in kinds):
            return package, _DRIVERS[package]
    raise UnsafeConnection(
        f"{type(given).__module__}.{type(given).__qualname__} is no connection that record() knows: pass a SQLAlchemy "
        "Session or Connection, or a connection of sqlite3, psycopg 3 or PyMySQL (Django: connection.connection)"
    )
