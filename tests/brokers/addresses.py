"""Brokers that tests of foreign clients run against: the embedded one, and a real one that judges the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.services.embedded_broker import EmbeddedBroker
from tests.services.fixtures import SharedClusters
from tests.services.rocketmq import marks
from tests.services.topics import create_topic, topic_name

REAL = "5.3.3"


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    """Where a client connects."""

    name: str
    name_servers: str
    broker_port: int

    def new_topic(self, prefix: str) -> str:
        """A fresh topic of four queues, routed."""
        name_server_port = int(self.name_servers.rpartition(":")[2])
        return create_topic(self.broker_port, topic_name(prefix), name_server_port=name_server_port)


@contextmanager
def address_of(place: str, clusters: SharedClusters) -> Iterator[Address]:
    """A new embedded broker for "embedded", else the shared cluster of that version."""
    if place == "embedded":
        with EmbeddedBroker() as embedded:
            yield Address(name=place, name_servers=embedded.name_servers, broker_port=embedded.port)
        return
    cluster = clusters.get(place)
    yield Address(name=place, name_servers=cluster.name_servers, broker_port=cluster.broker().port)


@pytest.fixture(
    scope="module",
    params=["embedded", pytest.param(REAL, marks=[*marks(REAL), pytest.mark.nightly])],
    name="address",
)
def address_fixture(request: pytest.FixtureRequest, shared_clusters: SharedClusters) -> Iterator[Address]:
    """The embedded broker, and by night the real one: what fails on both is the test's own fault."""
    with address_of(request.param, shared_clusters) as address:
        yield address
