"""Messages to PostgreSQL with several statements: one round trip and one transaction.

A pooler between client and server may give every transaction another session. So nothing is stored in a session, and
the message that begins a transaction contains all of its settings. No statement is prepared under a name, because in
another session that name may belong to another client's statement. Needs psycopg; only an engine for PostgreSQL loads
this module.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg import errors, generators
from psycopg.adapt import Buffer, Loader, Transformer
from psycopg.pq import DiagnosticField, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from reconciler.contract.row_values import text_or_bytes
from reconciler.sql.pools import replace_pool
from reconciler.sql.postgres_deadline import StatementOverdue
from reconciler.sql.silence import IDLE_DEADLINES, SERVER_SHARE

logger = logging.getLogger(__name__)

_DONE = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)
#: Errors of a refused setting: the server does not know the setting or its value, or this login may not change it.
_REFUSALS = (
    psycopg.ProgrammingError,
    psycopg.NotSupportedError,
    psycopg.DataError,
    errors.CantChangeRuntimeParam,
)


class _UncheckedText(Loader):
    """Reads the texts of a database without a known encoding."""

    def load(self, data: Buffer) -> str | bytes:
        """Returns the text if the bytes are UTF-8, as all our clients write it, and otherwise the bytes."""
        return text_or_bytes(bytes(data))


def read_text(connection: Any, _record: object) -> None:
    """Makes a new connection read and write all texts of the database.

    A database in UTF8 may begin sessions with another encoding, in which most texts cannot be written. From SQL_ASCII
    the driver would return bytes, even for keys.
    """
    if connection.info.parameter_status("server_encoding") == "UTF8" and connection.info.encoding != "utf-8":
        _ask(connection, b"SET client_encoding TO 'UTF8'")  # poolers notice this setting, and keep it per client
    if connection.info.encoding == "ascii":
        for kind in ("text", "varchar", "bpchar", "name"):
            connection.adapters.register_loader(kind, _UncheckedText)


def time_outs_sql(lock_timeout_seconds: float, statement_seconds: float | None) -> str:
    """Returns SQL that sets the server's time-outs for the present transaction. The server sets no limit to COMMIT."""
    seconds = {"lock_timeout": lock_timeout_seconds}
    if statement_seconds is not None:
        seconds["statement_timeout"] = statement_seconds * SERVER_SHARE
        seconds["idle_in_transaction_session_timeout"] = statement_seconds * IDLE_DEADLINES
    return "; ".join(f"SET LOCAL {name} = {max(1, int(value * 1000))}" for name, value in seconds.items())


class _TimeOuts:
    """The settings of a transaction. A server or proxy may refuse the settings that end statements. Then these settings
    are left out, and only this process ends late statements."""

    def __init__(self, lock_timeout_seconds: float, statement_seconds: float | None) -> None:
        self.sql = time_outs_sql(lock_timeout_seconds, statement_seconds)
        self._least = time_outs_sql(lock_timeout_seconds, None)

    def without_refused(self, connection: Any, refused: psycopg.Error) -> bool:
        """Returns True if fewer settings are sent from now on. Ends the transaction in which something was refused.

        The server may have refused a statement and not a setting, so the settings are tried alone.
        """
        if self.sql == self._least or not isinstance(refused, _REFUSALS):
            return False
        _end(connection)
        for sql, is_taken in ((self.sql, True), (self._least, False)):
            try:
                _ask(connection, f"BEGIN; {sql}; ROLLBACK".encode())
            except _REFUSALS:
                _end(connection)
                if not is_taken:
                    return False
            else:
                if is_taken:
                    return False
        self.sql = self._least
        logger.warning("statements_not_ended: the database does not take the time-outs of statements: %s", refused)
        return True


def _end(connection: Any) -> None:
    if connection.info.transaction_status is not TransactionStatus.IDLE:
        _ask(connection, b"ROLLBACK")


def begin_with(lock_timeout_seconds: float, statement_seconds: float | None = None) -> Callable[[sa.Connection], None]:
    """Returns the handler of an engine's event `begin`: it sends BEGIN with all settings, instead of the driver.

    BEGIN also finds lost connections of the pool, without the extra round trip of a ping, and they are replaced.
    """
    settings = _TimeOuts(lock_timeout_seconds, statement_seconds)

    def begin(connection: sa.Connection) -> None:
        mode = "READ ONLY" if connection.get_execution_options().get("reconciler_read_only") else ""
        pool = connection.engine.pool

        def message() -> bytes:
            return f"BEGIN ISOLATION LEVEL READ COMMITTED {mode}; {settings.sql}".encode()

        try:
            try:
                _begin(connection, message())
            except StatementOverdue:
                raise
            except _REFUSALS as refused:
                if not settings.without_refused(connection.connection.dbapi_connection, refused):
                    raise
                _begin(connection, message())
            except psycopg.OperationalError as lost:
                connection.invalidate(lost)
                if connection.engine.pool is pool:
                    replace_pool(connection.engine)
                _begin(connection, message())
        except psycopg.Error as error:
            # SQLAlchemy wraps only errors of its own statements, and this BEGIN is ours. Poolers refuse BEGIN with
            # various error codes, so each error counts as a lost connection.
            connection.invalidate(error)
            raise sa.exc.OperationalError("BEGIN", None, error, connection_invalidated=True) from error

    return begin


def _begin(connection: sa.Connection, message: bytes) -> None:
    driver_connection: Any = connection.connection.dbapi_connection  # a new one after invalidate()
    if not driver_connection.autocommit:
        _ask(driver_connection, message)


class SingleAnswer:
    """The answer to one statement, with the few methods of a cursor that callers need."""

    def __init__(self, transformer: Any, answer: PGresult) -> None:
        self._transformer = transformer
        self._answer = answer

    @property
    def rowcount(self) -> int:
        """Number of rows that the statement touched."""
        return self._answer.command_tuples or 0

    def fetchone(self) -> tuple[Any, ...] | None:
        """Returns the first row, or None."""
        if self._answer.ntuples == 0:
            return None
        self._transformer.set_pgresult(self._answer)
        row: tuple[Any, ...] = self._transformer.load_row(0, tuple)
        return row


class SingleTransaction:
    """Runs each statement as a transaction with its settings, on connections in autocommit."""

    def __init__(self, lock_timeout_seconds: float, statement_seconds: float | None = None) -> None:
        self._settings = _TimeOuts(lock_timeout_seconds, statement_seconds)

    def execute(self, connection: Any, sql: str, parameters: Sequence[object]) -> SingleAnswer:
        """Returns the answer to the statement. Parameters become literals, because a message with parameters can have
        only one statement. Raises psycopg.Error."""
        transformer = Transformer(connection)
        statement = sql.encode() % tuple(transformer.as_literal(value) for value in parameters)

        def ask() -> SingleAnswer:
            settings = f"SET TRANSACTION ISOLATION LEVEL READ COMMITTED; {self._settings.sql}; "
            return SingleAnswer(transformer, _ask(connection, settings.encode() + statement))

        try:
            return ask()
        except _REFUSALS as refused:  # the server has undone the whole message
            if not self._settings.without_refused(connection, refused):
                raise
            return ask()


def _ask(connection: Any, message: bytes) -> PGresult:
    """Returns the answer to the last statement. The driver's cursors would cost twice as much."""
    connection.pgconn.send_query(message)
    answer: PGresult = connection.wait(generators.execute(connection.pgconn))[-1]
    if answer.status in _DONE:
        return answer
    said = answer.error_message.decode(errors="replace").strip()
    state = (answer.error_field(DiagnosticField.SQLSTATE) or b"").decode()
    try:
        kind: type[psycopg.Error] = errors.lookup(state)
    except KeyError:
        kind = psycopg.OperationalError  # a pooler's own error
    raise kind(said)
