"""The asynchronous face, driven by the tests of the synchronous one: each call runs in a loop until it is answered.

So a case is written once and holds for both. Engines are SQLAlchemy's asyncio over one driver a database.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from checkback_producers import AsyncTransactionalProducer
from checkback_producers.outbox import SqlOutbox
from checkback_producers.ports import OutboxEntry
from tests.unit.producers.world import World

#: As services name them.
DRIVERS = {"sqlite": "aiosqlite", "postgresql": "asyncpg", "mysql": "asyncmy"}


def async_engine(url: str, driver: str | None = None, **options: Any) -> AsyncEngine:
    """An engine over the asynchronous driver of a database; through a pooler, too."""
    parsed = make_url(url)
    driver = driver or DRIVERS[parsed.get_backend_name()]
    arguments: dict[str, Any] = {}
    if driver == "asyncpg":
        arguments = {"statement_cache_size": 0, "prepared_statement_name_func": lambda: ""}
        parsed = parsed.update_query_dict({"prepared_statement_cache_size": "0"})
    elif driver == "psycopg":
        arguments = {"prepare_threshold": None}
    made = create_async_engine(
        parsed.set(drivername=f"{parsed.get_backend_name()}+{driver}"), connect_args=arguments, **options
    )
    if driver == "aiosqlite" and "isolation_level" not in options:
        event.listen(made.sync_engine, "connect", _begin_nothing)
        event.listen(made.sync_engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return made


def _begin_nothing(connection: Any, _record: object) -> None:
    connection.isolation_level = None


class OnLoop:
    """An asynchronous object whose calls run until they are answered."""

    def __init__(self, runner: asyncio.Runner, target: Any, other: object = None, *, is_begun: bool = False) -> None:
        self._runner = runner
        self._target = target
        self._other = other
        self._is_begun = is_begun

    def __enter__(self) -> Any:
        return self if self._is_begun else OnLoop(self._runner, self._run(self._target.__aenter__()), is_begun=True)

    def __exit__(self, *raised: Any) -> Any:
        return self._run(self._target.__aexit__(*raised))

    def __getattr__(self, name: str) -> Any:
        if not hasattr(self._target, name):
            return getattr(self._other, name)
        value = getattr(self._target, name)
        return self._call(value) if callable(value) and not isinstance(value, type) else value

    def _call(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any, **named: Any) -> Any:
            result = function(*(one._target if isinstance(one, OnLoop) else one for one in given), **named)
            is_begun = inspect.isawaitable(result)  # SQLAlchemy's connections and transactions are begun by it
            if is_begun:
                result = self._run(result)
            return OnLoop(self._runner, result, is_begun=is_begun) if hasattr(result, "__aenter__") else result

        return called

    def _run(self, awaitable: Any) -> Any:
        async def one() -> Any:
            return await awaitable

        return self._runner.run(one())


class AsyncWorld(World):
    """A world whose producers and connections are asynchronous."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.runner = asyncio.Runner()
        self.async_engine = async_engine(url)
        self._entered: list[OnLoop] = []

    @property
    def database(self) -> Any:
        return OnLoop(self.runner, self.async_engine)

    def session(self) -> Any:
        return OnLoop(self.runner, AsyncSession(self.async_engine))

    def record(self, rows: SqlOutbox, connection: Any, entry: OutboxEntry) -> None:
        self.runner.run(rows.record_awaited(connection._target, entry, asyncio.to_thread))

    def other_database(self, url: str | None = None, **options: Any) -> Any:
        return OnLoop(self.runner, async_engine(url or self.url, **options))

    def producer(self, **settings: Any) -> Any:
        made = self.made(**settings)
        producer = OnLoop(self.runner, AsyncTransactionalProducer(made, database=self.async_engine), made)
        producer.__enter__()
        self._entered.append(producer)
        return producer

    def close(self) -> None:
        for producer in self._entered:
            producer.__exit__(None, None, None)
        self.runner.run(self.async_engine.dispose())
        self.runner.close()
        super().close()


#: Name of a face -> the world that shows it.
FACES: dict[str, Callable[[str], World]] = {"threads": World, "asyncio": AsyncWorld}
