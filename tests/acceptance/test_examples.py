"""The code that the README shows, run as it is against the embedded broker and a real Redis."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import sqlalchemy as sa

from checkback_consumers import CommitRecorder
from checkback_producers import AnnouncementRoute, open_producer
from reconciler.rocketmq.client.admin import Admin
from reconciler.sql import schema
from reconciler.sql.engines import open_engine
from tests.polling import eventually
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.patient_instance import patient_instance
from tests.services.redis_server import RedisServer

pytestmark = [pytest.mark.acceptance, pytest.mark.redis]
EXAMPLES = Path(__file__).parents[2] / "docs/examples"


def test_example_of_the_readme_sends_and_bills_an_order(
    tmp_path: Path, embedded_broker: EmbeddedBroker, redis_server: RedisServer
) -> None:
    orders_url, billing_url = (f"sqlite:///{tmp_path / name}" for name in ("orders.db", "billing.db"))
    schema.upgrade(orders_url, "outbox")
    schema.upgrade(billing_url, "inbox")
    orders, billing = open_engine(orders_url), open_engine(billing_url)
    for engine, table in ((orders, "orders"), (billing, "bills")):
        with engine.begin() as connection:
            connection.execute(sa.text(f"CREATE TABLE {table} (number INTEGER)"))
    with patient_instance(embedded_broker.name_servers) as instance:
        for address in instance.cluster_addresses():
            Admin(instance.client).create_topic(address, "ORDERS", queues=2)
            Admin(instance.client).create_topic(address, "RECONCILER_UNIQUE_KEY", queues=16)
    place_order = runpy.run_path(str(EXAMPLES / "order_service.py"))["place_order"]
    bill_orders = runpy.run_path(str(EXAMPLES / "billing_service.py"))["bill_orders"]
    producer = open_producer(
        group="order-service",
        environment="production",
        name_servers=embedded_broker.name_servers,
        outbox_url=orders_url,
        announcements=AnnouncementRoute(environment="production"),
    )
    with (
        producer,
        CommitRecorder.open(redis_server.url, environment="production", group="billing") as recorder,
        bill_orders(billing, recorder, embedded_broker.name_servers),
    ):
        key = place_order(producer, orders, 7)

        def billed() -> list[int]:
            with billing.connect() as connection:
                return list(connection.execute(sa.text("SELECT number FROM bills")).scalars())

        eventually(lambda: billed() == [7], within_seconds=60)
        with billing.connect() as connection:
            assert connection.execute(sa.text("SELECT unique_key FROM reconciler_inbox")).scalars().all() == [key]
        eventually(lambda: recorder.state().recorded + recorder.state().missed == 1, within_seconds=60)
    orders.dispose()
    billing.dispose()
