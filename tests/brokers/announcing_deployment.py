"""An announcement consumer against brokers over TCP, embedded and real ones; Redis and ledger are in memory."""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.announcing.port import AnnouncementEvent, EventKind, StepKind
from reconciler.announcing.rules import AnnouncementRules
from reconciler.announcing.source import RemotingAnnouncementSource
from reconciler.announcing.step import AnnouncementStep
from reconciler.clock import ManualClock, SystemClock
from reconciler.contract.announcement import AnnouncedKey, Announcement, encode_announcement
from reconciler.contract.subscription import Shard, Subscription
from reconciler.evidence.reused_offsets import LOOK_SECONDS, ReusedOffsets
from reconciler.evidence.watermark import Watermarks
from reconciler.policy.ports.announcing import AnnouncementQueue
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.client.routes import MessageQueue, TopicNotFound
from reconciler.rocketmq.wire.message import Message
from reconciler.testing.memory import MemoryLedger
from reconciler.testing.memory_shards import MemoryShards
from tests.polling import eventually
from tests.unit.consumers.messages import new_key

KEY_TOPIC = "RECONCILER_UNIQUE_KEY"
OF = Subscription(environment="test", topic="ORDERS", group="billing")
SHARD = Shard(subscription=OF, number=0)


class Deployment:
    """Brokers (name -> address) with a unique-key topic of one queue each, and an announcement consumer."""

    def __init__(self, brokers: Mapping[str, str], instance: ClientInstance) -> None:
        self.brokers = brokers
        self.instance = instance
        self.memory = MemoryShards(SystemClock())
        self.ledger = MemoryLedger(SystemClock())
        self.events: list[AnnouncementEvent] = []
        self.step = self.consumer("one")
        for broker in brokers:
            self.create_topic(broker)
        eventually(lambda: {queue.broker_name for queue in self._routed()} == set(brokers), within_seconds=60)

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

    def create_topic(self, broker: str) -> None:
        Admin(self.instance.client).create_topic(self.brokers[broker], KEY_TOPIC, queues=1)

    def create_topic_again(self, broker: str) -> None:
        """mqadmin deleteTopic, updateTopic."""
        Admin(self.instance.client).delete_topic(self.brokers[broker], KEY_TOPIC)
        self.create_topic(broker)

    def _routed(self) -> list[MessageQueue]:
        try:
            return list(self.instance.routes.refresh(KEY_TOPIC).readable_queues)
        except TopicNotFound:
            return []

    def announce(self, broker: str, count: int, *, topic: str = "ORDERS") -> list[str]:
        keys = [new_key() for _ in range(count)]
        queue = MessageQueue(topic=KEY_TOPIC, broker_name=broker, queue_id=0)
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

    def read(self, broker: str) -> set[str]:
        """Every announced key, after the queue of the broker was read to its end."""
        queue = AnnouncementQueue(unique_key_topic=KEY_TOPIC, broker=broker, queue_id=0)
        eventually(lambda: self.step.run_once(queue).kind is StepKind.IDLE, within_seconds=60)
        return set(self.memory._memory(SHARD).half)

    def reused(self) -> list[AnnouncementEvent]:
        return [event for event in self.events if event.kind is EventKind.OFFSETS_REUSED]


def a_group_is_believed_again(deployment: Deployment, broker: str) -> None:
    """In a topic that is created again: its offset lies behind the end, comes down, and proves what came since."""
    instance, clock = deployment.instance, ManualClock()
    queue = MessageQueue(topic=KEY_TOPIC, broker_name=broker, queue_id=0)
    reused = ReusedOffsets(clock)
    watermarks = Watermarks(instance.client, instance.routes, instance.families, reused=reused)

    def doubtful_below(*, at: int) -> int:
        Offsets(instance.client).store(deployment.brokers[broker], queue, "billing", at)
        positions = watermarks.positions(KEY_TOPIC, "billing")
        assert positions is not None
        found = {one.broker: one for one in positions if one.topic == KEY_TOPIC}
        assert found[broker].consumer_offset == at
        assert all(one.doubtful_below == 0 for name, one in found.items() if name != broker)
        return found[broker].doubtful_below

    Admin(instance.client).create_group(deployment.brokers[broker], "billing")
    end = Offsets(instance.client).maximum(deployment.brokers[broker], queue)
    deployment.announce(broker, 9)
    eventually(
        lambda: Offsets(instance.client).maximum(deployment.brokers[broker], queue) == end + 9, within_seconds=60
    )
    assert doubtful_below(at=end + 9) == 0
    deployment.create_topic_again(broker)
    deployment.announce(broker, 2)
    eventually(lambda: Offsets(instance.client).maximum(deployment.brokers[broker], queue) == 2, within_seconds=60)
    assert doubtful_below(at=end + 9) == end + 9
    clock.advance(LOOK_SECONDS)
    assert doubtful_below(at=end + 9) == end + 9
    assert doubtful_below(at=2) == 2
    deployment.announce(broker, 1)
    assert doubtful_below(at=2) == 2
