"""`status` while all members of a group are stopped: whether messages wait for it, and whether anybody is there."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from reconciler.commands.status.reading import read_status
from reconciler.commands.status.report import StatusReport
from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState
from reconciler.contract.unique_key import member_of
from reconciler.contract.verdicts import Undecided, Verdict
from reconciler.embedded.server import EmbeddedBroker
from reconciler.policy.ports.ledger import VerdictEntry
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.consumer.push_consumer import ConsumeFrom, ConsumeStatus, PushConsumer, PushSettings
from reconciler.rocketmq.wire.message import Message
from reconciler.settings.file import load_settings
from reconciler.telling.lag import DESERTED
from reconciler.wiring.connections import Connections
from reconciler.words import said
from tests.polling import eventually
from tests.services.redis_server import RedisServer
from tests.settings_file import NO_REDIS, settings_file

TOPIC, GROUP, WAITING = "ORDERS", "billing", 5


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as opened:
        yield opened


def status(
    broker: EmbeddedBroker, folder: Path, *, alarm_seconds: float = 0.001, redis_url: str = NO_REDIS
) -> StatusReport:
    """Redis, unless it is named, and the services' databases are away; only what is said of the group is looked at."""
    path = settings_file(
        folder,
        "rocketmq.request_timeout_seconds = 20",
        "unique_key_topic.queues = 1",
        "rounds.skew_margin_seconds = 0",
        name_servers=broker.name_servers,
        redis_url=redis_url,
        topic=TOPIC,
        group=GROUP,
        of_subscription=f"lag_alarm_seconds = {alarm_seconds}",
        has_ledger=True,
    )
    with Connections(load_settings(path, {})) as connections:
        return read_status(connections)


def send(broker: EmbeddedBroker, count: int) -> None:
    with ClientInstance(broker.name_servers) as instance:
        sender = instance.sender("shop")
        for number in range(count):
            sender.send(Message(topic=TOPIC, body=b"%d" % number))


def create(broker: EmbeddedBroker) -> None:
    """A topic of one queue, and a group that has consumed it to its end."""
    with RemotingClient() as client:
        Admin(client).create_topic(broker.address, TOPIC, queues=1)
        Admin(client).create_group(broker.address, GROUP)
        queue = MessageQueue(topic=TOPIC, broker_name="embedded", queue_id=0)
        Offsets(client).store(broker.address, queue, GROUP, 0)


def test_a_dead_group_with_messages_is_told_as_well(broker: EmbeddedBroker, tmp_path: Path) -> None:
    create(broker)
    send(broker, WAITING)

    def told() -> StatusReport:
        report = status(broker, tmp_path)
        assert any(f"{WAITING} messages wait for {TOPIC}/{GROUP} since 20" in said(line) for line in report.late_lines)
        return report

    report = eventually(told, within_seconds=30)
    assert any(line.code is DESERTED for line in report.late_lines)
    assert report.lagging == ()
    assert report.exit_code == 3
    (of_group,) = json.loads(json.dumps(report.as_dict()))["subscriptions"]
    assert of_group["waiting"] == WAITING
    assert of_group["waiting_since_ms"] <= report.asked_ms


@pytest.mark.redis
@pytest.mark.parametrize("is_connected", [False, True])
def test_a_group_that_has_never_come_is_told_by_its_pending_keys(
    broker: EmbeddedBroker, tmp_path: Path, redis_server: RedisServer, is_connected: bool
) -> None:
    """It has no offset, so brokers do not tell what waits; one that is connected may keep its offsets elsewhere."""
    with RemotingClient() as client:
        for topic in (TOPIC, "REFUNDS"):
            Admin(client).create_topic(broker.address, topic, queues=1)
    send(broker, WAITING)
    subscription = Subscription(environment="test", topic=TOPIC, group=GROUP)
    pending = ShardKeys(Shard(subscription=subscription, number=0)).pending
    with Redis.from_url(redis_server.url) as direct:
        direct.zadd(pending, {member_of(f"{number:032X}"): 1_700_000_000_000 + number for number in range(WAITING)})
    with contextlib.ExitStack() as stack:
        if is_connected:  # by another topic, so no offset of this one is stored
            instance = stack.enter_context(ClientInstance(broker.name_servers))
            member = PushConsumer(GROUP, instance=instance).subscribe("REFUNDS", "*")
            stack.enter_context(member.register_listener(lambda _: ConsumeStatus.CONSUME_SUCCESS))
            eventually(lambda: Admin(instance.client).group_members(broker.address, GROUP), within_seconds=60)
        report = status(broker, tmp_path, redis_url=redis_server.url)
    assert report.subscriptions[0].watermark.lacks_offset
    told = f"{WAITING} messages wait for {TOPIC}/{GROUP} since 2023-11-14T22:13:20Z: nobody is connected"
    assert any(said(line).startswith(told) for line in report.late_lines) is not is_connected
    assert report.lagging == ()


def test_what_a_popping_group_was_handed_is_told_while_its_effect_is_missing(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    now_ms = status(broker, tmp_path).asked_ms
    with Connections(load_settings(tmp_path / "reconciler.toml", {})) as connections:
        waiting = VerdictEntry(
            unique_key="A0" * 16, verdict=Verdict.UNKNOWN, evidence={}, first_seen_ms=now_ms - 60_000,
            state=CandidateState.OPEN, wait_seconds=60.0, undecided_by=Undecided.HANDED_OUT,
            undecided_since_ms=now_ms - 30_000,
        )  # fmt: skip
        of = Subscription(environment="test", topic=TOPIC, group=GROUP)
        connections.ledger.candidates.record(Shard(subscription=of, number=0), [waiting])
    told = f"1 messages were handed to {TOPIC}/{GROUP} and show no effect"
    assert said(status(broker, tmp_path, alarm_seconds=10).lagging[0]).startswith(told)
    assert status(broker, tmp_path, alarm_seconds=3_600).lagging == ()
    assert status(broker, tmp_path, alarm_seconds=0).lagging == ()


def test_a_group_without_members_and_messages_alarms(broker: EmbeddedBroker, tmp_path: Path) -> None:
    create(broker)
    report = status(broker, tmp_path)
    assert not [line for line in (*report.late_lines, *report.lagging) if "wait" in said(line)]
    assert report.subscriptions[0].watermark.waiting_since_ms is None


def test_a_group_that_is_never_to_be_told_alarms(broker: EmbeddedBroker, tmp_path: Path) -> None:
    create(broker)
    send(broker, WAITING)
    report = status(broker, tmp_path, alarm_seconds=0)
    assert report.subscriptions[0].watermark.waiting == WAITING
    assert not [line for line in (*report.late_lines, *report.lagging) if "wait" in said(line)]


def test_a_group_whose_members_stand_still_ends_status_with_3(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """They are connected: somebody may be at work, and the sentence says what waits."""
    create(broker)
    send(broker, WAITING)
    settings = PushSettings(consume_from=ConsumeFrom.FIRST, orderly_suspend_seconds=60.0)
    with (
        ClientInstance(broker.name_servers) as instance,
        PushConsumer(GROUP, instance=instance, settings=settings)
        .subscribe(TOPIC, "*")
        .register_listener(lambda _: ConsumeStatus.RECONSUME_LATER, orderly=True),
    ):
        report = eventually(
            lambda: next((r for r in (status(broker, tmp_path),) if r.lagging), None), within_seconds=60
        )
        assert "do its consumers make progress?" in said(report.lagging[0])
        assert not [line for line in report.late_lines if "wait for" in said(line)]
