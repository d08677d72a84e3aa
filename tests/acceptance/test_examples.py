"""The code that the README shows, run as it is against the embedded broker and a real Redis."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
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
from tests.services.postgres import PostgresServer
from tests.services.redis_server import RedisServer
from tests.services.requirements import postgres_programs

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


@pytest.mark.sql("postgres")
def test_the_commands_that_tell_who_is_affected_print_the_lost_order_only(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    readme = (EXAMPLES.parents[1] / "README.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- affected -->\n```bash\n(.*?)```", readme, re.DOTALL)
    assert block is not None
    orders, bills = postgres_server.create_database(), postgres_server.create_database()
    for url, statements in (
        (orders, "CREATE TABLE orders (number INTEGER, created_at TIMESTAMPTZ)"),
        (orders, "INSERT INTO orders SELECT n, now() - n * interval '20 minutes' FROM generate_series(1, 12) n"),
        (bills, "CREATE TABLE bills (number INTEGER)"),
        (bills, "INSERT INTO bills SELECT n FROM generate_series(1, 12) n WHERE n NOT IN (2, 10)"),
    ):
        engine = open_engine(url)
        with engine.begin() as connection:
            connection.execute(sa.text(statements))
        engine.dispose()
    environment = {
        "PATH": f"{postgres_programs()}{os.pathsep}{os.environ['PATH']}",
        "ORDERS": orders.replace("+psycopg", ""),
        "BILLS": bills.replace("+psycopg", ""),
    }
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block[1]],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == ("10\n", "", 0)
