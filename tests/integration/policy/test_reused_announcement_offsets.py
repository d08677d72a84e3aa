"""A broker gives offsets of the unique-key topic a second time: payments that were announced there are found.

The client, the announcement consumer and the embedded broker speak over TCP; Redis and ledger are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reconciler.announcing.port import AnnouncementEvent, EventKind, StepKind
from reconciler.announcing.rules import AnnouncementRules
from reconciler.announcing.source import RemotingAnnouncementSource
from reconciler.announcing.step import AnnouncementStep
from reconciler.clock import SystemClock
from reconciler.contract.announcement import AnnouncedKey, Announcement, encode_announcement
from reconciler.contract.subscription import Shard, Subscription
from reconciler.embedded.server import EmbeddedBroker, EmbeddedCluster
from reconciler.policy.ports import AnnouncementQueue
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.routes import MessageQueue, TopicNotFound
from reconciler.rocketmq.wire.message import Message
from reconciler.testing.memory import MemoryLedger
from reconciler.testing.memory_shards import MemoryShards
from tests.polling import eventually
from tests.services.patient_instance import patient_instance
from tests.unit.consumers.messages import new_key

KEY_TOPIC = "RECONCILER_UNIQUE_KEY"
OF = Subscription(environment="test", topic="ORDERS", group="billing")
SHARD = Shard(subscription=OF, number=0)


class Deployment:
    """One or two embedded brokers with a unique-key topic of one queue each, and an announcement consumer."""

    def __init__(self, brokers: list[EmbeddedBroker], instance: ClientInstance) -> None:
        self.brokers = brokers
        self.instance = instance
        self.memory = MemoryShards(SystemClock())
        self.ledger = MemoryLedger(SystemClock())
        self.events: list[AnnouncementEvent] = []
        self.step = self.consumer("one")
        for broker in brokers:
            self.create_topic(broker)
        names = {broker.settings.broker_name for broker in brokers}
        eventually(lambda: {queue.broker_name for queue in self._routed()} == names, within_seconds=60)

    def consumer(self, token: str) -> AnnouncementStep:
        return AnnouncementStep(
            OF,
            unique_key_topic=KEY_TOPIC,
            shards=1,
            half_sets=self.memory,
            ledger=self.ledger.announcements,
            source=RemotingAnnouncementSource(self.instance.client, self.instance.routes),
            rules=AnnouncementRules(environment="test", topic="ORDERS"),
            token=token,
            clock=SystemClock(),
            on_event=self.events.append,
        )

    def create_topic(self, broker: EmbeddedBroker) -> None:
        Admin(self.instance.client).create_topic(broker.address, KEY_TOPIC, queues=1)

    def create_topic_again(self, broker: EmbeddedBroker) -> None:
        """mqadmin deleteTopic, updateTopic."""
        Admin(self.instance.client).delete_topic(broker.address, KEY_TOPIC)
        self.create_topic(broker)

    def _routed(self) -> list[MessageQueue]:
        try:
            return list(self.instance.routes.refresh(KEY_TOPIC).readable_queues)
        except TopicNotFound:
            return []

    def announce(self, broker: EmbeddedBroker, count: int, *, topic: str = "ORDERS") -> list[str]:
        keys = [new_key() for _ in range(count)]
        queue = MessageQueue(topic=KEY_TOPIC, broker_name=broker.settings.broker_name, queue_id=0)
        for key in keys:
            body = encode_announcement(
                Announcement(
                    environment="test",
                    topic=topic,
                    producer_group="order-service",
                    keys=(AnnouncedKey(unique_key=key, tag=None, committed_at_ms=1),),
                )
            )
            self.instance.sender("announcer").send(Message(topic=KEY_TOPIC, body=body, tags=topic), queue=queue)
        return keys

    def read(self, broker: EmbeddedBroker) -> set[str]:
        """Every announced key, after the queue of the broker was read to its end."""
        queue = AnnouncementQueue(unique_key_topic=KEY_TOPIC, broker=broker.settings.broker_name, queue_id=0)
        eventually(lambda: self.step.run_once(queue).kind is StepKind.IDLE, within_seconds=60)
        return set(self.memory._memory(SHARD).half)

    def reused(self) -> list[AnnouncementEvent]:
        return [event for event in self.events if event.kind is EventKind.OFFSETS_REUSED]


@pytest.fixture(params=["5.x", "4.9", "3.2.6"])
def deployment(request: pytest.FixtureRequest) -> Iterator[Deployment]:
    with (
        EmbeddedCluster(("broker-a", "broker-b"), family=request.param) as cluster,
        patient_instance(cluster.name_server.address) as instance,
    ):
        yield Deployment(list(cluster.brokers.values()), instance)


def test_announcements_behind_a_lost_tail_are_read_and_the_other_broker_is_left_alone(deployment: Deployment) -> None:
    first, second = deployment.brokers
    known = [*deployment.announce(first, 5), *deployment.announce(second, 5)]
    assert deployment.read(first) | deployment.read(second) == set(known)
    first.faults.lose_tail(4)
    lost = [*deployment.announce(first, 2), *deployment.announce(first, 3, topic="REFUNDS")]
    lost += [*deployment.announce(first, 2), *deployment.announce(second, 1)]
    own = {*lost[:2], *lost[5:]}
    deployment.read(first)
    assert own <= deployment.read(second)
    assert {event.queue.broker for event in deployment.reused()} == {first.settings.broker_name}
    assert len(deployment.reused()) == 1


def test_a_unique_key_topic_that_was_created_again_is_read_from_its_beginning(deployment: Deployment) -> None:
    first, _ = deployment.brokers
    deployment.announce(first, 5)
    deployment.read(first)
    deployment.create_topic_again(first)
    keys = deployment.announce(first, 8)
    assert set(keys) <= deployment.read(first)
    assert deployment.reused()[0].first_offset == 0
    keys = deployment.announce(first, 1)
    assert set(keys) <= deployment.read(first)
    assert len(deployment.reused()) == 1


def test_another_consumer_goes_on_with_what_the_first_one_knew(deployment: Deployment) -> None:
    first, _ = deployment.brokers
    deployment.announce(first, 5)
    deployment.read(first)
    deployment.step.release(
        AnnouncementQueue(unique_key_topic=KEY_TOPIC, broker=first.settings.broker_name, queue_id=0)
    )
    first.faults.lose_tail(5)
    keys = deployment.announce(first, 9)
    deployment.step = deployment.consumer("two")
    assert set(keys) <= deployment.read(first)
