"""The asynchronous face, driven by the tests of the synchronous one: handlers run in a loop, on asynchronous drivers.

So a case is written once and holds for both. The case's own handler is a plain function. It runs inside of a coroutine,
on the synchronous side of the asynchronous connection.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.util import await_only, greenlet_spawn

from checkback_consumers.asynchronous import AwaitedSqlInbox, HandlersLoop
from checkback_consumers.effect import Effect
from checkback_consumers.handler import BusinessHandler, TransactionalHandler, transactional_handler
from checkback_consumers.inbox import InboxAnswer, InboxEntry
from tests.integration.producers.faces import async_engine
from tests.unit.consumers.loops import LoopThread
from tests.unit.consumers.messages import message

#: As transactional_handler.
Decorator = Callable[..., Callable[[BusinessHandler], TransactionalHandler]]


class Plain:
    """An AsyncConnection of psycopg, or a cursor of it, as a plain function uses one."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> Any:
            answer = getattr(self._target, name)(*given)
            return Plain(answer) if name == "cursor" else await_only(answer)

        return call


def in_a_coroutine(handler: BusinessHandler) -> BusinessHandler:
    """The handler as `async def`."""

    async def awaited(received: Any, connection: Any) -> object:
        if isinstance(connection, AsyncConnection):
            return await connection.run_sync(lambda plain: handler(received, plain))
        return await greenlet_spawn(handler, received, Plain(connection))

    return awaited


def asynchronous(loop: LoopThread, url: str) -> Decorator:
    """transactional_handler, whose handlers run in the loop. A function that returns connections of a driver stands
    for psycopg's."""

    def connect() -> Any:
        parsed = make_url(url)
        if parsed.get_backend_name() != "postgresql":
            pytest.skip("of this database there is no asynchronous driver that is taken without SQLAlchemy")
        plain = parsed.set(drivername="postgresql").render_as_string(hide_password=False)
        return psycopg.AsyncConnection.connect(plain, prepare_threshold=None)

    engines: dict[str, AsyncEngine] = {}

    def engine_of(database: sa.Engine) -> AsyncEngine:
        """Its twin, of its login."""
        given = database.url.render_as_string(hide_password=False)
        if given not in engines:
            engines[given] = loop.kept(async_engine(given))
        return engines[given].execution_options(**database.get_execution_options())

    def decorator(database: Any, **options: Any) -> Callable[[BusinessHandler], TransactionalHandler]:
        if isinstance(database, sa.Engine):
            given: Any = engine_of(database)
        else:
            connect().close()  # skips here, and not in a handler
            given = connect
        decorate = transactional_handler(given, **options)
        return lambda handler: loop.opened(decorate(in_a_coroutine(handler)))

    return decorator


class InboxInLoop:
    """The inbox of handlers in a loop, whose effects are plain functions here."""

    is_weaker = False

    def __init__(self, loop: LoopThread, database: AsyncEngine) -> None:
        self._loop = loop
        self._calls = HandlersLoop(running_max=1)
        self._inbox = AwaitedSqlInbox(loop.kept(database), self._calls)
        loop.run(self._open())

    async def _open(self) -> None:
        self._calls.open()

    def apply_once(self, entry: InboxEntry, effect: Effect) -> InboxAnswer:
        """As the port has it."""
        return self._inbox.apply_once(entry, lambda connection: connection.run_sync(effect))

    def close(self) -> None:
        self._loop.run(self._calls.close())


def pool_of(handler: TransactionalHandler) -> sa.Pool:
    """Where the connections of its messages come from, on either face."""
    inbox: Any = handler._inbox_of(message())
    database = inbox._database
    return getattr(database, "sync_engine", database).pool  # type: ignore[no-any-return]


def waits_for(event: threading.Event) -> bool:
    """Waits inside a handler; one that is in a loop leaves that free."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return event.wait(60)
    return await_only(asyncio.to_thread(event.wait, 60))
