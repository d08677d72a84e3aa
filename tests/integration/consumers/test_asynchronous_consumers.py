"""Handlers in a loop behind the push consumer: beside synchronous ones, in order, drained; a loop that is blocked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from checkback_consumers import PushSettings, TransactionalConsumer, TransactionalHandler, transactional_handler
from reconciler.embedded.server import EmbeddedBroker
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.wire.message import Message
from tests.integration.producers.faces import async_engine
from tests.polling import eventually
from tests.services.patient_instance import patient_instance
from tests.unit.consumers.messages import effect_count, effects, inbox_engine, sqlite_url

ORDERS, REFUNDS, GROUP = "ORDERS", "REFUNDS", "billing"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as started:
        for topic in (ORDERS, REFUNDS):
            started.call(lambda broker, topic=topic: broker.state.ensure_topic(topic, queues=1))  # type: ignore[misc]
        yield started


@pytest.fixture
def instance(broker: EmbeddedBroker) -> Iterator[ClientInstance]:
    """A client whose heartbeats are frequent."""
    with patient_instance(broker.name_servers, heartbeat_interval_seconds=0.05) as opened:
        yield opened


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    with inbox_engine(sqlite_url(tmp_path)) as opened:
        yield opened


@pytest.fixture
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sa.Engine]:
    """A database of its own: SQLite has one writer at a time."""
    with inbox_engine(sqlite_url(tmp_path_factory.mktemp("refunds"))) as opened:
        yield opened


def sent(instance: ClientInstance, topic: str, *bodies: bytes) -> list[str | None]:
    sender = instance.sender("order-service")
    return [sender.send(Message(topic=topic, body=body)).unique_key for body in bodies]


async def until(predicate: Callable[[], object]) -> None:
    """Waits on a thread."""
    await asyncio.to_thread(eventually, predicate, within_seconds=60)


class Billing:
    """A service whose handler waits where its message says so, and fails once where it says so."""

    def __init__(self, engine: sa.Engine, **options: Any) -> None:
        self.database: AsyncEngine = async_engine(engine.url.render_as_string(hide_password=False))
        self.gate = asyncio.Event()
        self.begun: list[bytes] = []
        decorate = transactional_handler(self.database, group=GROUP, topics=ORDERS, **options)
        self.handler: TransactionalHandler = decorate(self._bill)

    async def _bill(self, received: Any, connection: AsyncConnection) -> None:
        is_first = received.body not in self.begun
        self.begun.append(received.body)
        await connection.execute(effects.insert().values(unique_key=received.unique_key, amount=1))
        if received.body.startswith(b"waits"):
            await self.gate.wait()
        if received.body.startswith(b"fails") and is_first:
            raise ZeroDivisionError


def test_synchronous_and_asynchronous_handlers_of_a_group_have_each_effect_once(
    instance: ClientInstance, broker: EmbeddedBroker, engine: sa.Engine
) -> None:
    billing = Billing(engine)
    threads: list[str] = []

    @transactional_handler(engine, group=GROUP, topics=REFUNDS)
    def refund(received: Any, connection: sa.Connection) -> None:
        threads.append(threading.current_thread().name)
        connection.execute(effects.insert().values(unique_key=received.unique_key, amount=-1))

    keys = sent(instance, ORDERS, *(b"fails %d" % number for number in range(3)), b"paid")
    refunded = sent(instance, REFUNDS, b"one", b"two")

    async def serve() -> None:
        async with billing.handler, TransactionalConsumer(billing.handler, refund, name_servers=broker.name_servers):
            await until(lambda: effect_count(engine) == 6)
        await billing.database.dispose()

    asyncio.run(serve())
    assert [effect_count(engine, str(key)) for key in (*keys, *refunded)] == [1] * 6
    assert (billing.handler.counts.applied, billing.handler.counts.failed, refund.counts.applied) == (4, 3, 2)
    assert all(name.startswith("rocketmq-listen") for name in threads), "not in the loop"


@pytest.mark.parametrize("batch_size", [1, 4])
def test_orderly_consumption_stays_in_order(
    instance: ClientInstance, broker: EmbeddedBroker, engine: sa.Engine, batch_size: int
) -> None:
    """A message that fails holds up those behind it; none of them runs beside another."""
    billing = Billing(engine, is_batched=batch_size > 1)
    bodies = [b"one", b"fails", b"two", b"three", b"four"]
    sent(instance, ORDERS, *bodies)
    settings = PushSettings(orderly_suspend_seconds=0.05, batch_size=batch_size)

    async def serve() -> None:
        async with (
            billing.handler,
            TransactionalConsumer(billing.handler, name_servers=broker.name_servers, orderly=True, settings=settings),
        ):
            await until(lambda: effect_count(engine) == len(bodies))
        await billing.database.dispose()

    asyncio.run(serve())
    assert _last_of_each(billing.begun) == bodies


def _last_of_each(begun: Sequence[bytes]) -> list[bytes]:
    """In the order of their last beginnings, which had their effects."""
    return sorted(set(begun), key=lambda body: len(begun) - begun[::-1].index(body))


def test_the_end_of_a_consumer_waits_for_what_runs(
    instance: ClientInstance, broker: EmbeddedBroker, engine: sa.Engine
) -> None:
    billing = Billing(engine)
    sent(instance, ORDERS, b"waits")

    async def serve() -> None:
        async with billing.handler:
            async with TransactionalConsumer(billing.handler, name_servers=broker.name_servers) as consumer:
                await until(lambda: billing.begun)

                async def let_go() -> None:
                    await until(lambda: consumer.consumer._running is None)
                    billing.gate.set()

                ending = asyncio.create_task(let_go())
            await ending
            assert (billing.handler.counts.applied, billing.handler.counts.failed) == (1, 0)
        await billing.database.dispose()

    asyncio.run(serve())
    assert effect_count(engine) == 1


def test_what_is_not_drained_in_time_is_cancelled_and_comes_again(
    instance: ClientInstance, broker: EmbeddedBroker, engine: sa.Engine
) -> None:
    (key,) = sent(instance, ORDERS, b"waits")
    settings = PushSettings(shutdown_timeout_seconds=0.05)
    first, second = Billing(engine), Billing(engine)

    async def serve(billing: Billing) -> None:
        async with (
            billing.handler,
            TransactionalConsumer(billing.handler, name_servers=broker.name_servers, settings=settings),
        ):
            await until(lambda: billing.begun)
            if billing is second:
                billing.gate.set()
                await until(lambda: billing.handler.counts.applied)
        await billing.database.dispose()

    asyncio.run(serve(first))
    assert (first.handler.counts.applied, effect_count(engine)) == (0, 0)
    asyncio.run(serve(second))
    assert effect_count(engine, str(key)) == 1


def test_a_loop_that_is_blocked_delays_its_messages_and_nothing_else(
    instance: ClientInstance, broker: EmbeddedBroker, engine: sa.Engine, other: sa.Engine
) -> None:
    """Heartbeats, offsets and the synchronous handlers of the group go on, for as long as a handler holds the loop."""
    is_blocked, may_go_on = threading.Event(), threading.Event()
    database = async_engine(engine.url.render_as_string(hide_password=False))

    async def blocks(received: Any, connection: AsyncConnection) -> None:
        is_blocked.set()
        assert may_go_on.wait(120)
        await connection.execute(effects.insert().values(unique_key=received.unique_key, amount=1))

    refunds: list[bytes] = []
    bill = transactional_handler(database, group=GROUP, topics=ORDERS)(blocks)

    @transactional_handler(other, group=GROUP, topics=REFUNDS)
    def refund(received: Any, _connection: sa.Connection) -> None:
        refunds.append(received.body)

    settings = PushSettings(offset_commit_interval_seconds=0.05)
    (key,) = sent(instance, ORDERS, b"blocks")

    def seen() -> float:
        found = broker.call(lambda broker: broker.clients.consumers[GROUP].members.values())
        return max(member.seen_seconds for member in found)

    def look() -> None:
        assert is_blocked.wait(60)
        for _ in range(3):
            before = seen()
            eventually(lambda before=before: seen() > before, within_seconds=60)  # type: ignore[misc]
        sent(instance, REFUNDS, b"one", b"two")
        eventually(lambda: sorted(refunds) == [b"one", b"two"], within_seconds=60)
        eventually(
            lambda: broker.call(lambda broker: broker.state.offset_of(GROUP, REFUNDS, 0)) == 2, within_seconds=60
        )
        assert broker.call(lambda broker: broker.state.offset_of(GROUP, ORDERS, 0)) in (None, 0)
        assert bill.counts.applied == 0

    async def serve() -> None:
        looked: list[BaseException] = []

        def watch() -> None:
            try:
                look()
            except BaseException as error:  # raised below, where the test sees it
                looked.append(error)
            finally:
                may_go_on.set()

        watching = threading.Thread(target=watch)
        watching.start()
        async with bill, TransactionalConsumer(bill, refund, instance=instance, settings=settings):
            await until(lambda: bill.counts.applied == 1 or looked)
        watching.join(60)
        await database.dispose()
        for error in looked:
            raise error

    asyncio.run(serve())
    assert effect_count(engine, str(key)) == 1
