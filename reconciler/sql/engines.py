"""Engines with the settings that our transactions need, and the transactions, which raise our errors.

SQLite runs in WAL mode, and writers begin with BEGIN IMMEDIATE. A deferred writer that meets another writer would have
to give up, and two deferred writers would starve each other. Readers begin with BEGIN DEFERRED and are never blocked.

PostgreSQL may be behind a pooler that gives every transaction another session, so nothing is stored in a session
(postgres_messages.py).
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from math import ceil
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from reconciler.clock import Backoff
from reconciler.contract.extras import install
from reconciler.contract.own_limits import lacking
from reconciler.contract.row_values import text_or_bytes
from reconciler.contract.secret import Secret, SecretText, revealed
from reconciler.contract.urls import DATABASE_DRIVERS, read_database_url, shown_url
from reconciler.errors import (
    DatabaseAway,
    DatabaseSilent,
    InvalidValue,
    MissingDependency,
    warn_of_former_paths,
)
from reconciler.silence import PAUSES
from reconciler.sql.changing_login import take_login_of
from reconciler.sql.driver_errors import away, shown, translate
from reconciler.sql.mysql_tls_files import tell_unusable_files
from reconciler.sql.silence import PAUSES_OPTION, SERVER_SHARE, STATEMENT_SECONDS_OPTION, asking

logger = logging.getLogger(__name__)

LOCK_TIMEOUT_SECONDS_DEFAULT = 5.0
#: Maximum number of other writers, one after the other, for which a connection to a new SQLite file waits.
_WAL_TRIES_MAX = 100
CONNECT_TIMEOUT_SECONDS = 5
CONNECT_TIMEOUT_SECONDS_MIN = 2
#: Longest wait if a server stops answering in the middle of a statement.
SILENCE_SECONDS = 60
#: Settings of each session. MySQL and MariaDB may have other defaults, with these effects: sql_select_limit leaves out
#: rows, which would count as absent. MariaDB's EMPTY_STRING_IS_NULL turns an empty text into NULL, so a row with that
#: text is not found. With completion_type=1, each COMMIT begins another transaction, and a single statement stays in
#: it.
_MYSQL_USUAL = (
    f"sql_select_limit={2**64 - 1}",
    "completion_type=0",
    "sql_mode=REPLACE(@@sql_mode, 'EMPTY_STRING_IS_NULL', ',')",
)
#: The warning to a person about a write that got no answer.
IN_DOUBT = "it may have been written, or will be when the database goes on: look before you do it again"


def open_engine(
    url: Secret,
    *,
    lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS_DEFAULT,
    pool_size: int = 5,
    read_only: bool = False,
    must_exist: bool = False,
    autocommit: bool = False,
    silence_seconds: int = SILENCE_SECONDS,
    statement_seconds: float | None = None,
    silence_pauses: Backoff = PAUSES,
) -> sa.Engine:
    """Makes an engine for SQLite, PostgreSQL, MySQL or MariaDB. Call it after a fork; the caller disposes the engine.

    The engine connects at its first use, with READ COMMITTED if the database has it. If the URL changes, new
    connections use its present user and password. Raises InvalidValue for a malformed URL, and MissingDependency if a
    driver is not installed.

    - `read_only`: the engine cannot write. Neither is a SQLite file created nor its journal mode changed.
    - `must_exist`: a missing SQLite file counts as away, and no empty file is created.
    - `autocommit` (single_statements.py): every statement is a transaction. No pooled connection is tested before use.
    - `silence_seconds`: the longest wait for a statement of MySQL and MariaDB without `statement_seconds`.
    - `statement_seconds`: the deadline of each statement and of COMMIT; also of a new connection, if that is shorter
      than the usual one. After a missed deadline, the database is spared for `silence_pauses` (silence.py). SQLite
      ignores it.
    """
    parsed = _parsed(url)
    try:
        if parsed.get_backend_name() == "sqlite":
            parsed = _existing(parsed) if read_only or must_exist else parsed
            return _open_sqlite(parsed, lock_timeout_seconds, pool_size, read_only=read_only)
        engine = _open_server(
            parsed,
            lock_timeout_seconds,
            silence_seconds,
            pool_size,
            read_only=read_only,
            autocommit=autocommit,
            statement_seconds=statement_seconds,
        )
        engine.update_execution_options(**{PAUSES_OPTION: silence_pauses})
    except ModuleNotFoundError as error:
        raise MissingDependency(missing_driver(url) or f"{error.name} is missing: install it") from error
    if isinstance(url, SecretText) and url.changes:
        take_login_of(url, engine)
    return engine


def _parsed(url: Secret) -> sa.URL:
    try:
        scheme = read_database_url(url).scheme
    except ValueError as error:
        raise InvalidValue("database url", shown_url(url), str(error)) from None  # the text may contain a password
    return make_url(revealed(url)).set(drivername=f"{scheme}+{DATABASE_DRIVERS[scheme][0]}")


def missing_driver(url: Secret) -> str | None:
    """Returns how to install the missing driver for a URL; None: the driver is installed."""
    scheme = read_database_url(url).scheme
    _, package, extra = DATABASE_DRIVERS[scheme]
    if find_spec(package) is not None:
        return None
    return f"{scheme}:// needs {package}: {install(extra)}"


def _existing(url: sa.URL) -> sa.URL:
    """Returns the URL with mode=rw, which creates no file. mode=ro opens no WAL database that nobody else has open."""
    if not url.database or url.database.startswith("file:"):
        return url
    return url.set(database=f"file:{quote(url.database)}").update_query_dict({"mode": "rw", "uri": "true"})


class _SqliteBytes(sa.LargeBinary):
    """Bytes as the driver returns them. SQLAlchemy would turn a stored number 5 into five zero bytes, and fail for a
    text.

    The tables do not name this type, because it would get into a service's own migrations.
    """

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> None:
        """Returns None, so that SQLAlchemy converts nothing."""


def _open_sqlite(url: sa.URL, lock_timeout_seconds: float, pool_size: int, *, read_only: bool) -> sa.Engine:
    engine = sa.create_engine(
        url,
        connect_args={"timeout": lock_timeout_seconds},
        pool_size=pool_size,
        execution_options={"reconciler_read_only": read_only},
    )
    engine.dialect.colspecs = {**engine.dialect.colspecs, sa.LargeBinary: _SqliteBytes}
    event.listen(engine, "connect", _sqlite_connect_read_only if read_only else _sqlite_connect)
    event.listen(engine, "begin", _sqlite_begin)
    return engine


def _open_server(
    url: sa.URL,
    lock_timeout_seconds: float,
    silence_seconds: int,
    pool_size: int,
    *,
    read_only: bool,
    autocommit: bool,
    statement_seconds: float | None,
) -> sa.Engine:
    is_postgres = url.get_backend_name() == "postgresql"
    connect_seconds = CONNECT_TIMEOUT_SECONDS
    if statement_seconds is not None:  # psycopg treats one second as two, and needs a whole number
        connect_seconds = min(connect_seconds, max(CONNECT_TIMEOUT_SECONDS_MIN, ceil(statement_seconds)))
    arguments = _mysql_arguments(lock_timeout_seconds, statement_seconds or silence_seconds, connect_seconds)
    if is_postgres:
        # The driver's parameters are passed separately, because SQLAlchemy's texts show the URL, and must not show
        # sslpassword.
        passed_on = {name: value for name, value in url.query.items() if name not in ("host", "port")}
        url, arguments = url.difference_update_query(passed_on), passed_on | _postgres_arguments(connect_seconds)
    engine = sa.create_engine(
        url,
        isolation_level="AUTOCOMMIT" if autocommit else "READ COMMITTED",
        connect_args=arguments,
        pool_size=pool_size,
        # With autocommit, an overflow connection would live for one statement. Waiting for the end of another statement
        # is faster than connecting.
        max_overflow=0 if autocommit else 10,
        pool_pre_ping=not autocommit and not is_postgres,
        pool_reset_on_return=None if autocommit else "rollback",
        pool_timeout=10,
        execution_options={"reconciler_read_only": read_only, STATEMENT_SECONDS_OPTION: statement_seconds},
    )
    if is_postgres:
        from reconciler.sql.postgres_deadline import connect_within  # needs the driver
        from reconciler.sql.postgres_messages import begin_with, read_text

        if statement_seconds is not None:
            connect_within(engine, statement_seconds)
        # before SQLAlchemy's own listener, which reads the server's version as a text
        event.listen(engine, "connect", read_text, insert=True)
        event.listen(engine, "begin", begin_with(lock_timeout_seconds, statement_seconds))
        return engine
    tell_unusable_files(engine, shown(engine))
    event.listen(engine, "connect", _mysql_connect_as_usual, insert=True)  # before SQLAlchemy's own, which commits
    if statement_seconds is not None:
        event.listen(engine, "connect", _mysql_end_statements_after(statement_seconds * SERVER_SHARE))
    if autocommit:
        event.listen(engine, "connect", _mysql_connect_read_committed)
    if read_only:
        event.listen(engine, "connect", _mysql_connect_read_only)
    return engine


def _postgres_arguments(connect_seconds: int) -> dict[str, Any]:
    return {
        "prepare_threshold": None,  # statements are never prepared under a name
        "connect_timeout": connect_seconds,
        "keepalives_idle": SILENCE_SECONDS // 4,
        "keepalives_interval": SILENCE_SECONDS // 4,
        "keepalives_count": 3,
        "tcp_user_timeout": SILENCE_SECONDS * 1000,
    }


def _mysql_arguments(lock_timeout_seconds: float, silence_seconds: float, connect_seconds: int) -> dict[str, Any]:
    return {
        # The server accepts only whole seconds.
        "init_command": f"SET SESSION innodb_lock_wait_timeout={max(1, round(lock_timeout_seconds))}",
        "connect_timeout": connect_seconds,
        "read_timeout": silence_seconds,
        "write_timeout": min(silence_seconds, SILENCE_SECONDS),
        "charset": "utf8mb4",
    }


def _sqlite_connect(connection: Any, _record: object) -> None:
    # The driver must not begin transactions, because it would use BEGIN DEFERRED.
    connection.isolation_level = None
    connection.text_factory = text_or_bytes
    with closing(connection.cursor()) as cursor:
        _take_wal(cursor)
        cursor.execute("PRAGMA synchronous=FULL")


def _take_wal(cursor: sqlite3.Cursor) -> None:
    """Sets WAL mode. Setting the mode of a new file fails at once while another process writes to it or sets the mode,
    so an empty transaction then waits for that process."""
    for _ in range(_WAL_TRIES_MAX):
        with suppress(sqlite3.OperationalError):
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        cursor.execute("BEGIN IMMEDIATE")
        cursor.execute("ROLLBACK")
    cursor.execute("PRAGMA journal_mode=WAL")


def _sqlite_connect_read_only(connection: Any, _record: object) -> None:
    connection.isolation_level = None
    connection.text_factory = text_or_bytes
    with closing(connection.cursor()) as cursor:
        cursor.execute("PRAGMA query_only=ON")


def _mysql_end_statements_after(seconds: float) -> Callable[[Any, object], None]:
    """Makes the server end late statements: MariaDB ends all, MySQL only SELECTs. If the server refuses, only this
    process ends late statements, and that is logged once."""
    told: list[str] = []

    def ask(connection: Any, _record: object) -> None:
        is_mariadb = "mariadb" in str(connection.get_server_info()).lower()
        limit = f"max_statement_time={seconds:g}" if is_mariadb else f"max_execution_time={round(seconds * 1000)}"
        try:
            with closing(connection.cursor()) as cursor:
                cursor.execute(f"SET SESSION {limit}")
        except connection.Error as refused:
            if not connection.open:
                raise
            if not told:
                told.append(limit)
                logger.warning("statements_not_ended: the database does not take %s: %s", limit, refused)

    return ask


def _mysql_connect_as_usual(connection: Any, _record: object) -> None:
    """Applies _MYSQL_USUAL, without the settings that a server does not know."""
    for value in _MYSQL_USUAL:
        try:
            with closing(connection.cursor()) as cursor:
                cursor.execute(f"SET SESSION {value}")
        except connection.Error:
            if not connection.open:
                raise


def _mysql_connect_read_only(connection: Any, _record: object) -> None:
    with closing(connection.cursor()) as cursor:
        cursor.execute("SET SESSION TRANSACTION READ ONLY")


def _mysql_connect_read_committed(connection: Any, _record: object) -> None:
    with closing(connection.cursor()) as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")


def _sqlite_begin(connection: sa.Connection) -> None:
    # reading() and read-only engines set this option, because a reader must not take the lock of writers.
    mode = "DEFERRED" if connection.get_execution_options().get("reconciler_read_only") else "IMMEDIATE"
    connection.exec_driver_sql(f"BEGIN {mode}")


@contextmanager
def writing(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Opens one read-write transaction, committed at the end. Raises DatabaseAway if the database fails, DatabaseSilent
    if the transaction may have been committed or may be committed later."""
    try:
        with translated_errors(engine), engine.begin() as connection:
            yield connection
    except DatabaseSilent as error:
        if error.__cause__ is None:
            raise  # nothing was sent
        raise DatabaseSilent(str(error), remedy=IN_DOUBT) from error.__cause__


def require_answer(engine: sa.Engine) -> None:
    """Sends SELECT 1. Raises DatabaseAway if the database does not answer."""
    with reading(engine) as connection:
        connection.execute(sa.text("SELECT 1"))


@contextmanager
def reading(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Opens one read-only transaction on committed data, without the lock of writers."""
    with translated_errors(engine), engine.connect() as plain:
        connection = plain.execution_options(reconciler_read_only=True)
        with connection.begin():
            yield connection


@contextmanager
def translated_errors(engine: sa.Engine) -> Iterator[None]:
    """Translates errors of a database that is away, locked or without its tables into ours, with their cause.

    Raises DatabaseSilent at once while a silent database is spared.
    """
    try:
        with asking(engine):
            try:
                yield
            except DBAPIError as error:
                translated = translate(error, engine)
                if translated is error:
                    raise
                raise translated from error
            except OSError as error:  # psycopg waits by a descriptor of its own
                if not lacking(error):
                    raise
                raise away(error, engine) from error
    except PoolTimeout as error:  # outside of asking(), because a full pool is no silence of the database
        raise DatabaseAway(f"no free connection to {shown(engine)}") from error


warn_of_former_paths(__name__, {"open_engine": "checkback_producers.tables or checkback_consumers.tables"})
