"""The broker under test, started once for all tests on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from reconciler.testing import Checkback
from tests.conformance.steps import Steps, new_steps
from tests.conformance.targets import KIT, Target, chosen, expectation
from tests.services.embedded_broker import EmbeddedBroker, configure
from tests.services.fixtures import SharedClusters
from tests.services.rocketmq import QUICK


@pytest.fixture(scope="session", params=chosen())
def target(
    request: pytest.FixtureRequest, shared_clusters: SharedClusters, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    """Each chosen broker in turn."""
    name: str = request.param
    if name.startswith("embedded-"):
        with EmbeddedBroker(family=name.removeprefix("embedded-")) as embedded:
            yield Target(
                name=name,
                name_servers=embedded.name_servers,
                broker=embedded.name_servers,
                broker_name=embedded.broker_name,
                expect=expectation(name),
            )
        return
    if name == KIT:
        folder = tmp_path_factory.mktemp("kit")
        with closing(Checkback(f"sqlite:///{folder / 'kit.db'}", folder=folder)) as kit:
            configure(kit.broker.address, QUICK)
            yield Target(
                name=name,
                name_servers=kit.name_servers,
                broker=kit.broker.address,
                broker_name=kit.broker.settings.broker_name,
                expect=expectation(name),
            )
        return
    cluster = shared_clusters.get(name)
    yield Target(
        name=name,
        name_servers=cluster.name_servers,
        broker=cluster.broker().address,
        broker_name=cluster.broker().name,
        expect=expectation(name),
    )


@pytest.fixture
def steps(target: Target) -> Iterator[Steps]:
    """A client instance of the test's own, connected to the broker under test."""
    with new_steps(target) as opened:
        yield opened
