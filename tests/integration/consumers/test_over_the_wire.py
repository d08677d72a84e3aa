"""The consumer plug-in against the embedded broker: announcements pulled, messages consumed, processes killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from checkback_consumers.handler import transactional_handler
from checkback_consumers.message import ConsumedMessage
from checkback_consumers.push import TransactionalConsumer
from reconciler.announcing.consumer import AnnouncementConsumer
from reconciler.announcing.looking import AnnouncementLook
from reconciler.announcing.outage_watch import OutageWatch
from reconciler.announcing.port import AnnouncementEvent, EventKind
from reconciler.announcing.rules import AnnouncementRules
from reconciler.announcing.source import RemotingAnnouncementSource, master_of, message_queue
from reconciler.announcing.step import AnnouncementStep
from reconciler.clock import SystemClock
from reconciler.contract.announcement import AnnouncedKey, Announcement, encode_announcement, split_by_shard
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.unique_key import shard_of
from reconciler.errors import BrokerUnavailable, InvalidValue
from reconciler.halves.announced import SourceByTopic
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.consumer.pulling import PullRequest, submit_pull
from reconciler.rocketmq.wire.message import Message
from reconciler.settings.file import load_settings
from reconciler.sql.schema import upgrade
from reconciler.testing.memory import MemoryLedger
from reconciler.testing.memory_shards import MemoryShards
from reconciler.wiring.announcements import build_announcement_consumer
from reconciler.wiring.connections import Connections
from tests.polling import eventually
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.patient_instance import patient_instance
from tests.services.topics import create_topic, topic_name
from tests.unit.consumers.messages import KeptRecorder, effect_count, inbox_engine, new_key, pay, sqlite_url

ROOT = Path(__file__).resolve().parents[3]
SHARDS = 4


@pytest.fixture(scope="module", params=["5.x", "3.2.6"])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(family=request.param) as started:
        yield started


@pytest.fixture
def instance(broker: EmbeddedBroker) -> Iterator[ClientInstance]:
    with patient_instance(broker.name_servers) as opened:
        yield opened


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    with inbox_engine(sqlite_url(tmp_path)) as opened:
        yield opened


def test_announcements_reach_the_half_sets_of_their_shards(broker: EmbeddedBroker, instance: ClientInstance) -> None:
    unique_key_topic = create_topic(broker.port, topic_name("UK"), queues=SHARDS, name_server_port=broker.port)
    subscription = Subscription(environment="test", topic="ORDERS", group="billing")
    clock = SystemClock()
    memory, ledger = MemoryShards(clock), MemoryLedger(clock)
    events: list[AnnouncementEvent] = []
    source = RemotingAnnouncementSource(instance.client, instance.routes)
    step = AnnouncementStep(
        subscription, unique_key_topic=unique_key_topic, shards=SHARDS, half_sets=memory, ledger=ledger.announcements,
        source=source, rules=AnnouncementRules(environment="test", topic="ORDERS"), token="test", clock=clock,
        on_event=events.append,
    )  # fmt: skip
    sender = instance.sender("announcer")

    def send(shard: int, body: bytes, tag: str = "ORDERS") -> None:
        queue = MessageQueue(topic=unique_key_topic, broker_name=broker.broker_name, queue_id=shard)
        sender.send(Message(topic=unique_key_topic, body=body, tags=tag), queue=queue)

    keys = [new_key() for _ in range(1_000)]
    whole = Announcement(
        environment="test", topic="ORDERS", producer_group="order-service",
        keys=tuple(AnnouncedKey(unique_key=key, tag=None, committed_at_ms=1) for key in keys),
    )  # fmt: skip
    send(0, b"garbage")
    send(0, b"{" * 70_000)  # the sender compresses it
    for shard, part in split_by_shard(whole, SHARDS):
        send(shard, b"somebody else's", tag="REFUNDS")
        send(shard, encode_announcement(part))
        send(shard, b"somebody else's", tag="REFUNDS")
    look = AnnouncementLook([step], memory, OutageWatch(ledger.announcements, "test", clock=clock), clock=clock)
    consumer = AnnouncementConsumer([step], source, look, clock=clock, threads=2)
    consumer.start()
    try:

        def halves() -> list[int]:
            return [memory.size(Shard(subscription=subscription, number=number)) for number in range(SHARDS)]

        expected = Counter(shard_of(key, SHARDS) for key in keys)
        eventually(lambda: halves() == [expected[number] for number in range(SHARDS)], within_seconds=60)
        late = new_key()
        shard = shard_of(late, SHARDS)
        part = Announcement(
            environment="test", topic="ORDERS", producer_group="p",
            keys=(AnnouncedKey(unique_key=late, tag=None, committed_at_ms=1),),
        )  # fmt: skip
        send(shard, encode_announcement(part))
        eventually(lambda: sum(halves()) == 1_001, within_seconds=60)
        assert len(ledger.reports.quarantined("test", limit=10).rows) == 2
        assert EventKind.OFFSET_ILLEGAL not in [event.kind for event in events]
        # Messages of other topics were passed over, too: nothing is left behind.
        eventually(lambda: all(state.behind == 0 for state in consumer.states()), within_seconds=60)
    finally:
        assert consumer.stop()


def test_a_consumer_applies_each_message_once_through_failures_and_retries(
    broker: EmbeddedBroker, engine: sa.Engine, instance: ClientInstance
) -> None:
    topic = create_topic(broker.port, topic_name("ORDERS"), queues=2, name_server_port=broker.port)
    recorder = KeptRecorder()
    failed: set[str | None] = set()

    def handler(received: ConsumedMessage, connection: sa.Connection) -> None:
        pay(received, connection)
        if received.body.startswith(b"again") and received.unique_key not in failed:
            failed.add(received.unique_key)
            raise ValueError("this one comes again")

    wrapped = transactional_handler(engine, group=topic_name("billing"), topics=topic, recorder=recorder)(handler)
    sender = instance.sender("order-service")
    bodies = [b"%s %d" % (b"again" if number % 5 == 0 else b"once", number) for number in range(20)]
    keys = [sender.send(Message(topic=topic, body=body, tags="paid")).unique_key for body in bodies]
    with TransactionalConsumer(wrapped, name_servers=broker.name_servers, offset_commit_interval_seconds=0.5):
        # Messages that were sent before the group existed are consumed too.
        eventually(lambda: effect_count(engine) == 20, within_seconds=60)
        eventually(lambda: {key for _, key in recorder.recorded} == set(keys), within_seconds=60)
    assert all(effect_count(engine, key) == 1 for key in keys)
    assert len(failed) == 4
    assert {recorded_topic for recorded_topic, _ in recorder.recorded} == {topic}


CONSUMER_THAT_DIES = """
import os, signal, sys, threading
sys.path.insert(0, {root!r})
import sqlalchemy as sa
from checkback_consumers.handler import transactional_handler
from checkback_consumers.push import TransactionalConsumer
from reconciler.sql.engines import open_engine
from tests.unit.consumers.messages import effects

class Dies:
    def record(self, topic, unique_key):
        os.kill(os.getpid(), signal.SIGKILL)

@transactional_handler(open_engine({url!r}), group={group!r}, topics={topic!r}, recorder=Dies())
def pay(message, connection):
    connection.execute(effects.insert().values(unique_key=message.unique_key, amount=1))

TransactionalConsumer(pay, name_servers={name_servers!r}).start()
threading.Event().wait(60)
"""


@pytest.mark.promise("G1")
def test_a_consumer_killed_between_effect_and_acknowledgement_repeats_nothing(
    broker: EmbeddedBroker, engine: sa.Engine, instance: ClientInstance
) -> None:
    topic = create_topic(broker.port, topic_name("ORDERS"), queues=1, name_server_port=broker.port)
    group = topic_name("billing")
    key = instance.sender("order-service").send(Message(topic=topic, body=b"one")).unique_key
    script = CONSUMER_THAT_DIES.format(
        root=str(ROOT), url=engine.url.render_as_string(hide_password=False), group=group, topic=topic,
        name_servers=broker.name_servers,
    )  # fmt: skip
    done = subprocess.run([sys.executable, "-c", script], timeout=90, capture_output=True, check=False, cwd=ROOT)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2_000:]
    assert effect_count(engine, key) == 1
    recorder = KeptRecorder()
    wrapped = transactional_handler(engine, group=group, topics=[topic], recorder=recorder)(pay)
    with TransactionalConsumer(wrapped, name_servers=broker.name_servers):
        eventually(lambda: recorder.recorded == [(topic, key)], within_seconds=60)
    assert effect_count(engine, key) == 1
    assert wrapped.counts.duplicates == 1


def test_two_topics_of_one_group_are_dispatched_to_their_handlers(
    broker: EmbeddedBroker, engine: sa.Engine, instance: ClientInstance
) -> None:
    orders, refunds = (
        create_topic(broker.port, topic_name(name), queues=1, name_server_port=broker.port)
        for name in ("ORDERS", "REFUNDS")
    )
    group = topic_name("billing")
    seen: dict[str, list[Any]] = {orders: [], refunds: []}

    def handler_of(topic: str) -> Any:
        wrap = transactional_handler(engine, group=group, topics=topic)
        return wrap(lambda received, connection: seen[topic].append(received.body))

    sender = instance.sender("order-service")
    sender.send(Message(topic=orders, body=b"order", tags="paid"))
    sender.send(Message(topic=orders, body=b"filtered", tags="draft"))
    sender.send(Message(topic=refunds, body=b"refund"))
    with TransactionalConsumer(
        handler_of(orders),
        handler_of(refunds),
        name_servers=broker.name_servers,
        subscriptions={orders: "paid || settled", refunds: "*"},
        orderly=True,
    ):
        eventually(lambda: seen == {orders: [b"order"], refunds: [b"refund"]}, within_seconds=60)


def test_a_pull_of_announcements_that_ends_its_connection_leaves_what_repairs_wait_for_alone(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = create_topic(broker.port, topic_name("UK"), queues=1, name_server_port=broker.port)
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    upgrade(ledger, "ledger")
    settings = load_settings(
        ROOT / "config" / "reconciler.toml",
        {"RECONCILER_LEDGER__URL": ledger, "RECONCILER_ROCKETMQ__NAME_SERVERS": broker.name_servers},
    )
    with Connections(settings) as connections:
        by_topic, repairing = build_announcement_consumer(connections)._source, connections.rocketmq.client
        assert isinstance(by_topic, SourceByTopic)
        source = by_topic._announcements
        assert isinstance(source, RemotingAnnouncementSource)
        (queue,) = source.queues(topic)
        address = master_of(connections.rocketmq.routes, queue)
        for client in (source._client, repairing):  # both are connected
            Offsets(client).minimum(address, message_queue(queue))
        request = PullRequest(queue=message_queue(queue), offset=0, group="REPAIRS", suspend_seconds=30.0)
        waits = submit_pull(repairing, address, request)
        pulled = source.begin_pull(queue, offset=0, max_messages=1, hold_seconds=30.0)
        source._client.disconnect(address)
        eventually(lambda: pulled.is_done, within_seconds=60)
        with pytest.raises(BrokerUnavailable):
            pulled.batch()
        assert not waits.done()


def test_handlers_that_do_not_fit_together_are_refused(engine: sa.Engine) -> None:
    one = transactional_handler(engine, group="one", topics="ORDERS")(pay)
    two = transactional_handler(engine, group="two", topics="REFUNDS")(pay)
    anything = transactional_handler(engine, group="one")(pay)
    for handlers, subscriptions in (
        ((), None),
        ((one, two), None),
        ((anything,), None),
        ((one, anything), None),
        ((one,), {"REFUNDS": "*"}),
    ):
        with pytest.raises(InvalidValue):
            TransactionalConsumer(*handlers, name_servers="127.0.0.1:1", subscriptions=subscriptions)
