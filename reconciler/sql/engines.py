"""Engines with the settings that our transactions need, database time, and translated errors.

SQLite runs in WAL mode, and writers begin with BEGIN IMMEDIATE. A deferred writer that meets another writer would have
to give up, and two deferred writers would starve each other. Readers begin with BEGIN DEFERRED and are never blocked.

PostgreSQL may be behind a pooler that gives every transaction another session, so nothing is stored in a session
(postgres_messages.py).
"""

from __future__ import annotations

import logging
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from math import ceil
from typing import Any
from urllib.parse import quote, unquote

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from reconciler.clock import Backoff
from reconciler.contract.extras import install
from reconciler.contract.row_values import text_or_bytes
from reconciler.contract.secret import Secret, SecretText, revealed
from reconciler.contract.tables import INBOX_TABLES, LEDGER_TABLES, OUTBOX_TABLES
from reconciler.contract.urls import DATABASE_DRIVERS, blotted, read_database_url, shown_url
from reconciler.errors import (
    ConfigurationError,
    DatabaseAway,
    DatabaseSilent,
    InvalidValue,
    MissingDependency,
    StatementTooSlow,
    warn_of_former_paths,
)
from reconciler.silence import PAUSES
from reconciler.sql.changing_login import secret_of, take_login_of
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
#: Maximum number of characters of a driver's text that our errors repeat.
DRIVER_WORDS_CHARACTERS_MAX = 300
#: Patterns of texts of drivers, servers and pgbouncer, each with its remedy. The first match counts.
_REMEDIES = tuple(
    (re.compile(said, re.IGNORECASE), remedy)
    for said, remedy in (
        (r"\(1049,|database \S+ does not exist|no such database", "create the database, or correct its URL"),
        (
            r"unable to open database file",
            "let reconciler db upgrade make it in a folder that exists, or correct its URL",
        ),
        (
            r"no encryption",
            (
                "let pg_hba.conf admit this host and login, or, if it admits them over TLS only, ask for TLS "
                "in its URL (docs/reference/security.md#redis-and-databases)"
            ),
        ),
        (
            r"\(3159,|requires? ssl|insecure transport",
            "the server takes TLS only: ask for it in its URL (docs/reference/security.md#redis-and-databases)",
        ),
        (r"read-only transaction|\(1290,|\(1836,", "name a database in its URL that takes writes: a primary"),
        (r"no space left|disk is full|table is full|\(1114,|\(1021,", "make room on the disk of the database"),
        (
            r"server does not support ssl|\(2026,",
            "switch TLS on at the server, or take it out of its URL (docs/reference/security.md#redis-and-databases)",
        ),
        (
            r"does not match host name|hostname mismatch|ip address mismatch",
            (
                "reach it under a name of its certificate, or drop the check "
                "(docs/reference/security.md#redis-and-databases)"
            ),
        ),
        (
            r"key identifier|include key usage",
            "Python 3.13 and newer demand that extension: have its authority issue a certificate that has it",
        ),
        (r"certificate has expired|is not yet valid", "renew it at the server, or correct the clock of this host"),
        (r"alert certificate expired", "renew the certificate of this client, or correct the clock of the server"),
        (
            r"certificate verify failed|root certificate file|self-signed certificate",
            (
                "give the certificate of its authority in its URL, or renew the server's if it has expired "
                "(docs/reference/security.md#redis-and-databases)"
            ),
        ),
        (
            r"authentication failed|role \S+ does not exist|no such user|no password supplied|no pg_hba.conf|\(1045,",
            "correct user and password in its URL, or let the server admit them",
        ),
        (
            r"permission denied for|\(1044,|\(1142,|\(1143,|readonly database",
            "GRANT the login what docs/reference/rights.md lists; `reconciler doctor` names what is missing",
        ),
        (
            r"refused|timed? ?out|could not translate|failed to resolve|\(2003,|is starting up",
            "start the database, or correct its URL",
        ),
    )
)
#: An engine with this option reads tables that are not ours, by a query of somebody else.
OTHERS_TABLES_OPTION = "reconciler_others_tables"
#: Remedies for such an engine, before those above.
_REMEDIES_OF_OTHERS = tuple(
    (re.compile(said, re.IGNORECASE), remedy)
    for said, remedy in (
        (r"unable to open database file", "correct the URL of the query: it makes no file"),
        (
            r"permission denied for|\(1044,|\(1142,|\(1143,|readonly database",
            "GRANT the login SELECT on what the query reads",
        ),
    )
)
#: Classes of PostgreSQL's error codes that psycopg calls operational: connection, rollback by the server, resources,
#: locks, intervention, system.
_AWAY_SQLSTATES = ("08", "40", "53", "55", "57", "58")
#: The remedy if a statement takes longer than its time.
TOO_SLOW = "its tables may be large or its disk busy: raise rounds.statement_seconds if its statements need longer"
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


def shown(engine: sa.Engine) -> str:
    """Returns a database's name for people: its URL without secrets."""
    url = engine.url
    if url.database and url.database.startswith("file:"):
        url = url.set(database=unquote(url.database.removeprefix("file:")))
    return shown_url(url.set(drivername=url.get_backend_name()).render_as_string(hide_password=False))


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
    except PoolTimeout as error:  # outside of asking(), because a full pool is no silence of the database
        raise DatabaseAway(f"no free connection to {shown(engine)}") from error


#: Name of a table -> the tree whose upgrade makes it.
_TREES = {
    table.name: tree
    for tree, tables in (("outbox", OUTBOX_TABLES), ("inbox", INBOX_TABLES), ("ledger", LEDGER_TABLES))
    for table in tables
}


def translate(error: DBAPIError, engine: sa.Engine) -> Exception:
    """Returns our error for SQLAlchemy's: ConfigurationError or DatabaseAway; the error itself if it is a bug."""
    translated = translate_driver_error(error.orig, engine)
    if translated is None and error.connection_invalidated:
        return away(error.orig, engine)
    return translated or error


def translate_driver_error(error: BaseException | None, engine: sa.Engine) -> Exception | None:
    """Returns our error for a driver's: ConfigurationError or DatabaseAway; None if the error is a bug."""
    text = _words(error, engine)
    if lacks_schema(text):
        tree = next((f" {tree}" for name, tree in _TREES.items() if name in text), "")
        remedy = "correct the query, or its URL" if _reads_others(engine) else f"run reconciler db upgrade{tree}"
        return ConfigurationError(f"{shown(engine)} lacks a table or column ({text}): {remedy}")
    if "ON CONFLICT" in text:  # PostgreSQL 42P10; SQLite
        return ConfigurationError(f"{shown(engine)} lacks a unique key ({text}): reconciler doctor names it")
    if "invalid connection option" in text:  # releases of libpq have different options
        return ConfigurationError(f"{shown(engine)}: {text}; remove it from its URL")
    return away(error, engine) if is_away(error) or is_silent(error) else None


def away(error: BaseException | None, engine: sa.Engine) -> DatabaseAway:
    """Returns an error whose text is one line: the database, the driver's text, the remedy."""
    text = _words(error, engine)
    if _was_ended(error):
        return StatementTooSlow(f"{shown(engine)}: {text}", remedy=TOO_SLOW)
    remedies = (*_REMEDIES_OF_OTHERS, *_REMEDIES) if _reads_others(engine) else _REMEDIES
    remedy = next((remedy for said, remedy in remedies if said.search(text)), "")
    if is_silent(error):
        return DatabaseSilent(f"{shown(engine)}: no answer in time: {text}", remedy=remedy)
    return DatabaseAway(f"{shown(engine)}: {text}", remedy=remedy)


def _reads_others(engine: sa.Engine) -> bool:
    return bool(engine.get_execution_options().get(OTHERS_TABLES_OPTION))


def is_silent(error: BaseException | None) -> bool:
    """Returns True if a driver's error means that the server did not answer a statement or a new connection in time."""
    while error is not None:
        if isinstance(error, TimeoutError) or class_names(error) & {"StatementOverdue", "ConnectionTimeout"}:
            return True
        error = error.__cause__ or error.__context__
    return False


def _was_ended(error: BaseException | None) -> bool:
    """Returns True if the server reports that it ended the statement because of its time."""
    # PostgreSQL uses 57014 also if a person cancels the statement. MariaDB uses 1969, MySQL 3024.
    return sqlstate_of(error) == "57014" or next(iter(getattr(error, "args", ())), None) in (1969, 3024)


def _words(error: BaseException | None, engine: sa.Engine) -> str:
    text = " ".join(str(error).split())[:DRIVER_WORDS_CHARACTERS_MAX]
    now = secret_of(engine)
    return blotted(blotted(text, engine.url.render_as_string(hide_password=False)), "" if now is None else now)


def lacks_schema(text: str) -> bool:
    """Returns True if the driver's message means that our table or one of its columns is missing."""
    # In this order: SQLite; PostgreSQL 42P01 and 42703; MySQL 1146 and 1054.
    return any(part in text for part in ("no such table", "no such column", "has no column named")) or (
        (("relation" in text or "column" in text) and "does not exist" in text) or "(1146," in text or "(1054," in text
    )


def driver_error(error: Exception) -> Exception:
    """Returns the driver's own error, because the texts of SQLAlchemy's errors repeat a statement's parameters."""
    return getattr(error, "orig", None) or error


def class_names(error: BaseException | None) -> set[str]:
    """Returns the names of an error's classes. PEP 249 defines them for every driver, so none need be imported."""
    return {kind.__name__ for kind in type(error).__mro__}


def sqlstate_of(error: BaseException | None) -> str:
    """Returns PostgreSQL's code in an error of psycopg or asyncpg, or an empty text. asyncpg's classes do not have the
    names of PEP 249."""
    return str(getattr(error, "sqlstate", None) or "")


def is_integrity_error(error: BaseException | None) -> bool:
    """Returns True for a driver's error about a violated constraint, such as a key that exists already."""
    return "IntegrityError" in class_names(error) or sqlstate_of(error)[:2] == "23"


def is_away(error: BaseException | None) -> bool:
    """Returns True for a driver's error that a later try may cure: away, locked, deadlock, refused, full, read-only."""
    names = class_names(error)
    if "InFailedSqlTransaction" in names or sqlstate_of(error) == "25P02" or "syntax error" in str(error):
        return False  # a bug; SQLite calls a syntax error operational, too
    if names & {"OperationalError", "InterfaceError", "InternalError", "InsufficientPrivilege"}:
        return True
    if sqlstate_of(error)[:2] in _AWAY_SQLSTATES or sqlstate_of(error) == "42501" or isinstance(error, ConnectionError):
        return True
    # SQLite's "file is not a database" is a plain DatabaseError, and no error of a subclass.
    return type(error).__name__ == "DatabaseError"


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


def is_whole_number(column: sa.ColumnElement[int], dialect: str) -> sa.ColumnElement[bool]:
    """Returns a condition that is false for text, bytes and fractions. Only SQLite stores these in a column of whole
    numbers."""
    return sa.func.typeof(column) == "integer" if dialect == "sqlite" else sa.true()


def asked_once(now: sa.ColumnElement[int], dialect: str) -> sa.ColumnElement[int]:
    """Returns database time as one value: PostgreSQL would evaluate clock_timestamp for each row, and use no index."""
    return sa.select(now).scalar_subquery() if dialect == "postgresql" else now


def database_now_ms(connection: sa.Connection) -> int:
    """Reads database time."""
    return int(connection.execute(sa.select(now_ms(connection.dialect.name))).scalar_one())


warn_of_former_paths(__name__, {"open_engine": "checkback_producers.tables or checkback_consumers.tables"})
