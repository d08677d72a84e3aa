"""An asynchronous connection of the caller, for the synchronous statements of CallersConnection.

SQLAlchemy's asyncio runs synchronous code in a greenlet, which gives control to the loop where the driver waits. The
same is done here for the drivers' own connections, so that each procedure is written once. Nothing here begins, commits
or rolls back. PostgreSQL's asyncpg has no autocommit to ask for: whatever is outside a transaction is. Values are given
by position.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from itertools import count
from typing import Any, TypeVar

from sqlalchemy.util import await_only, greenlet_spawn

from reconciler.sql.callers_connection import CallersConnection, Parameters, UnsafeConnection, package_of

T = TypeVar("T")

#: Package of an asynchronous driver -> the one whose connections show the same.
_ALIKE = {"asyncpg": "asyncpg", "psycopg": "psycopg", "aiosqlite": "sqlite3", "asyncmy": "pymysql"}
#: Drivers that are taken by themselves, without SQLAlchemy.
_BARE = ("asyncpg", "psycopg")


async def on_connection(connection: object, procedure: Callable[[CallersConnection], T]) -> T:
    """Runs a synchronous procedure on an AsyncSession or AsyncConnection of SQLAlchemy, or on a connection of asyncpg
    or psycopg; the loop goes on meanwhile. Raises UnsafeConnection, and what the procedure raises."""
    given: Any = connection() if _is_of_asyncio(connection, "async_scoped_session") else connection  # type: ignore[operator]
    if _is_of_asyncio(given, "AsyncSession") or _is_of_asyncio(given, "AsyncConnection"):
        return await given.run_sync(lambda plain: procedure(AwaitedConnection(plain)))  # type: ignore[no-any-return]
    return await greenlet_spawn(lambda: procedure(AwaitedConnection(given)))


def wait_for(step: Awaitable[T]) -> T:
    """Waits inside a procedure of on_connection()."""
    return await_only(step)


def _is_of_asyncio(given: object, name: str) -> bool:
    return isinstance(given, getattr(sys.modules.get("sqlalchemy.ext.asyncio"), name, ()))


class AwaitedConnection(CallersConnection):
    """A connection in a transaction, for a procedure of on_connection(). Confined to the loop that owns it."""

    def _driver_of(self, raw: Any, given: object) -> tuple[str, Any]:
        self._adapter: Any = getattr(raw, "dbapi_connection", None)  # SQLAlchemy's; None: a driver's own connection
        raw = getattr(raw, "driver_connection", None) or raw
        for kind in type(raw).__mro__:
            package = package_of(kind)
            is_known = package in (_BARE if self._adapter is None else _ALIKE)
            if is_known and (package != "psycopg" or kind.__name__.startswith("Async")):
                # The connection inside shows more than aiosqlite's: its autocommit.
                return _ALIKE[package], getattr(raw, "_conn") if package == "aiosqlite" else raw  # noqa: B009
        raise UnsafeConnection(
            f"{type(given).__module__}.{type(given).__qualname__} is no asynchronous connection that is known here: "
            "pass a SQLAlchemy AsyncSession or AsyncConnection (asyncpg, psycopg, aiosqlite, asyncmy), a Connection of "
            "asyncpg, or an AsyncConnection of psycopg"
        )

    def execute(self, sql: str, parameters: Parameters) -> int:
        """As the synchronous one."""
        if self._package == "asyncpg":
            sql = _numbered(sql)
        if not self.is_of_driver:
            return super().execute(sql, parameters)
        if self._package == "asyncpg":
            words = wait_for(self._raw.execute(sql, *parameters)).split()  # INSERT 0 1
            return int(words[-1]) if words[-1].isdigit() else -1
        return int(wait_for(self._raw.execute(sql, parameters)).rowcount)

    def select_one(self, sql: str, parameters: Parameters) -> Sequence[Any] | None:
        """As the synchronous one."""
        if self._package == "asyncpg":
            sql = _numbered(sql)
        if not self.is_of_driver:
            return super().select_one(sql, parameters)
        if self._package == "asyncpg":
            row = wait_for(self._raw.fetchrow(sql, *parameters))
            return None if row is None else tuple(row)
        from psycopg.rows import tuple_row  # the driver is an extra

        cursor = self._raw.cursor(row_factory=tuple_row)  # the service's may make objects of rows
        return wait_for(_first(cursor, sql, parameters))

    def is_autocommitting(self) -> bool:
        """As the synchronous one; asyncpg's own connection always is, outside a transaction."""
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
                return False  # it was given back to asyncpg's pool
        if self._package == "pymysql":
            return bool(self._raw.connected and self._raw.get_transaction_status())
        return super()._is_in_transaction()


async def _first(cursor: Any, sql: str, parameters: Parameters) -> Sequence[Any] | None:
    async with cursor:
        await cursor.execute(sql, parameters)
        return await cursor.fetchone()  # type: ignore[no-any-return]


@cache
def _numbered(sql: str) -> str:
    """As asyncpg takes the values: $1, $2, ..."""
    numbers = count(1)
    return re.sub("%s", lambda _: f"${next(numbers)}", sql)
