"""mode = "classic" as a process: it repairs up to 4.2, finds nothing from 4.3 on and says so, loses by design."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
import sqlalchemy as sa

from checkback_consumers.handler import transactional_handler
from checkback_consumers.recorder import CommitRecorder
from checkback_consumers.replay_worker import ReplayWorker
from reconciler.classic.run import build_classic_round
from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Shard, Subscription
from reconciler.settings.file import load_settings
from reconciler.sql.engines import now_ms, open_engine
from reconciler.wiring.connections import Connections
from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import EFFECTS, Deployment, Service
from tests.polling import eventually
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.redis_server import RedisServer

pytestmark = [pytest.mark.acceptance, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(300)]

CLASSIC = """
[rounds]
mode = "classic"
interval_seconds = 0.5
"""


@contextmanager
def handing_over(deployed: Deployment) -> Iterator[ReplayWorker]:
    """The group's replay worker, in this process: the business that dedupes."""
    engine = open_engine(f"sqlite:///{deployed.inbox}", lock_timeout_seconds=30)
    with CommitRecorder.open(
        deployed.redis_url, environment=deployed.environment, group=deployed.group, shards=1
    ) as recorder:

        @transactional_handler(engine, group=deployed.group, topics=deployed.topic, recorder=recorder)
        def handle(message: Any, connection: sa.Connection) -> None:
            connection.execute(sa.insert(EFFECTS).values(unique_key=message.unique_key, applied_at_ms=now_ms("sqlite")))

        worker = ReplayWorker(
            handle, environment=deployed.environment, topics=deployed.topic, ledger_url=deployed.ledger_url
        )
        try:
            yield worker
        finally:
            worker.close()
            engine.dispose()


def told(service: Service, event: str) -> list[dict[str, Any]]:
    """Log lines of an event."""
    lines = (line for line in service.output.splitlines() if line.startswith("{"))
    return [line for line in map(json.loads, lines) if line["event"] == event]


@pytest.mark.parametrize("family", ["3.2.6", "4.2"])
def test_up_to_4_2_a_lost_message_is_found_under_the_real_topic_and_handed_over(
    family: str, new_deployment: DeploymentFactory
) -> None:
    with EmbeddedBroker(family=family) as broker:
        deployed = new_deployment(name_servers=broker.name_servers, shards=1, settings=CLASSIC)
        service = deployed.run("run")
        deployed.consume()
        producer = deployed.producer()
        delivered = deployed.commit(2, producer=producer)
        lost = deployed.commit(3, lose=True, producer=producer)
        with handing_over(deployed) as worker:

            def applied() -> bool:
                worker.run_once()
                return deployed.effects() == sorted(delivered + lost)

            eventually(applied, within_seconds=90)
        assert service.end() == 0, service.output[-2000:]
        assert told(service, "classic_mode")
        assert not told(service, "classic_mode_is_blind")
        assert sum(line["replayed"] for line in told(service, "classic_round")) >= 3


def test_from_4_3_on_it_finds_no_lost_message_and_names_the_family(new_deployment: DeploymentFactory) -> None:
    deployed = new_deployment(shards=1, settings=CLASSIC)
    service = deployed.run("run")
    producer = deployed.producer()
    lost = deployed.commit(2, lose=True, producer=producer)
    eventually(
        lambda: sum(line["not_found"] for line in told(service, "classic_round")) == len(lost), within_seconds=60
    )
    assert service.end() == 0, service.output[-2000:]
    (warning,) = told(service, "classic_mode_is_blind")
    assert (warning["level"], warning["family"]) == ("warning", "5.1+")
    assert deployed.repairs() == {}
    assert deployed.rows(deployed.ledger, "SELECT 1 FROM reconciler_repair") == []


def test_what_it_loses_a_crash_between_exec_and_hand_over_forgets_the_whole_difference(
    new_deployment: DeploymentFactory, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On 4.2, where it works: documented, not mended."""
    with EmbeddedBroker(family="4.2") as broker:
        deployed = new_deployment(name_servers=broker.name_servers, shards=1, settings=CLASSIC)
        lost = deployed.commit(3, lose=True)
        settings = load_settings(deployed.config, {})
        subscription = Subscription(environment=deployed.environment, topic=deployed.topic, group=deployed.group)
        with Connections(settings) as connections:
            job = build_classic_round(connections)
            eventually(lambda: job.consume_announcements(subscription) == len(lost), within_seconds=60)
            with monkeypatch.context() as dying:
                dying.setattr(job, "_view_message", _dies)
                with pytest.raises(KeyboardInterrupt):
                    job.run(subscription)
        with Connections(settings) as connections:
            again = build_classic_round(connections)
            assert again.consume_announcements(subscription) == 0
            assert again.run(subscription).missing == 0
        keys = ShardKeys(Shard(subscription=subscription, number=0))
        with redis.Redis.from_url(redis_server.url) as client:
            assert client.exists(keys.half, keys.commit, keys.pending) == 0
        assert deployed.rows(deployed.ledger, "SELECT 1 FROM reconciler_repair") == []


def _dies(*_: object) -> None:
    raise KeyboardInterrupt


def test_once_refuses_classic_mode_because_it_verifies_what_it_does(new_deployment: DeploymentFactory) -> None:
    deployed = new_deployment(shards=1, settings=CLASSIC)
    ended = deployed.command("once")
    assert ended.exit_code == 2
    assert "rounds.mode" in ended.stderr


def test_classic_mode_with_several_shards_is_refused_by_name(new_deployment: DeploymentFactory) -> None:
    deployed = new_deployment(shards=1, settings=CLASSIC)
    deployed.config.write_text(deployed.config.read_text().replace("queues = 1", "queues = 4"))
    ended = deployed.command("config", "check")
    assert ended.exit_code == 2
    assert "unique_key_topic.queues" in ended.stderr
