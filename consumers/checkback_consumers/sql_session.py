"""The inbox's part of the caller's connection: its row, and whether its transaction is still the same at the end."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from functools import lru_cache

from reconciler.sql.callers_connection import CallersConnection, UnsafeConnection
from reconciler.sql.engines import driver_error

_NAME = re.compile(r":([a-z_]+)")
_MYSQL_DUPLICATE_ENTRY = 1062  # ER_DUP_ENTRY
_MYSQL_NO_SAVEPOINT = 1305  # ER_SP_DOES_NOT_EXIST
_SAVEPOINT = "reconciler_inbox"


class SqlSession(CallersConnection):
    """A connection of the service, as far as the inbox needs it. Statements have :names. Confined to one thread."""

    def __init__(self, connection: object) -> None:
        """Raises UnsafeConnection for a connection of a kind that is not known, or one in autocommit."""
        super().__init__(connection)
        self._is_marked = False
        #: What an incomplete row of this transaction has, as an expression: PostgreSQL's own id of the transaction.
        self.mark_sql = "CAST(txid_current() AS VARCHAR)" if self.dialect == "postgresql" else ":mark"
        #: Value of :mark. It tells this transaction from others; from a later one of the connection the savepoint does.
        self.mark_text = secrets.token_hex(8)
        #: PostgreSQL's id of the transaction that has the first row; None: no row yet, or another database.
        self._transaction_id: object = None
        #: What names the row that was left incomplete last, as parameters of the statement that completes it.
        self.incomplete: Mapping[str, object] | None = None

    def require_guarded(self) -> None:
        """Raises UnsafeConnection for a driver's connection in autocommit whose transaction was begun by hand.

        After a rollback of the handler's own its next statement would be committed at once, without the inbox row:
        nothing at the end could take that back.
        """
        if self.is_of_driver and self.is_autocommitting():
            raise UnsafeConnection(
                "the connection is in autocommit, its transaction was begun by hand: after a rollback in the handler "
                "its next effect would be committed without the inbox row. Switch autocommit off (sqlite3: an "
                "isolation_level, or autocommit=False), or pass a SQLAlchemy Engine"
            )

    def insert(self, sql: str, parameters: Mapping[str, object]) -> bool:
        """Runs an INSERT of one row; True if the row was written."""
        if self.dialect != "postgresql":
            return self.execute(self.driver_sql(sql), parameters) == 1
        # The id comes with the row: a savepoint would cost one more statement, and an id of its own for every effect.
        row = self.select_one(self.driver_sql(f"{sql} RETURNING txid_current()"), parameters)
        if row is not None and self._transaction_id is None:
            self._transaction_id = row[0]
        return row is not None

    def is_duplicate_key(self, error: Exception) -> bool:
        """True if the database refused a row because its key exists: MySQL error 1062 and nothing else."""
        return type(driver_error(error)).__name__ == "IntegrityError" and _mysql_number(error) == _MYSQL_DUPLICATE_ENTRY

    def mark(self) -> None:
        """After the first inbox row, before its handler: `is_marked` will know if it is still the same transaction.

        A handler may roll back and go on, and databases do so by themselves: InnoDB at a deadlock (1213), SQLite at a
        full disk or ON CONFLICT ROLLBACK. The next statement begins another transaction, without the row, and neither
        driver nor SQLAlchemy notices. A savepoint ends with its transaction; `insert` has PostgreSQL's id. sqlite3 with
        autocommit=False (3.12) begins none after a rollback of SQLite's own: each statement is durable at once.
        """
        if self.dialect != "postgresql" and not self._is_marked:
            self.execute(f"SAVEPOINT {_SAVEPOINT}", {})
            self._is_marked = True

    def is_marked(self) -> bool:
        """True if the transaction is still the one of the first row; ends the mark. Once, before the commit."""
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
        """The statement with its :names as the driver writes them: sqlite3 as they are, others %(name)s."""
        return sql if self.dialect == "sqlite" else _pyformat(sql)


def _mysql_number(error: Exception) -> object:
    original = driver_error(error)
    return original.args[0] if original.args else None


def _lacks_savepoint(error: Exception) -> bool:
    return _mysql_number(error) == _MYSQL_NO_SAVEPOINT or "no such savepoint" in str(error)


@lru_cache(maxsize=64)
def _pyformat(sql: str) -> str:
    return _NAME.sub(r"%(\1)s", sql.replace("%", "%%"))
