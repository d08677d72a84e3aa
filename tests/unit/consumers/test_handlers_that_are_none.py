"""Handlers whose call is not their work, answers of any kind, and business ids that two topics share."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from checkback_consumers.handler import transactional_handler
from checkback_consumers.message import business_id
from reconciler.errors import InvalidValue
from reconciler.rocketmq.consumer.listener import ConsumeStatus
from tests.unit.consumers.messages import effect_count, message, pay


async def asynchronous(received: Any, connection: Any) -> None:
    pay(received, connection)


def generator(received: Any, connection: Any) -> Iterator[None]:
    yield
    pay(received, connection)


async def asynchronous_generator(received: Any, connection: Any) -> Any:
    pay(received, connection)
    yield


@pytest.mark.parametrize("handler", [asynchronous, generator, asynchronous_generator])
def test_a_handler_that_has_not_run_is_not_acknowledged(engine: sa.Engine, handler: Any) -> None:
    bill = transactional_handler(engine, group="billing")(lambda *arguments: handler(*arguments))
    received = message()
    assert [bill(received) for _ in range(3)] == [ConsumeStatus.RECONSUME_LATER] * 3
    assert effect_count(engine, received.unique_key) == 0


class Billing:
    async def __call__(self, received: Any, connection: Any) -> None:
        pay(received, connection)

    async def bill(self, received: Any, connection: Any) -> None:
        pay(received, connection)


@pytest.mark.parametrize(
    ("handler", "name"),
    [
        (generator, "generator"),
        (asynchronous_generator, "asynchronous_generator"),
        (partial(generator), "partial"),
    ],
)
def test_a_handler_whose_call_does_no_work_is_refused_before_the_first_message(
    engine: sa.Engine, handler: Any, name: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        transactional_handler(engine, group="billing")(handler)
    assert str(refused.value).startswith(f"handler = '{name}': it is async or a generator")
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("handler", [asynchronous, Billing(), Billing().bill, partial(asynchronous)])
def test_a_coroutine_over_a_synchronous_database_is_refused_before_the_first_message(
    engine: sa.Engine, handler: Any
) -> None:
    with pytest.raises(InvalidValue, match="it is synchronous: give an AsyncEngine") as refused:
        transactional_handler(engine, group="billing")(handler)
    assert len(str(refused.value).splitlines()) == 1


async def session_of(received: Any) -> Any:
    return received


async def new_session() -> Any:
    return None


def asynchronous_databases() -> Iterator[Any]:
    engine = create_async_engine("postgresql+psycopg://127.0.0.1/orders")
    yield pytest.param(engine, id="AsyncEngine")
    yield pytest.param(AsyncSession(engine), id="AsyncSession")
    yield pytest.param(async_sessionmaker(engine), id="async_sessionmaker")
    yield pytest.param(sessionmaker(class_=AsyncSession), id="sessionmaker of AsyncSession")
    yield pytest.param(async_scoped_session(async_sessionmaker(engine), scopefunc=object), id="async_scoped_session")
    yield pytest.param(session_of, id="async function of the message")
    yield pytest.param(new_session, id="async function")


@pytest.mark.parametrize("database", list(asynchronous_databases()))
def test_a_database_that_has_to_be_awaited_is_refused_for_a_plain_handler(database: Any) -> None:
    with pytest.raises(InvalidValue, match="it is asynchronous: write the handler as `async def`") as refused:
        transactional_handler(database, group="billing")(pay)
    assert len(str(refused.value).splitlines()) == 1


def test_an_open_session_is_no_database(engine: sa.Engine) -> None:
    with Session(engine) as session, pytest.raises(InvalidValue, match="database = 'Session': give an Engine"):
        transactional_handler(session, group="billing")(pay)  # type: ignore[arg-type]  # that is the mistake


@pytest.mark.parametrize("answer", [{"ok": True}, [1], {1}, None, "paid"])
def test_whatever_else_a_handler_returns_is_success(engine: sa.Engine, answer: Any) -> None:
    @transactional_handler(engine, group="billing")
    def bill(received: Any, connection: Any) -> Any:
        pay(received, connection)
        return answer

    assert bill(message()) is ConsumeStatus.CONSUME_SUCCESS


def test_a_payment_is_no_duplicate_of_its_order(engine: sa.Engine) -> None:
    """One group, two topics, one business id: it comes again, and loudly, instead of passing for booked."""
    order = transactional_handler(engine, group="billing", topics="ORDERS", dedupe_by=business_id)(pay)
    payment = transactional_handler(engine, group="billing", topics="PAYMENTS", dedupe_by=business_id)(pay)
    paid = message(topic="PAYMENTS", BUSINESS_ID="order-7")
    assert order(message(topic="ORDERS", BUSINESS_ID="order-7")) is ConsumeStatus.CONSUME_SUCCESS
    assert payment(paid) is ConsumeStatus.RECONSUME_LATER
    with pytest.raises(InvalidValue, match=r"topic ORDERS has it.*tell them apart"):
        payment.apply(paid)
    apart = transactional_handler(
        engine, group="billing", topics="PAYMENTS", dedupe_by=lambda m: f"{m.topic}/{business_id(m)}"
    )(pay)
    assert apart(paid) is ConsumeStatus.CONSUME_SUCCESS
    assert effect_count(engine, paid.unique_key) == 1
