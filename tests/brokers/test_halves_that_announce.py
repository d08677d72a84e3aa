"""A shop that holds none of our code, on a real broker: the stock Java client sends and receives, a table of orders is
the only proof, and half messages announce. `run` names exactly the messages that are lost: of two tries of one order
the abandoned one is none."""

from __future__ import annotations

import json
import sqlite3
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from reconciler.rocketmq.client.offsets import Offsets
from tests.acceptance.deployment import Service
from tests.brokers import java_client
from tests.brokers.addresses import Address
from tests.brokers.jars import client_jars
from tests.brokers.java_client import Event
from tests.brokers.query_shop import make_orders, settings
from tests.polling import eventually
from tests.services.patient_instance import patient_instance
from tests.services.redis_server import RedisServer
from tests.services.requirements import downloaded

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CLIENT = "5.3.3"


def rows(database: Path, statement: str) -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(database)) as opened:
        return opened.execute(statement).fetchall()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With the orders: those that were abandoned never had a row."""
    orders = [(f"paid-{number}", "PAID") for number in range(20)]
    orders += [(f"lost-{number}", "PAID") for number in range(5)]
    orders += [(f"twice-{number}", "PAID") for number in range(2)]
    orders += [(f"cancelled-{number}", "CANCELLED") for number in range(5)]
    make_orders(tmp_path, orders)
    return tmp_path


@pytest.mark.set_up("commit queries in place of an outbox, and half messages as announcements")
def test_run_names_exactly_what_a_shop_without_our_code_has_lost(
    address: Address, redis_server: RedisServer, folder: Path, services: list[Service]
) -> None:
    downloaded(lambda: client_jars(CLIENT))
    topic = address.new_topic("shop")
    config = settings(
        folder,
        name_servers=address.name_servers,
        topic=topic,
        redis_url=redis_server.url,
        repairs="repairs.enabled = false",
    )
    with ThreadPoolExecutor(1) as pool, patient_instance(address.name_servers) as instance:
        # Until the test is over: of a group that nobody is connected to nothing tells whether it pops.
        shop = pool.submit(
            java_client.run, "shop", version=CLIENT, name_servers=address.name_servers, topic=topic, folder=folder
        )
        try:
            names_what_is_lost(shop, folder, config, services)
        finally:
            (folder / "over").touch()
        shop.result()
        (broker,) = instance.cluster_addresses()
        queues = instance.routes.read_queues(topic)
        assert sum(Offsets(instance.client).maximum(broker, queue) for queue in queues) == 22, "nothing was sent"


def names_what_is_lost(shop: Future[list[Event]], folder: Path, config: Path, services: list[Service]) -> None:
    def sold() -> list[Event]:
        if shop.done():
            shop.result()
        output = folder / "shop.out"
        lines = output.read_text().splitlines() if output.exists() else []
        events: list[Event] = [json.loads(line) for line in lines if line.startswith('{"event"') and line.endswith("}")]
        return events if events and events[-1]["event"] == "sold" else []

    keys = {event["id"]: event["body"] for event in eventually(sold, within_seconds=150) if event["event"] == "sent"}
    services.append(Service(folder / "run.log", ["run", "--config", str(config)]))

    def judged() -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for key, verdict in rows(folder / "ledger.db", "SELECT unique_key, verdict FROM reconciler_candidate"):
            found.setdefault(verdict, set()).add(keys[key])
        return found

    def is_named() -> bool:
        assert services[0].process.poll() is None, services[0].output[-3000:]
        found = judged()
        lost = set().union(*(found.get(one, set()) for one in ("LOST_CONFIRM", "PARKED", "ROLLED_BACK_WRONGLY")))
        assert lost == {f"lost-{number}" for number in range(5)}, found
        delivered = {f"paid-{number}" for number in range(20)} | {f"second-try-{number}" for number in range(2)}
        assert found.get("DELIVERED") == delivered, found
        assert found.get("UNKNOWN") == {f"first-try-{number}" for number in range(2)}, found
        rejected = {f"{how}-{number}" for how in ("cancelled", "abandoned") for number in range(5)}
        assert found.get("REJECTED") == rejected, found
        return True

    eventually(is_named, within_seconds=100)
