"""A shop that holds none of our code: a table of orders proves its commits, and half messages announce."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

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
