"""Consuming services: handler, inbox, recorder, acknowledgement, and the replay worker.

Each process builds the product's own objects over simulated ports, as the product does.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from checkback_consumers.handler import transactional_handler
from checkback_consumers.replay_worker import ReplayWorker
from reconciler.contract.subscription import Subscription
from reconciler.errors import BrokerUnavailable, ReconcilerError, RedisAway, RequestTimeout
from reconciler.rocketmq.consumer.listener import ConsumeStatus
from reconciler.rocketmq.wire.codes import pop_retry_topics, retry_topic
from reconciler.rocketmq.wire.record import MessageRecord
from reconciler.shards.sets import RedisCommitSets
from tests.simulation.broker import THEIRS, Broker
from tests.simulation.halfway import commit_halfway
from tests.simulation.inbox_database import Effect
from tests.simulation.kernel import Process
from tests.simulation.redis_client import SimulatedRedis
from tests.simulation.witnesses import ask

if TYPE_CHECKING:
    from tests.simulation.world import World

from tests.simulation.outbox_database import TOPIC
from tests.simulation.producing import ENVIRONMENT, BusinessError


class Received:
    """checkback_consumers.message.ConsumedMessage."""

    __slots__ = ("_record", "body", "keys", "properties", "reconsume_times", "tags", "topic", "unique_key")

    def __init__(self, record: MessageRecord) -> None:
        self.topic = TOPIC
        self.unique_key: str | None = record.unique_key
        self.body = record.body
        self.properties: Mapping[str, str] | None = record.properties
        self.tags = record.properties.get("TAGS")
        self.keys = record.properties.get("KEYS")
        self.reconsume_times = record.reconsume_times
        self._record = record

    @property
    def offset_message_id(self) -> str:
        """Where this delivery was stored."""
        return self._record.offset_message_id


class ShardRecorder:
    """The handler's Recorder without threads and batches: one SADD a message; Redis away is remembered."""

    def __init__(self, client: SimulatedRedis, group: str, shards: int) -> None:
        self._sets = RedisCommitSets(client)  # type: ignore[arg-type]
        self._kernel = client.process.kernel
        self._group = group
        self._shards = shards
        self._away_until = 0.0

    def record(self, topic: str, unique_key: str) -> bool:
        if self._kernel.now < self._away_until:
            return False
        subscription = Subscription(environment=ENVIRONMENT, topic=topic, group=self._group)
        try:
            self._sets.record(subscription, [unique_key], shards=self._shards)
        except RedisAway:
            self._away_until = self._kernel.now + 1.0
            return False
        return True


class ConsumingService:
    """One process of a group: some queues of the topic, and the group's retry queue."""

    def __init__(self, world: World, process: Process, group: str, number: int) -> None:
        self._world = world
        self._process = process
        self._group = group
        self._tags = world.tags_of(group)
        client = SimulatedRedis(world.redis, process)
        self.handler = transactional_handler(
            world.inbox_of(process, group, number),
            group=group,
            topics=(TOPIC,),
            recorder=world.recorder_of(client, group),
        )(self._handle)
        count = world.swarm.consumers
        self._pops = world.pops(group)
        again = pop_retry_topics(TOPIC, group)[0] if self._pops else retry_topic(group)
        places = [(TOPIC, queue_id) for queue_id in range(world.swarm.queues)] + [(again, 0)]
        self._mine = [
            (broker, topic, queue_id)
            for broker in world.cluster.brokers.values()
            for place, (topic, queue_id) in enumerate(places)
            if place % count == number or world.swarm.of("overlapping consumers")
        ]
        process.spawn(self._run)
        if world.swarm.repair_order != "republish":
            self._replay_worker = ReplayWorker(
                self.handler, environment=ENVIRONMENT, topics=TOPIC, queue=world.ledger_of(process).hand_over_queue,
                clock=process.clock, jitter=world.kernel.dice, attempts_max=5,
            )  # fmt: skip
            process.spawn(self._hand_over)

    def _handle(self, message: Any, connection: Any) -> object:
        return self.effect_of(self._world, self._group, message, connection)

    @staticmethod
    def effect_of(world: World, group: str, message: Any, connection: Any) -> object:
        """The service's own code: one row, unless the message is one that fails."""
        key = message.unique_key
        order = world.orders.get(key)
        if order is not None:
            if order.is_poison:
                world.kernel.saw("poison message failed", key[-4:])
                raise BusinessError("poison")
            if world.fails_now(order, group):
                world.kernel.saw("handler failed once", key[-4:])
                return ConsumeStatus.RECONSUME_LATER
        effect = Effect(
            group=group, unique_key=key, at=0.0, topic=message.topic, tag=message.tags, keys=message.keys,
            properties=dict(message.properties or {}), body=message.body, source=type(message).__name__,
        )  # fmt: skip
        if order is not None and world.commits_halfway_now(order, group):
            commit_halfway(world, connection, effect)
        connection.effect(effect)
        return None

    def _run(self) -> None:
        world, process = self._world, self._process
        kernel, random = world.kernel, world.kernel.dice.random
        is_overlapping = bool(world.swarm.of("overlapping consumers"))
        process.sleep(random())
        while True:
            while world.business_queues.stands:
                process.sleep(0.5 + random())
            if world.group_stopped_until and kernel.now < world.group_stopped_until.get(self._group, 0.0):
                world.kernel.saw("group stopped for long", self._group)
                process.sleep(world.group_stopped_until[self._group] - world.kernel.now)
            moved = 0
            for broker, topic, queue_id in self._mine:
                if not self._has_news(broker, topic, queue_id) or world.business_queues.stands:
                    continue
                try:
                    take = self._pop if self._pops else self._pull
                    moved += take(broker, topic, queue_id)
                except (BrokerUnavailable, RequestTimeout):
                    continue
            if is_overlapping and random() < 0.5:
                # A rebalance at which both hold the queue: both pull at once.
                process.sleep(1.0 - kernel.now % 1.0)
            else:
                process.sleep(0.05 if moved >= 16 else 0.7 + 0.6 * random())

    def _has_news(self, broker: Broker, topic: str, queue_id: int) -> bool:
        """A pull waits at its broker until there is something: no port call is made for nothing."""
        queue = broker.queues.get((topic, queue_id))
        offset = broker.offsets.get((self._group, topic, queue_id))
        if not queue:  # who asks behind the end is set back at once
            return offset is not None and offset > broker.bounds(topic, queue_id)[1]
        return offset is None or offset != queue[-1].queue_offset + 1

    def _pull(self, broker: Broker, topic: str, queue_id: int) -> int:
        place = (self._group, topic, queue_id)

        def pull() -> tuple[int, list[MessageRecord]]:
            first, last = broker.bounds(topic, queue_id)
            offset = max(broker.offsets.get(place, first), first)
            if offset > last:
                offset = broker.offsets[place] = last if broker.sets_back_to_end else first
            if place not in broker.offsets:
                broker.offsets[place] = offset
            return offset, broker.read(topic, queue_id, offset, 16)

        era = broker.era
        offset, records = ask(self._process, broker, pull, "PULL")
        for record in records:
            offset = record.queue_offset + 1
            if not self._is_done(record):
                ask(self._process, broker, partial(broker.send_back, record, self._group), "SEND_BACK")
        if records:

            def commit() -> None:
                # A broker that lost its tail gives these offsets to other records: no client can know, and real ones
                # skip them then. The simulation leaves that accident out.
                if era == broker.era:
                    broker.offsets[place] = max(offset, broker.offsets.get(place, 0))

            ask(self._process, broker, commit, "UPDATE_CONSUMER_OFFSET")
        return len(records)

    def _is_done(self, record: MessageRecord) -> bool:
        """False: the message is to come again."""
        self._world.business_queues.given.add((self._group, record.unique_key))
        if self._tags is not None and record.tags not in self._tags:
            self._world.kernel.saw("message filtered by its tag", record.unique_key[-4:])
            return True
        if self._world.set_ups.is_kept_away(self._group, record.unique_key):
            self._world.kernel.saw("message filtered by SQL92", record.unique_key[-4:])
            return True
        if record.body == THEIRS:
            return True  # acknowledged before the handler, as a service does with what is not meant for it
        return self.handler(Received(record)) is ConsumeStatus.CONSUME_SUCCESS

    def _pop(self, broker: Broker, topic: str, queue_id: int) -> int:
        """What is not acknowledged comes again by itself; what failed too often is dead-lettered by the client."""
        popped, group = broker.popped, self._group
        records: list[MessageRecord] = ask(
            self._process, broker, partial(popped.pop, group, topic, queue_id, maximum=16), "POP"
        )
        for record in records:
            if self._is_done(record):
                ask(self._process, broker, partial(popped.acknowledge, group, record), "ACK")
            elif record.reconsume_times >= broker.settings.retries_max:
                ask(self._process, broker, partial(broker.send_back, record, group), "SEND_BACK")
                ask(self._process, broker, partial(popped.acknowledge, group, record), "ACK")
            else:
                pause = broker.settings.retry_delay * min(record.reconsume_times + 1, 4)
                ask(self._process, broker, partial(popped.change, group, record, seconds=pause), "CHANGE_INVISIBLE")
        return len(records)

    def _hand_over(self) -> None:
        while True:
            self._process.sleep(4.0 + 2 * self._world.kernel.dice.random())
            if self._world.has_hand_overs():
                try:
                    self._replay_worker.run_once()
                except ReconcilerError:
                    continue
