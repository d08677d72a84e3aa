"""Without its probe topic a broker proves no absence, so no loss: status, notices, log and reasons say so at once."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.commands.asking.probe_topic import ProbeTopicWatch
from reconciler.commands.notices import late_accounts, proves_calm
from reconciler.commands.status.reading import read_status
from reconciler.commands.status.report import StatusReport
from reconciler.embedded.server import EmbeddedBroker
from reconciler.embedded.settings import BrokerSettings
from reconciler.evidence.horizon import Probes
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.wire.codes import PROBE_TOPIC
from reconciler.settings.file import load_settings
from reconciler.wiring.connections import Connections
from reconciler.words import said
from tests.services.redis_server import RedisServer
from tests.settings_file import commit_queries_file, settings_file

TOPIC = "ORDERS"
TOLD = f"embedded lacks the probe topic {PROBE_TOPIC}"
REMEDY = "`reconciler topics create`"


def broker_with(*topics: str, auto_create: bool = False) -> contextlib.AbstractContextManager[EmbeddedBroker]:
    @contextlib.contextmanager
    def opened() -> Iterator[EmbeddedBroker]:
        with EmbeddedBroker(settings=BrokerSettings(auto_create_topic=auto_create)) as broker:
            create(broker, *topics)
            yield broker

    return opened()


def create(broker: EmbeddedBroker, *topics: str) -> None:
    with RemotingClient() as client:
        for name in topics:
            Admin(client).create_topic(broker.address, name, queues=1)


def connections(broker: EmbeddedBroker, folder: Path, redis_url: str) -> Connections:
    path = settings_file(
        folder,
        f"repairs.topics = {{ {TOPIC} = false }}",
        name_servers=broker.name_servers,
        redis_url=redis_url,
        topic=TOPIC,
        of_producers=f'commit_queries = "{commit_queries_file(folder, TOPIC)}"',
        of_subscription='announcements = "half_topic"\nconsumers_are_idempotent = true',
        has_ledger=True,
    )
    return Connections(load_settings(path, {}))


def late_lines(report: StatusReport) -> list[str]:
    return [said(line) for line in report.late_lines]


def test_status_and_notices_say_at_once_that_no_loss_can_be_proved(tmp_path: Path, redis_server: RedisServer) -> None:
    with broker_with(TOPIC) as broker:
        with connections(broker, tmp_path, redis_server.url) as asked:
            report = read_status(asked)
        create(broker, PROBE_TOPIC)
        with connections(broker, tmp_path, redis_server.url) as asked:
            later = read_status(asked)
    (line,) = (one for one in late_lines(report) if TOLD in one)
    assert REMEDY in line
    assert TOLD in said(report.summary) or "further" in said(report.summary)
    assert report.exit_code == 3
    assert not proves_calm(report)
    assert any(TOLD in trouble.detail for trouble in late_accounts(report, now_ms=report.asked_ms))
    assert not any(PROBE_TOPIC in one for one in late_lines(later))


@pytest.mark.parametrize("topics", [(TOPIC,), (TOPIC, PROBE_TOPIC)])
def test_a_broker_that_makes_the_topic_by_itself_lacks_nothing(
    tmp_path: Path, redis_server: RedisServer, topics: tuple[str, ...]
) -> None:
    with (
        broker_with(*topics, auto_create=True) as broker,
        connections(broker, tmp_path, redis_server.url) as asked,
    ):
        assert not any(PROBE_TOPIC in one for one in late_lines(read_status(asked)))


def test_the_log_says_it_once_until_the_topic_is_there(
    tmp_path: Path, redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with broker_with(TOPIC) as broker, connections(broker, tmp_path, redis_server.url) as asked:
        watch = ProbeTopicWatch(asked)
        watch.look()
        watch.look()
        create(broker, PROBE_TOPIC)
        asked.rocketmq.routes.refresh(PROBE_TOPIC)
        watch.look()
        watch.look()
    told = [(record.message, record.detail) for record in caplog.records if record.message.startswith("probe_topic")]  # type: ignore[attr-defined]
    assert [word for word, _ in told] == ["probe_topic_missing"]
    assert TOLD in told[0][1]


def test_the_reason_of_a_key_names_the_missing_topic() -> None:
    """The reason goes into evidence, explain and the late line of the key."""
    with broker_with(TOPIC) as broker, ClientInstance(broker.name_servers) as instance:
        probes = Probes(instance.client, instance.routes, instance.sender("RECONCILER_PROBE"), instance.unique_keys)
        horizon = probes.horizon(TOPIC)
    assert not horizon.at_ms
    assert PROBE_TOPIC in said(horizon.why["embedded"])
    assert REMEDY in said(horizon.why["embedded"])
