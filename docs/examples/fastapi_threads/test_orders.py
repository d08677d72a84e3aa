"""The service with the test kit: SQLite, an embedded broker, and no other process."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from orders import application
from sqlalchemy.orm import Session
from tables import Base, Bill, Customer
from worker import billing

from checkback_consumers import TransactionalConsumer
from reconciler.testing import Checkback


@pytest.fixture
def checkback(checkback_kit: Checkback) -> Checkback:
    """The worker bills orders."""
    checkback_kit.sends("order-service", "ORDERS")
    checkback_kit.receives("billing", "ORDERS")
    Base.metadata.create_all(checkback_kit.database)
    with Session(checkback_kit.database) as session, session.begin():
        session.add(Customer(name="mei"))
    recorder, name_servers = checkback_kit.recorder("billing"), checkback_kit.name_servers
    checkback_kit.run(
        "billing",
        lambda: TransactionalConsumer(billing(checkback_kit.database, recorder), name_servers=name_servers),
    )
    return checkback_kit


@pytest.fixture
def client(checkback: Checkback) -> Iterator[TestClient]:
    """The web process."""
    url = checkback.database.url.render_as_string(hide_password=False)
    with TestClient(application(url, environment=checkback.environment, instance=checkback.instance)) as client:
        yield client


def bills(checkback: Checkback) -> list[str]:
    with checkback.database.connect() as connection:
        return list(connection.scalars(sa.select(Bill.number)))


def test_an_order_is_billed(checkback: Checkback, client: TestClient) -> None:
    number = client.post("/orders?name=mei").json()["order"]
    assert checkback.settle().is_at_rest
    assert bills(checkback) == [number]
    assert 'reconciler_producer_committed_total{producer_group="order-service"} 1.0' in client.get("/metrics").text


def test_an_order_whose_end_was_lost_is_billed(checkback: Checkback, client: TestClient) -> None:
    checkback.kill_producer_before_end()
    number = client.post("/orders?name=mei").json()["order"]
    assert checkback.settle().repairs == {"end": 1}
    assert bills(checkback) == [number]


def test_an_order_of_a_stranger_sends_nothing(checkback: Checkback, client: TestClient) -> None:
    assert client.post("/orders?name=eve").status_code == 403
    checkback.settle()
    assert bills(checkback) == []


def test_an_order_whose_half_was_not_safe_is_placed_by_the_next_try(checkback: Checkback, client: TestClient) -> None:
    checkback.faults.answer_flush("SLAVE_NOT_AVAILABLE", 1)
    number = client.post("/orders?name=mei").json()["order"]
    checkback.settle()
    assert bills(checkback) == [number]
