"""The inbox's statements on the caller's connection. The statements write the inbox row, and check at the end whether
the transaction is still the same."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from functools import lru_cache

from reconciler.sql.callers_connection import CallersConnection, UnsafeConnection
from reconciler.sql.driver_errors import driver_error

_NAME = re.compile(r":([a-z_]+)")
_MYSQL_DUPLICATE_ENTRY = 1062  # ER_DUP_ENTRY
_MYSQL_NO_SAVEPOINT = 1305  # ER_SP_DOES_NOT_EXIST
_SAVEPOINT = "reconciler_inbox"


class SqlSession(CallersConnection):
    """A connection of the service, as the inbox uses it. Statements name their parameters as :name. Only one thread
    uses a session."""

    def __init__(self, connection: object) -> None:
        """Raises UnsafeConnection if the connection is of an unknown kind, or is in autocommit."""
        super().__init__(connection)
        self._is_marked = False
        #: SQL expression for the mark of this transaction's incomplete row: PostgreSQL's own transaction id, or :mark.
        self.mark_sql = "CAST(txid_current() AS VARCHAR)" if self.dialect == "postgresql" else ":mark"
        #: The value of :mark. The mark tells the transaction from transactions of other connections. The savepoint
        #: tells the transaction from a later transaction of the same connection.
        self.mark_text = secrets.token_hex(8)
        #: PostgreSQL's id of the transaction that wrote the first row. None: no row was written yet, or the database is
        #: another product.
        self._transaction_id: object = None
        #: The row that was left incomplete last, as parameters of the statement that completes the row. None: no row is
        #: incomplete.
        self.incomplete: Mapping[str, object] | None = None

    def require_guarded(self) -> None:
        """Raises UnsafeConnection if a driver's connection is in autocommit and its transaction was begun by hand.

        After the handler's own rollback, its next statement would be committed at once, without the inbox row, and
        could not be undone.
        """
        if self.is_of_driver and self.is_autocommitting():
            raise UnsafeConnection(
                "the connection is in autocommit, its transaction was begun by hand: after a rollback in the handler "
                "its next effect would be committed without the inbox row. Switch autocommit off (sqlite3: an "
                "isolation_level, or autocommit=False), or pass a SQLAlchemy Engine"
            )

    def insert(self, sql: str, parameters: Mapping[str, object]) -> bool:
        """Runs an INSERT of one row. Returns True if the row was written."""
        if self.dialect != "postgresql":
            return self.execute(self.driver_sql(sql), parameters) == 1
        # The statement returns the transaction's id with the row. A savepoint would cost one more statement and one
        # more transaction id for every effect.
        row = self.select_one(self.driver_sql(f"{sql} RETURNING txid_current()"), parameters)
        if row is not None and self._transaction_id is None:
            self._transaction_id = row[0]
        return row is not None

    def is_duplicate_key(self, error: Exception) -> bool:
        """Returns True if the database refused a row because its key exists. MySQL says so by error 1062 only."""
        return type(driver_error(error)).__name__ == "IntegrityError" and _mysql_number(error) == _MYSQL_DUPLICATE_ENTRY

    def mark(self) -> None:
        """Marks the transaction after the first inbox row, before its handler runs. `is_marked` then knows whether the
        transaction is still the same.

        A handler may roll back and continue. Databases also roll back by themselves: InnoDB at a deadlock (1213),
        SQLite at a full disk or ON CONFLICT ROLLBACK. The next statement then begins another transaction without the
        row, and neither the driver nor SQLAlchemy notices. A savepoint ends with its transaction, so it serves as the
        mark. For PostgreSQL, `insert` keeps the transaction's id instead. If SQLite itself has rolled back, sqlite3
        with autocommit=False (3.12) begins no transaction, so each later statement is durable at once.
        """
        if self.dialect != "postgresql" and not self._is_marked:
            self.execute(f"SAVEPOINT {_SAVEPOINT}", {})
            self._is_marked = True

    def is_marked(self) -> bool:
        """Returns True if the transaction that wrote the first row still lasts. The call ends the mark, so call it
        once, before the commit."""
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

    def driver_sql(self, sql: str) -> str:
        """Returns the statement with the driver's parameters: sqlite3 keeps :name, other drivers get %(name)s."""
        return sql if self.dialect == "sqlite" else _pyformat(sql)


def _mysql_number(error: Exception) -> object:
    original = driver_error(error)
    return original.args[0] if original.args else None


def _lacks_savepoint(error: Exception) -> bool:
    return _mysql_number(error) == _MYSQL_NO_SAVEPOINT or "no such savepoint" in str(error)


@lru_cache(maxsize=64)
def _pyformat(sql: str) -> str:
    return _NAME.sub(r"%(\1)s", sql.replace("%", "%%"))
