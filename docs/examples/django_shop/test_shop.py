"""The service with the test kit: SQLite, an embedded broker, and no other process."""

import os

os.environ["DJANGO_SETTINGS_MODULE"], os.environ["DATABASE_URL"] = "settings", "sqlite:///"  # each test has its own

import django

django.setup()

import pytest
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection, connections, transaction
from django.test import Client
from shop import sending
from shop.management.commands.bill_orders import billing
from shop.models import Bill, Customer, Order

from checkback_consumers import TransactionalConsumer


@pytest.fixture
def checkback(checkback_kit, monkeypatch):
    """The worker bills orders; the producer of this process is that of the test."""
    checkback_kit.sends("order-service", "ORDERS")
    checkback_kit.receives("billing", "ORDERS")
    connections.close_all()
    monkeypatch.setitem(connections.settings["default"], "NAME", checkback_kit.database.url.database)
    with connection.schema_editor() as editor:
        for model in (Customer, Order, Bill):
            editor.create_model(model)
    Customer.objects.create(name="mei")
    monkeypatch.setitem(settings.CHECKBACK, "environment", checkback_kit.environment)
    monkeypatch.setitem(settings.CHECKBACK, "instance", checkback_kit.instance)
    monkeypatch.setitem(settings.CHECKBACK, "outbox_url", str(checkback_kit.database.url))
    monkeypatch.setattr(sending, "_of_process", {})
    recorder, name_servers = checkback_kit.recorder("billing"), checkback_kit.name_servers
    checkback_kit.run("billing", lambda: TransactionalConsumer(billing(recorder), name_servers=name_servers))
    yield checkback_kit
    for producer, _ in sending._of_process.values():
        producer.shutdown()
    connections.close_all()


@pytest.fixture
def client(checkback):
    """The web process."""
    return Client()


def bills():
    return list(Bill.objects.values_list("number", flat=True))


def test_an_order_is_billed(checkback, client):
    number = client.post("/orders?name=mei").json()["order"]
    assert checkback.settle().is_at_rest
    assert bills() == [number]
    told = client.get("/metrics").text
    assert 'reconciler_producer_committed_total{producer_group="order-service"} 1.0' in told


def test_an_order_whose_end_was_lost_is_billed(checkback, client):
    checkback.kill_producer_before_end()
    number = client.post("/orders?name=mei").json()["order"]
    assert checkback.settle().repairs == {"end": 1}
    assert bills() == [number]


def test_an_order_of_a_stranger_sends_nothing(checkback, client):
    assert client.post("/orders?name=eve").status_code == 403
    checkback.settle()
    assert bills() == []


def test_an_order_whose_half_was_not_safe_is_placed_by_the_next_try(checkback, client):
    checkback.faults.answer_flush("SLAVE_NOT_AVAILABLE", 1)
    number = client.post("/orders?name=mei").json()["order"]
    checkback.settle()
    assert bills() == [number]


def test_an_order_in_an_outer_transaction_is_refused(checkback):
    with pytest.raises(RuntimeError, match="durable"), transaction.atomic():
        sending.place("mei")
    checkback.settle()
    assert bills() == []


def test_atomic_requests_are_refused_before_the_service_starts(monkeypatch):
    monkeypatch.setitem(settings.DATABASES["default"], "ATOMIC_REQUESTS", True)
    with pytest.raises(SystemCheckError, match=r"shop\.E001"):
        call_command("check")
