"""Takes orders: an order and its message are committed together, or neither is."""

import json
import os
import time
from typing import Any
from uuid import uuid4

import prometheus_client
import sqlalchemy as sa
from flask import Flask, Response, abort, current_app, request
from flask_sqlalchemy import SQLAlchemy
from tables import Base, Customer, Order

from checkback_producers import Message, open_producer
from checkback_producers.errors import TransientError
from checkback_producers.metrics import register_metrics

DRIVERS = {"postgresql": "postgresql+psycopg", "sqlite": "sqlite"}
db = SQLAlchemy(model_class=Base)


def message_of(number: str) -> Message:
    """What consumers get."""
    return Message(topic="ORDERS", body=json.dumps({"order": number}).encode())


def place(customer: str) -> str:
    """Commits an order and sends its message; a TransientError means that neither happened."""
    number = uuid4().hex
    session = db.session()  # the one of this request; an error rolls it back
    with current_app.extensions["orders"].transaction(message_of(number), business_id=number) as tx, session:
        tx.record(session)
        session.add(Order(number=number, customer=customer))
        session.commit()  # the last statement of the block
    return number


def placed(customer: str) -> str:
    """Tries the whole block up to three times."""
    for pause_seconds in (0.1, 0.5):
        try:
            return place(customer)
        except TransientError:
            time.sleep(pause_seconds)
    return place(customer)


def order() -> dict[str, str]:
    """The view; it has read before the block, so that the session has a transaction already."""
    if db.session.get(Customer, request.args["name"]) is None:
        abort(403)
    try:
        return {"order": placed(request.args["name"])}
    except TransientError:
        abort(503)


def metrics() -> Response:
    """For Prometheus."""
    return Response(prometheus_client.generate_latest(current_app.extensions["registry"]), mimetype="text/plain")


def application(database_url: str, **brokers: Any) -> Flask:
    """`extensions["open_orders"]()` opens the producer, once in each process; `brokers`: as `open_producer` takes it."""
    app = Flask(__name__)
    url = sa.make_url(database_url)
    url = url.set(drivername=DRIVERS[url.get_backend_name()])
    app.config["SQLALCHEMY_DATABASE_URI"] = url.render_as_string(hide_password=False)
    db.init_app(app)

    def open_orders() -> None:
        producer = open_producer(group="order-service", outbox_url=database_url, **brokers).start()
        registry = prometheus_client.CollectorRegistry()
        register_metrics(registry, producers=[producer])
        app.extensions |= {"orders": producer, "registry": registry}

    app.extensions["open_orders"] = open_orders
    app.post("/orders")(order)
    app.get("/metrics")(metrics)
    return app


def from_environment() -> Flask:
    """For gunicorn."""
    return application(os.environ["DATABASE_URL"], environment="production", name_servers=os.environ["NAME_SERVERS"])
