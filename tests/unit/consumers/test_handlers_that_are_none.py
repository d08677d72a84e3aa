"""Handlers whose call is not their work, answers of any kind, and business ids that two topics share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from consumers.handler import transactional_handler
from consumers.message import business_id
from reconciler.errors import InvalidValue
from reconciler.rocketmq.consumer_listener import ConsumeStatus
from tests.unit.consumers.messages import effect_count, effects, inbox_engine, message, sqlite_url


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    with inbox_engine(sqlite_url(tmp_path)) as opened:
        yield opened


def write(received: Any, connection: Any) -> None:
    connection.execute(effects.insert().values(unique_key=received.unique_key, amount=1))


async def asynchronous(received: Any, connection: Any) -> None:
    write(received, connection)


def generator(received: Any, connection: Any) -> Iterator[None]:
    yield
    write(received, connection)


async def asynchronous_generator(received: Any, connection: Any) -> Any:
    write(received, connection)
    yield


@pytest.mark.parametrize("handler", [asynchronous, generator, asynchronous_generator])
def test_a_handler_that_has_not_run_is_not_acknowledged(engine: sa.Engine, handler: Any) -> None:
    bill = transactional_handler(engine, group="billing")(handler)
    received = message()
    assert [bill(received) for _ in range(3)] == [ConsumeStatus.RECONSUME_LATER] * 3
    assert effect_count(engine, received.unique_key) == 0


@pytest.mark.parametrize("answer", [{"ok": True}, [1], {1}, None, "paid"])
def test_whatever_else_a_handler_returns_is_success(engine: sa.Engine, answer: Any) -> None:
    @transactional_handler(engine, group="billing")
    def bill(received: Any, connection: Any) -> Any:
        write(received, connection)
        return answer

    assert bill(message()) is ConsumeStatus.CONSUME_SUCCESS


def test_a_payment_is_no_duplicate_of_its_order(engine: sa.Engine) -> None:
    """One group, two topics, one business id: it comes again, and loudly, instead of passing for booked."""
    order = transactional_handler(engine, group="billing", topics="ORDERS", dedupe_by=business_id)(write)
    payment = transactional_handler(engine, group="billing", topics="PAYMENTS", dedupe_by=business_id)(write)
    paid = message(topic="PAYMENTS", BUSINESS_ID="order-7")
    assert order(message(topic="ORDERS", BUSINESS_ID="order-7")) is ConsumeStatus.CONSUME_SUCCESS
    assert payment(paid) is ConsumeStatus.RECONSUME_LATER
    with pytest.raises(InvalidValue, match=r"topic ORDERS has it.*tell them apart"):
        payment.apply(paid)
    apart = transactional_handler(
        engine, group="billing", topics="PAYMENTS", dedupe_by=lambda m: f"{m.topic}/{business_id(m)}"
    )(write)
    assert apart(paid) is ConsumeStatus.CONSUME_SUCCESS
    assert effect_count(engine, paid.unique_key) == 1
