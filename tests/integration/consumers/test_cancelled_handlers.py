"""A call of a handler that is cancelled at each of its awaits in turn: nothing is lost, doubled or held."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.pool import NullPool

from checkback_consumers.asynchronous import AwaitedSqlInbox, on_thread
from checkback_consumers.handler import transactional_handler
from checkback_consumers.inbox import InboxAnswer
from reconciler.rocketmq.consumer.listener import ConsumeStatus
from tests.integration.producers.faces import async_engine
from tests.integration.producers.test_cancelled_blocks import _HELD, struck
from tests.polling import eventually
from tests.unit.consumers.loops import LoopThread
from tests.unit.consumers.messages import effect_count, effects, inbox_engine, message

#: More awaits than a call has on any driver.
_AWAITS_MAX = 100


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
def test_a_call_that_is_cancelled_at_any_await_comes_again_and_holds_nothing(
    database_url: str, loop: LoopThread, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """Before its commit nothing of it stays; behind it the redelivery is a duplicate."""
    if database_url.startswith("sqlite"):
        pytest.skip("no server keeps a connection or a lock of it")
    with inbox_engine(database_url) as engine:
        _cancel_at_each(engine, loop, monkeypatch, again=again)


def _cancel_at_each(engine: sa.Engine, loop: LoopThread, monkeypatch: pytest.MonkeyPatch, *, again: bool) -> None:
    database = loop.kept(async_engine(engine.url.render_as_string(hide_password=False), pool_size=2, max_overflow=0))
    original, at, is_over = AwaitedSqlInbox._apply_together, [0], [False]

    async def cancelled(self: AwaitedSqlInbox, work: Any) -> Any:
        task = asyncio.current_task()
        assert task is not None
        answer: list[Any] = []

        async def applied() -> None:
            answer.extend(await original(self, work))

        is_over[0] = not await struck(applied(), at[0], task.cancel, again=again)
        return answer

    async def handler(received: Any, connection: AsyncConnection) -> None:
        await connection.execute(effects.insert().values(unique_key=received.unique_key, amount=1))

    bill = loop.opened(transactional_handler(database, group="billing")(handler))
    seen: set[InboxAnswer] = set()
    for at[0] in range(1, _AWAITS_MAX):
        received = message()
        monkeypatch.setattr(AwaitedSqlInbox, "_apply_together", cancelled)
        bill(received)
        monkeypatch.undo()
        if is_over[0]:
            break
        seen.add(bill.apply(received))
        assert effect_count(engine, received.unique_key) == 1, at[0]
    else:
        pytest.fail("the call never ended without a strike")
    assert seen == {InboxAnswer.NEW, InboxAnswer.DUPLICATE}
    _is_free(engine, database)


def _is_free(engine: sa.Engine, database: AsyncEngine | None = None) -> None:
    """No connection of the pool is out, and on the server none is in a transaction."""
    assert database is None or database.sync_engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    held = _HELD["mysql" if engine.dialect.name == "mariadb" else engine.dialect.name]

    def is_free() -> bool:
        with engine.connect() as connection:
            return int(connection.exec_driver_sql(held).scalar_one()) == 0

    eventually(is_free, within_seconds=20)


async def _timed_out(body: Coroutine[Any, Any, None], at: int) -> bool:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as limit:
        return await struck(body, at, lambda: limit.reschedule(loop.time()), again=False)


async def _scope_ends(body: Coroutine[Any, Any, None], at: int) -> bool:
    with anyio.CancelScope() as scope:
        return await struck(body, at, scope.cancel, again=False)
    raise TimeoutError


@pytest.mark.parametrize("strike", [_timed_out, _scope_ends], ids=["asyncio-timeout", "anyio-scope"])
def test_a_handler_that_gives_up_at_any_await_of_its_own_comes_again_and_holds_nothing(
    database_url: str, loop: LoopThread, strike: Callable[[Coroutine[Any, Any, None], int], Coroutine[Any, Any, bool]]
) -> None:
    if database_url.startswith("sqlite"):
        pytest.skip("no server keeps a connection or a lock of it")
    with inbox_engine(database_url) as engine:
        database = loop.kept(async_engine(database_url, pool_size=2, max_overflow=0))
        at, is_over = [0], [False]

        async def pay(received: Any, connection: AsyncConnection) -> None:
            for amount in (1, 2):
                await connection.execute(effects.insert().values(unique_key=received.unique_key, amount=amount))

        async def handler(received: Any, connection: AsyncConnection) -> None:
            is_over[0] = not await strike(pay(received, connection), at[0])

        bill = loop.opened(transactional_handler(database, group="billing")(handler))
        for at[0] in range(1, _AWAITS_MAX):
            received = message()
            came_again = bill(received) is ConsumeStatus.RECONSUME_LATER
            assert effect_count(engine, received.unique_key) == (0 if came_again else 2), at[0]
            if is_over[0]:
                break
            struck_at, at[0] = at[0], _AWAITS_MAX
            assert bill.apply(received) is (InboxAnswer.NEW if came_again else InboxAnswer.DUPLICATE), struck_at
            assert effect_count(engine, received.unique_key) == 2, struck_at
            is_over[0] = False
        else:
            pytest.fail("the handler never ended without a strike")
        assert at[0] > 1
        _is_free(engine, database)


def test_a_call_in_which_asyncio_run_ends_comes_again_and_holds_nothing(database_url: str) -> None:
    """Nobody has closed the handler: the messages of a loop that has ended come again, in another one."""
    if database_url.startswith("sqlite"):
        pytest.skip("no server keeps a connection or a lock of it")
    with inbox_engine(database_url) as engine:
        answers: set[InboxAnswer] = set()
        for at in range(1, _AWAITS_MAX):
            received = message()
            is_struck = asyncio.run(_run_ends(database_url, received, at))
            if not is_struck:
                break
            answers.add(asyncio.run(_again(database_url, received)))
            assert effect_count(engine, received.unique_key) == 1, at
        else:
            pytest.fail("the handler never ended without a strike")
        assert InboxAnswer.NEW in answers
        _is_free(engine)


async def _pay(received: Any, connection: AsyncConnection) -> None:
    await connection.execute(effects.insert().values(unique_key=received.unique_key, amount=1))


async def _run_ends(url: str, received: Any, at: int) -> bool:
    """False: the call had ended before the strike."""
    has_struck = asyncio.Event()

    async def handler(received: Any, connection: AsyncConnection) -> None:
        await struck(_pay(received, connection), at, has_struck.set, again=False)

    bill = transactional_handler(async_engine(url, poolclass=NullPool), group="billing")(handler)
    await bill.__aenter__()
    call = asyncio.create_task(on_thread(lambda: bill(received)))
    waiting = asyncio.create_task(has_struck.wait())
    await asyncio.wait([call, waiting], return_when=asyncio.FIRST_COMPLETED)
    return has_struck.is_set()


async def _again(url: str, received: Any) -> InboxAnswer:
    async with transactional_handler(async_engine(url, poolclass=NullPool), group="billing")(_pay) as bill:
        return await on_thread(lambda: bill.apply(received))
