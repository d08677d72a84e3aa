"""What the task does, with the test kit: SQLite, an embedded broker, and no other process."""

from collections.abc import Callable
from typing import Any

import orders
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import sessionmaker
from tables import Base, Bill
from worker import billing

from checkback_consumers import TransactionalConsumer
from checkback_producers import Message, TransactionalProducer
from checkback_producers.errors import TransientError
from reconciler.testing import Checkback


@pytest.fixture
def checkback(checkback_kit: Checkback) -> Checkback:
    """The worker bills orders."""
    checkback_kit.sends("order-service", "ORDERS")
    checkback_kit.receives("billing", "ORDERS")
    Base.metadata.create_all(checkback_kit.database)
    recorder, name_servers = checkback_kit.recorder("billing"), checkback_kit.name_servers
    checkback_kit.run(
        "billing",
        lambda: TransactionalConsumer(billing(checkback_kit.database, recorder), name_servers=name_servers),
    )
    return checkback_kit


@pytest.fixture
def producer(checkback: Checkback) -> TransactionalProducer:
    """That of the process."""
    return checkback.producer("order-service")


@pytest.fixture
def run(checkback: Checkback, producer: TransactionalProducer) -> Callable[[], bool]:
    """One run of the task."""
    return lambda: orders.place(producer, sessionmaker(checkback.database), "7", "mei")


def bills(checkback: Checkback) -> list[str]:
    with checkback.database.connect() as connection:
        return list(connection.scalars(sa.select(Bill.number)))


def test_an_order_is_billed(checkback: Checkback, run: Callable[[], bool]) -> None:
    assert run()
    assert checkback.settle().is_at_rest
    assert bills(checkback) == ["7"]


def test_a_task_that_runs_again_after_its_commit_sends_nothing_more(
    checkback: Checkback, producer: TransactionalProducer, run: Callable[[], bool]
) -> None:
    assert [run(), run()] == [True, False]
    checkback.settle()
    assert producer.counts.as_dict()["halves"] == 1
    assert bills(checkback) == ["7"]


def test_an_order_whose_process_died_before_end_is_billed_although_the_next_run_sends_nothing(
    checkback: Checkback, run: Callable[[], bool]
) -> None:
    checkback.kill_producer_before_end()
    assert [run(), run()] == [True, False]
    assert checkback.settle().repairs == {"end": 1}
    assert bills(checkback) == ["7"]


def test_of_two_runs_at_once_one_is_rolled_back(
    checkback: Checkback, producer: TransactionalProducer, run: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    def behind_another_run(**values: Any) -> Message:
        monkeypatch.undo()
        assert run()
        return Message(**values)

    monkeypatch.setattr(orders, "Message", behind_another_run)
    with pytest.raises(IntegrityError):
        run()
    assert not run()
    counts = producer.counts.as_dict()
    assert (counts["committed"], counts["rolled_back"]) == (1, 1)
    checkback.settle()
    assert bills(checkback) == ["7"]


def test_a_task_whose_half_was_not_safe_has_placed_nothing_and_its_next_run_places_the_order(
    checkback: Checkback, run: Callable[[], bool]
) -> None:
    checkback.faults.answer_flush("SLAVE_NOT_AVAILABLE", 1)
    with pytest.raises(TransientError):
        run()
    assert run()
    checkback.settle()
    assert bills(checkback) == ["7"]
