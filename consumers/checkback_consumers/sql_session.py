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
from reconciler.sql.engines import driver_error

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
        #: PostgreSQL's id of the transaction that has the first row.
        self._transaction_id: object = None

    def require_guarded(self) -> None:
        """Raises UsageError for a driver's connection in autocommit whose transaction was begun by hand.

        After a rollback of the handler's own its next statement would be committed at once, without the inbox row:
        nothing at the end could take that back.
        """
        if self._owner is None and self._autocommits():
            raise UsageError(
                "the connection is in autocommit, its transaction was begun by hand: after a rollback in the handler "
                "its next effect would be committed without the inbox row. Switch autocommit off (sqlite3: an "
                "isolation_level, or autocommit=False), or pass a SQLAlchemy Engine"
            )

    def insert(self, sql: str, parameters: Mapping[str, object]) -> bool:
        """Runs an INSERT of one row with :names; whether the row was written."""
        if self.dialect != "postgresql":
            return self.execute(sql, parameters) == 1
        # The id comes with the row: a savepoint would cost one more statement, and an id of its own for every effect.
        row = self.select_one(f"{sql} RETURNING txid_current()", parameters)
        if row is not None and self._transaction_id is None:
            self._transaction_id = row[0]
        return row is not None

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
        """The first row that a statement with :names gives."""
        if self._alchemy is not None:
            if self._is_known:
                row = self._alchemy.exec_driver_sql(self._driver_sql(sql), dict(parameters)).first()
            else:
                row = self._alchemy.execute(sa.text(sql), parameters).first()
            return None if row is None else tuple(row)
        cursor = self._raw.cursor()
        try:
            if self._package == "psycopg":
                from psycopg.rows import tuple_row  # only who has the driver

                cursor.row_factory = tuple_row  # the service's may make objects of rows
            cursor.execute(self._driver_sql(sql), dict(parameters))
            found = cursor.fetchone()
        finally:
            cursor.close()
        if isinstance(found, Mapping):  # DictCursor
            return tuple(found.values())
        return None if found is None else tuple(found)

    def is_duplicate_key(self, error: Exception) -> bool:
        """Whether the database refused a row because its key exists: MySQL error 1062 and nothing else."""
        return type(driver_error(error)).__name__ == "IntegrityError" and _mysql_number(error) == _MYSQL_DUPLICATE_ENTRY

    def mark(self) -> None:
        """After the first inbox row, before its handler: `is_marked` will know if it is still the same transaction.

        A handler may roll back and go on, and databases do so by themselves: InnoDB at a deadlock (1213), SQLite at a
        full disk or ON CONFLICT ROLLBACK. The next statement begins another transaction, without the row, and neither
        driver nor SQLAlchemy hears of it. A savepoint ends with its transaction; `insert` has PostgreSQL's id.
        """
        if self.dialect != "postgresql" and not self._is_marked:
            self.execute(f"SAVEPOINT {_SAVEPOINT}", {})
            self._is_marked = True

    def is_intact(self) -> bool:
        """Whether a sound transaction is open, as far as the client knows. Asks no server, so after every handler.

        An aborted one of PostgreSQL commits as a rollback.
        """
        if self._owner is not None and self._owner.get_transaction() is not self._transaction:
            return False
        if self._package == "sqlite3":
            return bool(self._raw.in_transaction)
        if self._package == "pymysql":
            return bool(self._raw.server_status & _MYSQL_IN_TRANSACTION)
        return self._postgres_status() == _PSYCOPG_IN_TRANSACTION

    def is_marked(self) -> bool:
        """Whether the transaction is still the one of the first row; ends the mark. Once, before the commit."""
        if self._transaction_id is not None:
            found = self.select_one("SELECT txid_current()", {})
            return found is not None and found[0] == self._transaction_id
        if self._is_marked:
            self._is_marked = False
            try:
                self.execute(f"RELEASE SAVEPOINT {_SAVEPOINT}", {})
            except Exception as error:
                if _lacks_savepoint(error):
                    return False
                raise
        return True

    def _is_autocommit(self) -> bool:
        """Autocommit, and no transaction was begun by hand."""
        if not self._autocommits():
            return False
        if self._package == "sqlite3":
            return not self._raw.in_transaction
        if self._package == "pymysql":
            return not self._raw.server_status & _MYSQL_IN_TRANSACTION
        return self._postgres_status() == _PSYCOPG_IDLE

    def _autocommits(self) -> bool:
        if self._package == "sqlite3":
            # Python 3.12 has the attribute autocommit; -1 is the older behaviour ruled by isolation_level.
            mode = getattr(self._raw, "autocommit", -1)
            return self._raw.isolation_level is None if mode == -1 else mode is True
        if self._package == "pymysql":
            return bool(self._raw.get_autocommit())
        return bool(self._raw.autocommit)

    def _postgres_status(self) -> int:
        # libpq's PGTransactionStatusType: 0 idle, 2 in transaction, 3 in a failed one.
        if self._package == "psycopg":
            return int(self._raw.info.transaction_status)
        return int(self._raw.get_transaction_status())

    def _driver_sql(self, sql: str) -> str:
        return sql if self._package == "sqlite3" else _pyformat(sql)  # paramstyle named


def _mysql_number(error: Exception) -> object:
    original = driver_error(error)
    return original.args[0] if original.args else None


def _lacks_savepoint(error: Exception) -> bool:
    return _mysql_number(error) == _MYSQL_NO_SAVEPOINT or "no such savepoint" in str(error)


def _package_of(raw: object) -> str:
    return type(raw).__module__.partition(".")[0]


@lru_cache(maxsize=64)
def _pyformat(sql: str) -> str:
    return _NAME.sub(r"%(\1)s", sql.replace("%", "%%"))
