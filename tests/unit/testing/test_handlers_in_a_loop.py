"""Consumers whose handlers are coroutines, in the kit: `run` is the one line that they need, as synchronous ones."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine

from checkback_consumers import TransactionalConsumer, TransactionalHandler, transactional_handler
from reconciler.testing import Checkback

bills = sa.Table("bills", sa.MetaData(), sa.Column("body", sa.LargeBinary))


@pytest.fixture
def kit(checkback_kit: Checkback) -> Checkback:
    checkback_kit.receives("billing", "ORDERS")
    bills.create(checkback_kit.database)
    return checkback_kit


def database_of(kit: Checkback) -> AsyncEngine:
    return create_async_engine(kit.database.url.set(drivername="sqlite+aiosqlite"))


def billing(kit: Checkback, database: AsyncEngine) -> TransactionalHandler:
    """A service's own."""
    decorate = transactional_handler(
        async_sessionmaker(database), group="billing", topics="ORDERS", recorder=kit.recorder("billing")
    )

    async def bill(message: Any, session: AsyncSession) -> None:
        await session.execute(bills.insert().values(body=message.body))

    return decorate(bill)


def billed(kit: Checkback) -> list[bytes]:
    with kit.database.connect() as connection:
        return list(connection.scalars(sa.select(bills.c.body)))


def test_a_coroutine_is_run_as_any_other_handler_and_comes_again_without_a_second_effect(kit: Checkback) -> None:
    bill = billing(kit, database_of(kit))
    kit.run("billing", lambda: TransactionalConsumer(bill, name_servers=kit.name_servers))
    kit.kill_producer_before_end()
    kit.send("ORDERS", b"one")
    assert kit.settle().repairs == {"end": 1}
    kit.redeliver("billing")  # which stops the group, and starts it
    kit.settle()
    assert (billed(kit), kit.counts("billing")["duplicates"]) == ([b"one"], 1)
    kit.assert_every_commit_took_effect()


def test_a_handler_that_the_service_has_opened_itself_stays_in_its_loop(kit: Checkback) -> None:
    bill = billing(kit, database_of(kit))
    close = bill.open_apart()
    kit.run("billing", lambda: TransactionalConsumer(bill, name_servers=kit.name_servers))
    kit.send("ORDERS", b"one")
    kit.settle()
    kit.stop_group("billing")
    close()
    assert billed(kit) == [b"one"]


def test_one_of_a_module_serves_several_tests_and_leaves_neither_loop_nor_connection(
    kit: Checkback, tmp_path: Path
) -> None:
    database, before = database_of(kit), set(threading.enumerate())
    bill = billing(kit, database)
    for body in (b"one", b"two"):
        of_a_test = Checkback(f"sqlite:///{tmp_path}/{body.decode()}.db", folder=tmp_path)
        of_a_test.receives("billing", "ORDERS")
        of_a_test.run("billing", partial(TransactionalConsumer, bill, name_servers=of_a_test.name_servers))
        of_a_test.send("ORDERS", body)
        of_a_test.settle()
        of_a_test.close()
        assert database.sync_engine.pool.checkedin() == 0  # type: ignore[attr-defined]  # one that keeps connections
    assert [one.name for one in set(threading.enumerate()) - before] == ["commit-recorder"]  # until `kit` ends
    assert billed(kit) == [b"one", b"two"]
