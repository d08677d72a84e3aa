"""Engines with the settings that our transactions rely on, database time, and translated errors.

SQLite runs in WAL mode and begins every transaction with BEGIN IMMEDIATE: a deferred writer that finds another
writer has to give up, and two deferred writers starve each other. Readers of other processes are not blocked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, NoSuchModuleError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from reconciler.errors import ConfigurationError, DatabaseAway, InvalidValue, MissingDependency

LOCK_TIMEOUT_SECONDS_DEFAULT = 5.0


def open_engine(
    url: str, *, lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS_DEFAULT, pool_size: int = 5
) -> sa.Engine:
    """An engine for SQLite, PostgreSQL or MySQL/MariaDB; the caller disposes of it.

    Raises InvalidValue for a malformed URL and MissingDependency for a driver that is not installed. Connects on
    first use only. Isolation is READ COMMITTED where the database has it.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise InvalidValue("database url", url, "expected dialect://user:password@host:port/database") from error
    drivers = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql"}
    parsed = parsed.set(drivername=drivers.get(parsed.drivername, parsed.drivername))
    try:
        return _open(parsed, lock_timeout_seconds, pool_size)
    except NoSuchModuleError as error:
        raise InvalidValue("database url", parsed.drivername, "use sqlite, postgresql, mysql or mariadb") from error
    except ModuleNotFoundError as error:
        extra = "postgres" if parsed.drivername.startswith("postgresql") else "mysql"
        raise MissingDependency(
            f"{parsed.drivername} needs {error.name}: pip install 'checkback-reconciler[{extra}]'"
        ) from error


def _open(url: sa.URL, lock_timeout_seconds: float, pool_size: int) -> sa.Engine:
    backend = url.get_backend_name()
    if backend == "sqlite":
        engine = sa.create_engine(url, connect_args={"timeout": lock_timeout_seconds}, pool_size=pool_size)
        event.listen(engine, "connect", _sqlite_connect)
        event.listen(engine, "begin", _sqlite_begin)
        return engine
    arguments: dict[str, Any] = {"pool_size": pool_size, "pool_pre_ping": True, "pool_timeout": 10}
    if backend == "postgresql":
        milliseconds = int(lock_timeout_seconds * 1000)
        arguments["connect_args"] = {"options": f"-c lock_timeout={milliseconds}", "connect_timeout": 5}
    else:
        seconds = max(1, int(lock_timeout_seconds))
        arguments["connect_args"] = {
            "init_command": f"SET SESSION innodb_lock_wait_timeout={seconds}",
            "connect_timeout": 5,
            "charset": "utf8mb4",
        }
    return sa.create_engine(url, isolation_level="READ COMMITTED", **arguments)


def _sqlite_connect(connection: Any, _record: object) -> None:
    # The driver must not begin transactions by itself, or it begins them deferred.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()


def _sqlite_begin(connection: sa.Connection) -> None:
    # A reader must not take the writers' lock: READ_ONLY is set by reading().
    mode = "DEFERRED" if connection.get_execution_options().get("reconciler_read_only") else "IMMEDIATE"
    connection.exec_driver_sql(f"BEGIN {mode}")


@contextmanager
def writing(engine: sa.Engine) -> Iterator[sa.Connection]:
    """One read-write transaction, committed at the end; DatabaseAway if the database does not take part."""
    with translated_errors(engine), engine.begin() as connection:
        yield connection


@contextmanager
def reading(engine: sa.Engine) -> Iterator[sa.Connection]:
    """One read-only transaction on committed data; takes no writer's lock."""
    with translated_errors(engine), engine.connect() as plain:
        connection = plain.execution_options(reconciler_read_only=True)
        with connection.begin():
            yield connection


@contextmanager
def translated_errors(engine: sa.Engine) -> Iterator[None]:
    """Turns a database that is away, locked or without its tables into the project's errors, cause kept."""
    try:
        yield
    except DBAPIError as error:
        where = engine.url.render_as_string(hide_password=True)
        text = str(error.orig)[:300]
        if _is_missing_table(text):
            raise ConfigurationError(f"{where} lacks a table ({text}): run reconciler db upgrade") from error
        if isinstance(error, (OperationalError, InterfaceError)) or error.connection_invalidated:
            raise DatabaseAway(f"{where}: {text}") from error
        raise
    except PoolTimeout as error:
        raise DatabaseAway(f"no free connection to {engine.url.render_as_string(hide_password=True)}") from error


def _is_missing_table(text: str) -> bool:
    # SQLite, PostgreSQL, MySQL error 1146.
    return "no such table" in text or ("relation" in text and "does not exist" in text) or "(1146," in text


#: Milliseconds since 1970 UTC by the database's own clock, also inside a long transaction.
NOW_MS_SQL = {
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)",
    "postgresql": "CAST(extract(epoch from clock_timestamp()) * 1000 AS BIGINT)",
    "mysql": "CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED)",
    "mariadb": "CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED)",
}


def now_ms_sql(dialect: str) -> str:
    """SQL expression of database time in milliseconds, for text statements."""
    return NOW_MS_SQL[dialect]


def now_ms(dialect: str) -> sa.ColumnElement[int]:
    """The same expression for SQLAlchemy statements."""
    return sa.literal_column(NOW_MS_SQL[dialect], sa.BigInteger())


def database_now_ms(connection: sa.Connection) -> int:
    """Reads database time."""
    return int(connection.execute(sa.select(now_ms(connection.dialect.name))).scalar_one())
