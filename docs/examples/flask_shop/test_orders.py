"""The service with the test kit: SQLite, an embedded broker, and no other process."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from flask import Flask, Response
from flask.testing import FlaskClient
from orders import application, db, message_of
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
def app(checkback: Checkback) -> Iterator[Flask]:
    """The web process."""
    url = checkback.database.url.render_as_string(hide_password=False)
    app = application(url, environment=checkback.environment, instance=checkback.instance)
    app.extensions["open_orders"]()
    yield app
    app.extensions["orders"].shutdown()
    with app.app_context():
        db.engine.dispose()


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    """A browser."""
    return app.test_client()


def bills(checkback: Checkback) -> list[str]:
    with checkback.database.connect() as connection:
        return list(connection.scalars(sa.select(Bill.number)))


def test_an_order_is_billed(checkback: Checkback, client: FlaskClient) -> None:
    number = client.post("/orders?name=mei").get_json()["order"]
    assert checkback.settle().is_at_rest
    assert bills(checkback) == [number]
    assert 'reconciler_producer_committed_total{producer_group="order-service"} 1.0' in client.get("/metrics").text


def test_an_order_whose_end_was_lost_is_billed(checkback: Checkback, client: FlaskClient) -> None:
    checkback.kill_producer_before_end()
    number = client.post("/orders?name=mei").get_json()["order"]
    assert checkback.settle().repairs == {"end": 1}
    assert bills(checkback) == [number]


def test_an_order_of_a_stranger_sends_nothing(checkback: Checkback, client: FlaskClient) -> None:
    assert client.post("/orders?name=eve").status_code == 403
    checkback.settle()
    assert bills(checkback) == []


def test_an_order_whose_half_was_not_safe_is_placed_by_the_next_try(checkback: Checkback, client: FlaskClient) -> None:
    checkback.faults.answer_flush("SLAVE_NOT_AVAILABLE", 1)
    number = client.post("/orders?name=mei").get_json()["order"]
    checkback.settle()
    assert bills(checkback) == [number]


def test_a_commit_behind_the_view_is_told_and_decided_by_check_back(
    checkback: Checkback, app: Flask, client: FlaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    @app.post("/late")
    def late() -> str:
        with app.extensions["orders"].transaction(message_of("7"), business_id="7") as tx:
            tx.record(db.session)
        return ""

    @app.after_request
    def commit(response: Response) -> Response:
        db.session.commit()
        return response

    client.post("/late")
    assert app.extensions["orders"].counts.as_dict()["unknown"] == 1
    assert "the recorded connection is still in a transaction" in caplog.text
    assert checkback.settle().is_at_rest
    checkback.assert_every_commit_took_effect()
