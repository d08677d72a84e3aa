"""Reads rows of a database for the audit, in pages. Each statement is a snapshot that cannot write.

Errors hold no secret.

PostgreSQL, MariaDB and MySQL read in a REPEATABLE READ, READ ONLY transaction. SQLite reads in one transaction of a
connection that cannot write. Each process opens and closes the connections that it reads by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, NoSuchTableError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from reconciler.audit.collect.sources import Source
from reconciler.audit.errors import AuditError, SourceAwayError
from reconciler.contract.extras import install
from reconciler.contract.urls import DATABASE_DRIVERS, blotted, read_database_url

#: Number of rows of one page. The rows that wait to be written take further memory.
PAGE_ROWS = 10_000
CONNECT_TIMEOUT_SECONDS = 10
#: Longest silence of a server in the middle of a statement.
SILENCE_SECONDS = 120

#: Classes of PostgreSQL's error codes for errors that may pass: connection, rollback (such as by the replay of a
#: replica), resources, locks, a server that stops or starts, the operating system.
_PASSING_SQLSTATES = frozenset({"08", "40", "53", "55", "57", "58"})
#: PostgreSQL's code of a statement that a person or a time-out of the server has ended.
_CANCELLED = "57014"
#: Errors of MySQL and MariaDB that may pass: refused, lost, killed or too many connections, a stopping server, a lock.
_PASSING_ERRNOS = frozenset(
    {0, 1040, 1047, 1053, 1158, 1159, 1160, 1161, 1203, 1205, 1213, 1927, 2002, 2003, 2006, 2013, 4031}
)
#: Errors of SQLite that may pass: busy, locked. Of an extended code, only the last byte counts.
_PASSING_SQLITE = frozenset({5, 6})


@contextmanager
def reading(source: Source) -> Iterator[sa.Connection]:
    """Opens one read-only transaction.

    Raises SourceAwayError for a database that is away, AuditError("inputs") for a missing table, and
    AuditError("configuration") for a driver that is not installed.
    """
    try:
        engine = _engine(source)
        with closing(engine.connect()) as connection:
            yield connection
        engine.dispose()
    except SQLAlchemyError as error:
        raise _translated(error, source) from None  # the driver's error may show the URL


def pages(
    connection: sa.Connection, statement: sa.Executable, parameters: Mapping[str, Any] | None = None
) -> Iterator[Sequence[Sequence[Any]]]:
    """Yields pages of PAGE_ROWS rows while the server sends the statement's rows."""
    result = connection.execution_options(stream_results=True, yield_per=PAGE_ROWS).execute(statement, parameters or {})
    cursor: Any = result.cursor
    try:
        with closing(result):
            while page := result.fetchmany(PAGE_ROWS):
                yield page
    except DBAPIError:
        # PyMySQL reads a result to the end before it closes the result. This fails after the loss of the connection.
        rest: Any = getattr(cursor, "_result", None)
        if hasattr(rest, "unbuffered_active"):
            rest.unbuffered_active = False
        raise


def column_types(connection: sa.Connection, table: str) -> Mapping[str, object]:
    """Reads the columns of a table, and the driver's name of each type.

    Returns an empty dict if there is no such table.

    The next statement of the connection is in the same transaction.
    """
    try:
        with connection.execute(sa.select(sa.text("*")).select_from(sa.table(table)).where(sa.false())) as result:
            return {column[0]: column[1] for column in result.cursor.description}
    except DBAPIError:
        connection.rollback()
    try:  # no such table, or no right to some column
        return {column["name"]: column["type"] for column in sa.inspect(connection).get_columns(table)}
    except NoSuchTableError:
        return {}


def _engine(source: Source) -> sa.Engine:
    backend = read_database_url(source.address).scheme
    driver, package, extra = DATABASE_DRIVERS[backend]
    url = make_url(source.address).set(drivername=f"{backend}+{driver}")
    try:
        if backend == "sqlite":
            return _sqlite_engine(url)
        if backend == "postgresql":
            from reconciler.audit.collect.postgres_text import read_text  # needs the driver

            arguments: dict[str, Any] = {
                "connect_timeout": CONNECT_TIMEOUT_SECONDS,
                "prepare_threshold": None,  # behind a pooler, another client may have used the name
                "keepalives_idle": SILENCE_SECONDS // 4,
                "keepalives_interval": SILENCE_SECONDS // 4,
                "keepalives_count": 3,
                "tcp_user_timeout": SILENCE_SECONDS * 1000,
            }
        else:
            arguments = {
                "connect_timeout": CONNECT_TIMEOUT_SECONDS,
                "read_timeout": SILENCE_SECONDS,
                "write_timeout": SILENCE_SECONDS,
                "charset": "utf8mb4",
            }
        engine = sa.create_engine(
            url,
            isolation_level="REPEATABLE READ",
            connect_args=arguments,
            poolclass=NullPool,
            hide_parameters=True,
            execution_options={"postgresql_readonly": True} if backend == "postgresql" else {},
        )
    except ModuleNotFoundError as error:
        message = f"{source}: the package {package} is missing: {install(extra)}"
        raise AuditError("configuration", message) from error
    if backend == "postgresql":
        event.listen(engine, "connect", read_text, insert=True)  # SQLAlchemy's listener asks for the server's release
    else:
        event.listen(engine, "connect", _mysql_read_only)
        event.listen(engine, "connect", partial(_catch_up, source))
    return engine


def _sqlite_engine(url: sa.URL) -> sa.Engine:
    if url.database and not url.database.startswith("file:"):
        # mode=rw creates no file. mode=ro could not open a WAL database that no other process has open.
        url = url.set(database=f"file:{quote(url.database)}").update_query_dict({"mode": "rw", "uri": "true"})
    engine = sa.create_engine(url, connect_args={"timeout": CONNECT_TIMEOUT_SECONDS}, poolclass=NullPool)
    event.listen(engine, "connect", _sqlite_read_only)
    event.listen(engine, "begin", _sqlite_begin)
    return engine


def _sqlite_read_only(connection: Any, _record: object) -> None:
    connection.isolation_level = None
    with closing(connection.cursor()) as cursor:
        cursor.execute("PRAGMA query_only=ON")


def _sqlite_begin(connection: sa.Connection) -> None:
    connection.exec_driver_sql("BEGIN DEFERRED")


def _mysql_read_only(connection: Any, _record: object) -> None:
    with closing(connection.cursor()) as cursor:
        cursor.execute("SET SESSION TRANSACTION READ ONLY")
        # A limit of the server or of init_connect would silently leave out rows. An empty text in WHERE would do so,
        # too.
        for value in (f"sql_select_limit={2**64 - 1}", "sql_mode=REPLACE(@@sql_mode, 'EMPTY_STRING_IS_NULL', ',')"):
            try:
                cursor.execute(f"SET SESSION {value}")
            except connection.Error:  # another product without this setting
                if not connection.open:
                    raise


def _catch_up(source: Source, connection: Any, _record: object) -> None:
    """Makes this connection read everything that the Galera cluster had committed before the connection was opened.

    A node applies the commits of other nodes later. Other servers lack the setting and need no wait.
    """
    with closing(connection.cursor()) as cursor:
        try:
            cursor.execute("SET SESSION wsrep_sync_wait = 1, wsrep_dirty_reads = 0")
        except connection.Error:
            if not connection.open:
                raise
            return
        try:
            cursor.execute("SELECT 1")
        except connection.Error as error:
            message = f"{source}: the node has not applied in time what its cluster has committed: {error!s:.200}"
            raise SourceAwayError(str(source), message) from None


def _translated(error: SQLAlchemyError, source: Source) -> AuditError:
    """Makes an AuditError from the driver's own words, without the secrets of the URL."""
    text = " ".join(str(getattr(error, "orig", None) or error).split())[:300]
    message = f"{source}: the database did not answer to the end: {blotted(text, source.address)}"
    is_passing = isinstance(error, DBAPIError) and _is_passing(error.orig)
    return SourceAwayError(str(source), message) if is_passing else AuditError("inputs", message)


def _is_passing(error: Any) -> bool:
    """True if a driver's error may be gone when the database is asked again."""
    if hasattr(error, "sqlstate"):
        state = error.sqlstate
        if not state:  # psycopg gives no code for a connection that was not made, or broke
            return type(error).__name__ in ("OperationalError", "DatabaseError", "ConnectionTimeout")
        return state[:2] in _PASSING_SQLSTATES and state != _CANCELLED
    if hasattr(error, "sqlite_errorcode"):
        return error.sqlite_errorcode & 0xFF in _PASSING_SQLITE
    return next(iter(error.args), None) in _PASSING_ERRNOS
