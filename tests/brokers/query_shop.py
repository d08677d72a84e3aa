"""A shop that holds none of our code: a table of orders proves its commits, and half messages announce."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.consumer.push_consumer import ConsumeStatus, PushConsumer
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.received_message import ReceivedMessage
from reconciler.sql import schema
from tests.acceptance.deployment import Service
from tests.brokers.addresses import REAL, Address, address_of
from tests.services.fixtures import SharedClusters
from tests.services.rocketmq import marks


@pytest.fixture(name="place", params=["embedded", pytest.param(REAL, marks=marks(REAL))])
def place_fixture(request: pytest.FixtureRequest, shared_clusters: SharedClusters) -> Iterator[Address]:
    with address_of(request.param, shared_clusters) as address:
        yield address


@pytest.fixture(name="services")
def services_fixture() -> Iterator[list[Service]]:
    """Those that a test starts; they end with it."""
    started: list[Service] = []
    yield started
    for service in started:
        service.process.kill()
        service.process.wait(60)


def make_orders(folder: Path, orders: Iterable[tuple[str, str]]) -> None:
    """Number and status of each."""
    with closing(sqlite3.connect(folder / "shop.db")) as shop, shop:
        shop.execute("CREATE TABLE orders (number TEXT PRIMARY KEY, status TEXT)")
        shop.executemany("INSERT INTO orders VALUES (?, ?)", orders)


def settings(
    folder: Path, *, name_servers: str, topic: str, redis_url: str, repairs: str, of_subscription: str = ""
) -> Path:
    """`repairs` and `of_subscription`: lines of their own."""
    (folder / "queries.toml").write_text(f"""
[[commit_queries]]
topic = "{topic}"
database_url = "sqlite:///{folder}/shop.db"
sql = "SELECT number, status FROM orders WHERE number IN (:keys)"
key = "KEYS"
committed = ["PAID"]
rolled_back = ["CANCELLED"]
longest_transaction_seconds = 1
""")
    file = folder / "reconciler.toml"
    file.write_text(f"""
environment = "{topic}"
unique_key_topic.queues = 2
rocketmq.name_servers = "{name_servers}"
redis.url = "{redis_url}"
ledger.url = "sqlite:///{folder}/ledger.db"
{repairs}
repairs.check_back_wait_seconds = 1
rounds.interval_seconds = 0.5
rounds.skew_margin_seconds = 0.2
[[producers]]
group = "producer_{topic}"
topics = ["{topic}"]
commit_queries = "{folder}/queries.toml"
[[subscriptions]]
topic = "{topic}"
group = "group_{topic}"
announcements = "half_topic"
{of_subscription}
grace_period_seconds = 2.0
""")
    schema.upgrade(f"sqlite:///{folder}/ledger.db", "ledger")
    return file


def with_effect_query(folder: Path, topic: str, *, number: str = "number") -> str:
    """The line of the subscription by which rows of the group's own table prove effects.

    `number`: what is an order's number in that table.
    """
    file = folder / "effects.toml"
    file.write_text(f"""
[[effect_queries]]
topic = "{topic}"
group = "group_{topic}"
database_url = "sqlite:///{folder}/bills.db"
sql = "SELECT {number}, 'BILLED' FROM bills WHERE {number} IN (:keys)"
key = "KEYS"
applied = ["BILLED"]
""")
    return f'effect_query = "{file}"'


class Shop:
    """A group that bills each message that it is given, and halves of producers that are gone or not."""

    def __init__(self, instance: ClientInstance, topic: str, folder: Path) -> None:
        self.billed: Counter[str] = Counter()
        self.keys: dict[str, str] = {}
        self.topic, self.group, self.folder = topic, f"producer_{topic}", folder
        self._instance = instance
        with self._bills() as bills:
            bills.execute("CREATE TABLE IF NOT EXISTS bills (number TEXT PRIMARY KEY)")
        self.consumer = PushConsumer(f"group_{topic}", instance=instance).subscribe(topic, "*")

    def bill(self, messages: Sequence[ReceivedMessage]) -> ConsumeStatus:
        orders = [one.properties["KEYS"] for one in messages]
        with self._bills() as bills:
            bills.executemany("INSERT OR IGNORE INTO bills VALUES (?)", [(order,) for order in orders])
        self.billed.update(orders)
        return ConsumeStatus.CONSUME_SUCCESS

    @contextmanager
    def _bills(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.folder / "bills.db", timeout=30)) as bills, bills:
            yield bills

    def half(self, order: str) -> None:
        """Of a producer that no broker knows: its END never comes."""
        message = Message(topic=self.topic, body=order.encode(), keys=(order,))
        sent = self._instance.sender(self.group).send(message, is_half=True, timeout_seconds=30)
        self.keys[sent.unique_key] = order

    def repairs(self) -> dict[str, tuple[str, int]]:
        """Order -> state and attempts."""
        with closing(sqlite3.connect(self.folder / "ledger.db")) as ledger:
            rows = ledger.execute("SELECT unique_key, state, attempts FROM reconciler_repair").fetchall()
        return {self.keys[key]: (state, attempts) for key, state, attempts in rows}

    def verdicts(self) -> dict[str, str]:
        with closing(sqlite3.connect(self.folder / "ledger.db")) as ledger:
            rows = ledger.execute("SELECT unique_key, verdict FROM reconciler_candidate").fetchall()
        return {self.keys[key]: verdict for key, verdict in rows}
