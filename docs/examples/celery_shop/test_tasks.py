"""The task as Celery runs it: in this process, and each retry at once."""

import pytest
import sqlalchemy as sa
import tasks
from sqlalchemy.orm import sessionmaker
from tables import Base, Order

from reconciler.testing import Checkback


@pytest.fixture
def checkback(checkback_kit: Checkback, monkeypatch: pytest.MonkeyPatch) -> Checkback:
    """What a process of the pool has opened."""
    checkback_kit.sends("order-service", "ORDERS")
    checkback_kit.stand_in("ORDERS")
    Base.metadata.create_all(checkback_kit.database)
    opened = checkback_kit.producer("order-service"), sessionmaker(checkback_kit.database)
    monkeypatch.setattr(tasks, "opened", lambda: opened)
    return checkback_kit


def placed(checkback: Checkback) -> list[str]:
    with checkback.database.connect() as connection:
        return list(connection.scalars(sa.select(Order.number)))


def test_a_task_whose_half_was_not_safe_is_retried_and_places_one_order(checkback: Checkback) -> None:
    checkback.faults.answer_flush("SLAVE_NOT_AVAILABLE", 1)
    assert tasks.place_order.apply(["7", "mei"]).successful()
    assert placed(checkback) == ["7"]
    checkback.settle()
    checkback.assert_every_commit_took_effect()


def test_a_task_that_is_delivered_twice_places_one_order(checkback: Checkback) -> None:
    for _delivery in range(2):
        assert tasks.place_order.apply(["7", "mei"]).successful()
    assert placed(checkback) == ["7"]
    checkback.settle()
    checkback.assert_every_commit_took_effect()
