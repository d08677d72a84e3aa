"""An asynchronous connection of the caller, for CallersConnection's synchronous statements.

SQLAlchemy's asyncio runs synchronous code in a greenlet, which returns control to the loop while the driver waits. This
module does the same with a driver's own connection, so each procedure is written once. The module never commits or
rolls back, and begins a transaction only on a SQLAlchemy connection, as callers_connection.py does. asyncpg has no
autocommit mode, and commits every statement outside of a transaction.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy.util import await_only, greenlet_spawn

from reconciler.sql.callers_connection import CallersConnection, Parameters, UnsafeConnection, package_of

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

T = TypeVar("T")

#: Package of an asynchronous driver -> package of the driver whose connections have the same attributes.
_ALIKE = {"asyncpg": "asyncpg", "psycopg": "psycopg", "aiosqlite": "sqlite3", "asyncmy": "pymysql"}
#: Packages of drivers that a service may use without SQLAlchemy.
_BARE = ("asyncpg", "psycopg")


async def on_connection(connection: object, procedure: Callable[[Any], T]) -> T:
    """Runs a synchronous procedure without blocking the loop. The procedure makes an AwaitedConnection of its argument,
    and its errors pass through. `connection`: SQLAlchemy's AsyncSession or AsyncConnection, asyncpg's or psycopg's."""
    given: Any = connection() if _is_of_asyncio(connection, "async_scoped_session") else connection  # type: ignore[operator]
    if _is_of_asyncio(given, "AsyncSession") or _is_of_asyncio(given, "AsyncConnection"):
        return await given.run_sync(procedure)  # type: ignore[no-any-return]
    return await greenlet_spawn(procedure, given)


def wait_for(step: Awaitable[T]) -> T:
    """Waits for an awaitable inside a procedure of on_connection()."""
    return await_only(step)


def is_async_engine(given: object) -> bool:
    """Returns True for an AsyncEngine of SQLAlchemy."""
    return _is_of_asyncio(given, "AsyncEngine")


def engine_of(database: object) -> Any:
    """Returns the AsyncEngine itself, or the AsyncEngine of an async_sessionmaker; otherwise None."""
    engine = database if is_async_engine(database) else getattr(database, "kw", {}).get("bind")
    return engine if is_async_engine(engine) else None


def connections_max(database: object) -> int | None:
    """Returns the most connections that the pool of the database's AsyncEngine gives at a time. None: there is no
    limit, or no pool."""
    engine = engine_of(database)
    pool: Any = None if engine is None else engine.sync_engine.pool
    size, overflow = getattr(pool, "size", None), getattr(pool, "_max_overflow", 0)
    return size() + overflow if size is not None and overflow >= 0 else None


async def connect_ahead(engine: AsyncEngine) -> None:
    """Opens a connection in the engine's pool if no connection is idle and the pool may have one more.

    Ignores errors: code that needs a connection later gets the error. Ignores pools that keep no connections.
    """
    pool: Any = engine.sync_engine.pool
    if not hasattr(pool, "size") or pool.checkedin():
        return
    most = connections_max(engine)
    if most is not None and pool.checkedout() >= most:
        return
    with suppress(Exception):
        async with engine.connect():
            pass


def _is_of_asyncio(given: object, name: str) -> bool:
    return isinstance(given, getattr(sys.modules.get("sqlalchemy.ext.asyncio"), name, ()))


class AwaitedConnection(CallersConnection):
    """A connection in a transaction, for a procedure of on_connection(). Only the loop that owns the connection uses
    it."""

    def _driver_of(self, raw: Any, given: object) -> tuple[str, Any]:
        self._adapter: Any = getattr(raw, "dbapi_connection", None)  # SQLAlchemy's adapter; None without SQLAlchemy
        raw = getattr(raw, "driver_connection", None) or raw
        for kind in type(raw).__mro__:
            package = package_of(kind)
            is_known = package in (_BARE if self._adapter is None else _ALIKE)
            if is_known and (package != "psycopg" or kind.__name__.startswith("Async")):
                # sqlite3's connection inside aiosqlite's has more attributes, such as autocommit.
                return _ALIKE[package], getattr(raw, "_conn") if package == "aiosqlite" else raw  # noqa: B009
        raise UnsafeConnection(
            f"{type(given).__module__}.{type(given).__qualname__} is no asynchronous connection that is known here: "
            "pass a SQLAlchemy AsyncSession or AsyncConnection (asyncpg, psycopg, aiosqlite, asyncmy), a Connection of "
            "asyncpg, or an AsyncConnection of psycopg"
        )

    def execute(self, sql: str, parameters: Parameters) -> int:
        """Does what CallersConnection.execute() does."""
        if self._package == "asyncpg":
            sql, parameters = _numbered(sql, parameters)
        if not self.is_of_driver:
            return super().execute(sql, parameters)
        if self._package == "asyncpg":
            words = wait_for(self._raw.execute(sql, *parameters)).split()  # INSERT 0 1
            return int(words[-1]) if words[-1].isdigit() else -1
        return int(wait_for(self._raw.execute(sql, parameters)).rowcount)

    def select_one(self, sql: str, parameters: Parameters) -> Sequence[Any] | None:
        """Does what CallersConnection.select_one() does."""
        if self._package == "asyncpg":
            sql, parameters = _numbered(sql, parameters)
        if not self.is_of_driver:
            return super().select_one(sql, parameters)
        if self._package == "asyncpg":
            row = wait_for(self._raw.fetchrow(sql, *parameters))
            return None if row is None else tuple(row)
        from psycopg.rows import tuple_row  # the driver is optional

        cursor = self._raw.cursor(row_factory=tuple_row)  # the service's row factory may make other objects
        return wait_for(_first(cursor, sql, parameters))

    def is_sound(self) -> bool:
        """Does what CallersConnection.is_sound() does, but returns True for a failed transaction of asyncpg, which
        shows the failure only at the next statement."""
        if self._package == "asyncpg":
            return self._is_the_same() and self._is_in_transaction()
        return super().is_sound()

    def is_autocommitting(self) -> bool:
        """Does what CallersConnection.is_autocommitting() does. True for asyncpg's own connection, which always commits
        each statement outside a transaction."""
        if self._package != "asyncpg":
            return super().is_autocommitting()
        return self._adapter is None or bool(self._adapter.autocommit)

    def _is_in_transaction(self) -> bool:
        if self._package == "asyncpg":
            try:
                return not self._raw.is_closed() and bool(self._raw.is_in_transaction())
            except Exception as error:
                if type(error).__name__ != "InterfaceError":
                    raise
                return False  # the connection was returned to asyncpg's pool
        if self._package == "pymysql":
            return bool(self._raw.connected and self._raw.get_transaction_status())
        return super()._is_in_transaction()


async def _first(cursor: Any, sql: str, parameters: Parameters) -> Sequence[Any] | None:
    async with cursor:
        await cursor.execute(sql, parameters)
        return await cursor.fetchone()  # type: ignore[no-any-return]


def _numbered(sql: str, parameters: Parameters) -> tuple[str, tuple[object, ...]]:
    """Returns statement and values in asyncpg's form: $1, $2, ..."""
    text, names = _with_numbers(sql)
    return text, tuple(parameters[name] for name in names) if isinstance(parameters, Mapping) else parameters


@cache
def _with_numbers(sql: str) -> tuple[str, tuple[str, ...]]:
    """Returns the statement, and the name of each value; unnamed values keep their order."""
    places: dict[str, int] = {}

    def numbered(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        return f"${places.setdefault(found['name'] or str(found.start()), len(places) + 1)}"

    return re.sub(r"%(?:\((?P<name>\w+)\)s|s|%)", numbered, sql), tuple(places)
