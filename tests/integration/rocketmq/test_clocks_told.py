"""Doctor measures the clock of each of two brokers, or says of which one it cannot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.commands.diagnosis import DiagnosisRow
from reconciler.commands.doctor.clocks import check_clocks
from reconciler.commands.doctor.server_clocks import probe_brokers
from reconciler.embedded.server import EmbeddedBroker
from reconciler.embedded.settings import BrokerSettings
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.wire.codes import PROBE_TOPIC
from reconciler.settings.file import load_settings
from reconciler.wiring.connections import Connections
from tests.polling import eventually
from tests.services.clock_behind import ClockBehind
from tests.services.patient_instance import patient_instance
from tests.services.redis_server import RedisServer
from tests.settings_file import settings_file

pytestmark = pytest.mark.redis

TOPIC = "ORDERS"
BEHIND_SECONDS = 600
#: What a busy machine may take from one question to the next.
WAITED_SECONDS = 60


@contextmanager
def two_brokers() -> Iterator[tuple[EmbeddedBroker, EmbeddedBroker]]:
    """One with the right time and one that is behind; each has queues of the topic."""
    with (
        EmbeddedBroker(settings=BrokerSettings(broker_name="right")) as right,
        EmbeddedBroker(
            settings=BrokerSettings(broker_name="behind"),
            name_servers=right.name_servers,
            clock=ClockBehind(BEHIND_SECONDS),
        ) as behind,
        patient_instance(right.name_servers) as instance,
    ):
        for broker in (right, behind):
            for topic in (TOPIC, PROBE_TOPIC):
                Admin(instance.client).create_topic(broker.address, topic, queues=1)
        eventually(lambda: len(instance.routes.refresh(TOPIC).readable_queues) == 2, within_seconds=60)
        yield right, behind


@pytest.fixture
def brokers() -> Iterator[tuple[EmbeddedBroker, EmbeddedBroker]]:
    with two_brokers() as both:
        yield both


def findings(folder: Path, name_servers: str, redis: RedisServer) -> dict[str, DiagnosisRow]:
    """What doctor says of clocks, by check."""
    path = settings_file(
        folder,
        "rocketmq.request_timeout_seconds = 20",
        f"rounds.skew_margin_seconds = {WAITED_SECONDS}",
        name_servers=name_servers,
        redis_url=redis.url,
        of_subscription=f"grace_period_seconds = {3 * WAITED_SECONDS}",
        has_ledger=True,
    )
    with Connections(load_settings(path, {})) as connections:
        return {
            one.check: one
            for one in (told.as_row() for told in check_clocks(connections, lambda: probe_brokers(connections)))
        }


@pytest.mark.parametrize("index_lag_seconds", [0.0, 3_600.0], ids=["index", "no index"])
def test_a_broker_that_is_behind_is_told_from_one_with_the_right_time(
    index_lag_seconds: float,
    brokers: tuple[EmbeddedBroker, EmbeddedBroker],
    shared_redis_server: RedisServer,
    tmp_path: Path,
) -> None:
    for broker in brokers:
        broker.faults.lag_index(index_lag_seconds)
    found = findings(tmp_path, brokers[0].name_servers, shared_redis_server)
    assert {check: one.level for check, one in found.items()} == {"clock of broker behind": "fail"}
    told_seconds = float(found["clock of broker behind"].found.partition(" ")[0])
    assert BEHIND_SECONDS - WAITED_SECONDS < told_seconds <= BEHIND_SECONDS
    assert "s behind Redis" in found["clock of broker behind"].found


def test_a_broker_whose_clock_cannot_be_measured_is_named_beside_those_that_are_right(
    brokers: tuple[EmbeddedBroker, EmbeddedBroker], shared_redis_server: RedisServer, tmp_path: Path
) -> None:
    right, behind = brokers
    behind.faults.refuse()
    found = findings(tmp_path, right.name_servers, shared_redis_server)
    assert {check: one.level for check, one in found.items()} == {"clock of broker behind": "note", "clocks": "ok"}
    assert found["clock of broker behind"].found.startswith("not measured: probe not sent: ")
    assert "the ledger, broker right differ" in found["clocks"].found
    assert "broker behind" not in found["clocks"].found
