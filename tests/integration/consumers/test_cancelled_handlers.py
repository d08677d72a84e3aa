"""A call of a handler that is cancelled at each of its awaits in turn: nothing is lost, doubled or held."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from checkback_consumers.asynchronous import AwaitedSqlInbox
from checkback_consumers.handler import transactional_handler
from checkback_consumers.inbox import InboxAnswer
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
    assert database.sync_engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    held = _HELD["mysql" if engine.dialect.name == "mariadb" else engine.dialect.name]

    def is_free() -> bool:
        with engine.connect() as connection:
            return int(connection.exec_driver_sql(held).scalar_one()) == 0

    eventually(is_free, within_seconds=20)
