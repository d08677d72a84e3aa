"""A connection of the caller: its driver, its transaction, and our few statements within that transaction.

Outbox row and business, or inbox row and effect, are one transaction on the service's own connection: a SQLAlchemy
Session or Connection, or a connection of sqlite3, psycopg, psycopg2 or PyMySQL. This module never commits or rolls
back. A transaction is begun only on a SQLAlchemy connection, whose first statement would begin it anyway.

The driver knows about autocommit and an open transaction: sqlite3 by isolation_level (from Python 3.12 on autocommit)
and in_transaction, psycopg by autocommit and libpq's transaction status, PyMySQL by the flags in the server's last
packet.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeAlias

import sqlalchemy as sa

from reconciler.errors import UsageError
from reconciler.sql.single_statements import MARKERS

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

#: Package of the driver's connection class, or of one of its base classes -> dialect.
_DIALECTS = {
    "sqlite3": "sqlite",
    "psycopg": "postgresql",
    "psycopg2": "postgresql",
    "asyncpg": "postgresql",
    "pymysql": "mysql",
}

#: libpq's PGTransactionStatusType. The other values: 1 is a running statement, 3 is a failed transaction.
_POSTGRES_IDLE = 0
_POSTGRES_IN_TRANSACTION = 2
_POSTGRES_UNKNOWN = 4
_MYSQL_IN_TRANSACTION = 1  # SERVER_STATUS_IN_TRANS
_MYSQL_AUTOCOMMIT = 2  # SERVER_STATUS_AUTOCOMMIT

#: Values by position or by name.
Parameters: TypeAlias = tuple[object, ...] | Mapping[str, object]


def _is_of_orm(given: object, name: str) -> bool:
    """Returns True for an object of this class of sqlalchemy.orm. Does not load that package: if it is not loaded, no
    such object exists."""
    return isinstance(given, getattr(sys.modules.get("sqlalchemy.orm"), name, ()))


class UnsafeConnection(UsageError):
    """The connection was refused: it is in autocommit, its driver is unknown, or it leads to another database."""


class CallersConnection:
    """A connection in a transaction. Only the thread that owns the connection uses it."""

    def __init__(self, connection: object) -> None:
        """Raises UnsafeConnection for an unknown kind of connection, or for autocommit outside an explicit
        transaction."""
        given: Any = connection() if callable(connection) and _is_of_orm(connection, "scoped_session") else connection
        self._alchemy: sa.Connection | None = None
        self._owner: sa.Connection | Session | None = None
        raw = given
        is_session = _is_of_orm(given, "Session")
        if is_session or isinstance(given, sa.Connection):
            self._owner = given
            self._alchemy = given.connection() if is_session else given
            if not self._alchemy.in_transaction():
                self._alchemy.begin()
            raw = self._alchemy.connection
        self._package, self._raw = self._driver_of(raw, given)
        self.dialect = _DIALECTS[self._package]
        #: Marker of a parameter in a statement: "%s" or "?".
        self.marker = MARKERS[self.dialect]
        if self.is_autocommitting() and not self._is_in_transaction():
            raise UnsafeConnection(
                "the connection is in autocommit: our row and your business would not be one transaction. Begin a "
                "transaction, or switch autocommit off"
            )
        self._transaction = None if self._owner is None else self._owner.get_transaction()

    def _driver_of(self, raw: Any, given: object) -> tuple[str, Any]:
        """Returns the driver's package and connection. Raises UnsafeConnection for an unknown driver."""
        raw = getattr(raw, "dbapi_connection", None) or raw  # a SQLAlchemy pool's proxy wraps the driver's connection
        return _package_of(raw, given), raw

    @property
    def is_of_driver(self) -> bool:
        """True for a driver's own connection; False if SQLAlchemy keeps the transaction."""
        return self._owner is None

    @property
    def engine(self) -> sa.Engine | None:
        """The connection's SQLAlchemy engine; None for a driver's own connection."""
        return None if self._alchemy is None else self._alchemy.engine

    @property
    def is_pipelined(self) -> bool:
        """True in psycopg's pipeline mode, where no statement shows whether a row was written."""
        return self._package == "psycopg" and bool(int(self._raw.info.pipeline_status))

    def execute(self, sql: str, parameters: Parameters) -> int:
        """Runs one statement and returns the number of rows that it wrote. Errors of driver and SQLAlchemy pass
        through.

        SQLAlchemy must see the statement, because otherwise it would not notice a broken connection. exec_driver_sql
        costs a third of text().
        """
        if self._alchemy is not None:
            return int(self._alchemy.exec_driver_sql(sql, parameters).rowcount)
        with closing(self._raw.cursor()) as cursor:
            cursor.execute(sql, parameters)
            return int(cursor.rowcount)

    def select_one(self, sql: str, parameters: Parameters) -> Sequence[Any] | None:
        """Returns the first row, or None. Raises what execute() raises."""
        if self._alchemy is not None:
            row = self._alchemy.exec_driver_sql(sql, parameters).first()
            return None if row is None else tuple(row)
        with closing(self._raw.cursor()) as cursor:
            if self._package == "psycopg":
                from psycopg.rows import tuple_row  # the driver is optional

                cursor.row_factory = tuple_row  # the service's row factory may make other objects
            cursor.execute(sql, parameters)
            found = cursor.fetchone()
        if isinstance(found, Mapping):  # from the service's DictCursor
            return tuple(found.values())
        return None if found is None else tuple(found)

    def is_open(self) -> bool:
        """Returns True while this transaction, or a later one of the same connection, has not ended."""
        if self._alchemy is not None:
            # A closed connection is back in its pool, and another caller's transaction may use it already.
            return not self._alchemy.closed and self._alchemy.in_transaction()
        return self._is_in_transaction()

    def is_sound(self) -> bool:
        """Returns True while the same transaction is open and can be committed, as far as the client knows.

        Sends nothing to the server. False for a failed transaction of PostgreSQL, because its COMMIT would roll back.
        """
        if not self._is_the_same():
            return False
        if self.dialect == "postgresql":
            return int(self._raw.info.transaction_status) == _POSTGRES_IN_TRANSACTION
        return self._is_in_transaction()

    def is_autocommitting(self) -> bool:
        """Returns True if the driver commits each statement outside an explicit transaction."""
        if self._package == "sqlite3":
            # Python 3.12 and newer have the attribute autocommit. -1 means that isolation_level still decides.
            mode = getattr(self._raw, "autocommit", -1)
            return self._raw.isolation_level is None if mode == -1 else mode is True
        if self._package == "pymysql":
            return bool(self._raw.server_status & _MYSQL_AUTOCOMMIT)
        return bool(self._raw.autocommit)

    def _is_the_same(self) -> bool:
        return self._owner is None or self._owner.get_transaction() is self._transaction

    def _is_in_transaction(self) -> bool:
        if self._package == "sqlite3":
            try:
                return bool(self._raw.in_transaction)
            except sqlite3.ProgrammingError as error:
                # A closed connection was rolled back. After another error, such as of a wrong thread, assume a
                # transaction.
                return "closed" not in str(error)
        if self._package == "pymysql":
            return bool(self._raw.open and self._raw.server_status & _MYSQL_IN_TRANSACTION)
        return int(self._raw.info.transaction_status) not in (_POSTGRES_IDLE, _POSTGRES_UNKNOWN)


def package_of(kind: type) -> str:
    """Returns the package of a class."""
    return kind.__module__.partition(".")[0]


def _package_of(raw: object, given: object) -> str:
    if given is None:
        raise UnsafeConnection(
            "None is no connection: in Django, connection.connection is None until Django has connected: pass it "
            "inside transaction.atomic()"
        )
    kinds = type(raw).__mro__
    if hasattr(raw, "cursor") and not any(kind.__name__.startswith("Async") for kind in kinds):
        for kind in kinds:
            package = package_of(kind)
            if package in _DIALECTS:
                return package
    raise UnsafeConnection(
        f"{type(given).__module__}.{type(given).__qualname__} is no connection that is known here: pass a SQLAlchemy "
        "Session or Connection, or a connection of sqlite3, psycopg, psycopg2 or PyMySQL (Django: "
        "connection.connection)"
    )
