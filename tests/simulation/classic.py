"""The original algorithm in the same world: the canary. If it does not fail, the world is too kind.

Announcements are sent once by the producer and kept by an ordinary consumer group's offset; two Redis sets; one
difference that empties both; viewMessage under the real topic; hand-over to the business. No sweeper, no grace period.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from redis import exceptions

from checkback_consumers.effect import Effect, Inbox
from checkback_consumers.handler import KeyRecorder, TransactionalHandler
from checkback_consumers.inbox import InboxAnswer, InboxEntry
from checkback_consumers.message import HandedOverMessage
from reconciler.contract.announcement import decode_announcement
from reconciler.contract.subscription import Subscription
from reconciler.contract.unique_key import key_of, member_of
from reconciler.demo.classic.round import ClassicBatch, ClassicRound
from reconciler.errors import BrokerUnavailable, MalformedInput, RedisAway, RequestTimeout, TransientError
from reconciler.policy.evidence import StoredMessage
from reconciler.policy.ports.announcing import AnnouncementQueue
from tests.simulation.broker import Broker
from tests.simulation.checkers import Judgement
from tests.simulation.consuming import ConsumingService
from tests.simulation.inbox_database import InboxDatabase
from tests.simulation.kernel import Process
from tests.simulation.producing import UNIQUE_KEY_TOPIC
from tests.simulation.redis_client import SimulatedRedis
from tests.simulation.swarm import Swarm
from tests.simulation.witnesses import SimulatedEvidence, ask
from tests.simulation.world import World

#: How long the original may take after the last trouble.
REST_SECONDS = 180.0


def _set_name(kind: str, group: str) -> str:
    return f"classic:{group}:{kind}"


class ClassicRecorder:
    """SADD to the one commit set."""

    def __init__(self, client: SimulatedRedis, group: str) -> None:
        self._client = client
        self._group = group

    def record(self, topic: str, unique_key: str) -> bool:
        try:
            self._client.execute_command("SADD", _set_name("commit", self._group), member_of(unique_key))
        except exceptions.RedisError:
            return False
        return True


class RedisDedupe:
    """checkback_consumers.effect.Inbox of the original: a key that is in a Redis set has been consumed."""

    is_weaker = True

    def __init__(self, client: SimulatedRedis, group: str, database: InboxDatabase) -> None:
        self._client = client
        self._group = group
        self._database = database

    def apply_once(self, entry: InboxEntry, effect: Effect) -> InboxAnswer:
        member = member_of(entry.unique_key)
        name = _set_name("seen", self._group)
        if self._client.execute_command("SISMEMBER", name, member):
            return InboxAnswer.DUPLICATE
        connection = self._database.connection(self._client.process)
        effect(connection)
        connection.commit()
        self._client.execute_command("SADD", name, member)
        return InboxAnswer.NEW


class Sets:
    """classic.round.ClassicSets."""

    def __init__(self, client: SimulatedRedis) -> None:
        self._client = client

    def add_announced(self, subscription: Subscription, unique_keys: Sequence[str]) -> None:
        try:
            self._client.execute_command(
                "SADD", _set_name("half", subscription.group), *(member_of(key) for key in unique_keys)
            )
        except exceptions.RedisError as error:
            raise RedisAway(str(error)) from error

    def take_difference(self, subscription: Subscription) -> list[str]:
        half, commit = (_set_name(kind, subscription.group) for kind in ("half", "commit"))
        try:
            with self._client.pipeline(transaction=True) as pipe:
                pipe.execute_command("SDIFF", half, commit)
                pipe.execute_command("UNLINK", half, commit)
                missing: list[bytes] = pipe.execute()[0]
        except exceptions.RedisError as error:
            raise RedisAway(str(error)) from error
        return [key_of(member) for member in missing]


class Announced:
    """classic.round.ClassicAnnouncements: the group's offset lies at the broker."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def pull(self, subscription: Subscription) -> Sequence[ClassicBatch]:
        found = []
        for broker in self._world.cluster.brokers.values():
            for queue_id in range(self._world.swarm.shards):
                batch: ClassicBatch | None = ask(
                    self._process, broker, partial(self._pull, broker, queue_id, subscription), "PULL announcements"
                )
                if batch is not None:
                    found.append(batch)
        return found

    def _pull(self, broker: Broker, queue_id: int, subscription: Subscription) -> ClassicBatch | None:
        first, last = broker.bounds(UNIQUE_KEY_TOPIC, queue_id)
        offset = max(first, broker.offsets.get((f"classic-{subscription.group}", UNIQUE_KEY_TOPIC, queue_id), 0))
        if offset >= last:
            return None
        records = broker.read(UNIQUE_KEY_TOPIC, queue_id, offset, 32)
        keys: list[str] = []
        for record in records:
            try:
                keys += [key.unique_key for key in decode_announcement(record.body).keys]
            except MalformedInput:
                continue
        queue = AnnouncementQueue(unique_key_topic=UNIQUE_KEY_TOPIC, broker=broker.name, queue_id=queue_id)
        return ClassicBatch(queue=queue, unique_keys=tuple(keys), next_offset=offset + len(records))

    def acknowledge(self, subscription: Subscription, batch: ClassicBatch) -> None:
        broker = self._world.cluster.brokers[batch.queue.broker]
        place = (f"classic-{subscription.group}", UNIQUE_KEY_TOPIC, batch.queue.queue_id)
        ask(self._process, broker, lambda: broker.offsets.__setitem__(place, batch.next_offset), "UPDATE_OFFSET")


class Business:
    """The business code of the original: the group's handler, in the reconciler's process."""

    def __init__(self, world: ClassicWorld, process: Process) -> None:
        self._world = world
        self._process = process
        self._handlers: dict[str, TransactionalHandler] = {}

    def hand_over(self, subscription: Subscription, message: StoredMessage) -> None:
        group = subscription.group
        self._world.checkers.handed_over(message.unique_key, group)
        handler = self._handlers.get(group)
        if handler is None:
            handler = self._handlers[group] = self._world.handler_of(self._process, group)
        try:
            handler.apply(HandedOverMessage.of(message))
        except Exception as error:
            raise BrokerUnavailable(str(error)) from error


class ClassicJob:
    """The scheduled job."""

    def __init__(self, world: ClassicWorld, process: Process) -> None:
        self._world = world
        self._process = process
        client = SimulatedRedis(world.redis, process, retries=True)
        lookups = SimulatedEvidence(process, world.cluster, skew_margin_seconds=0.0).lookups
        self._round = ClassicRound(
            announcements=Announced(world, process), sets=Sets(client),
            view_message=lambda topic, key: lookups.find(topic, key)(),
            hand_over=Business(world, process).hand_over,
        )  # fmt: skip
        process.spawn(self._run)

    def _run(self) -> None:
        while True:
            self._process.sleep(self._world.swarm.round_interval)
            for plan in self._world.plan.subscriptions:
                try:
                    self._round.consume_announcements(plan.subscription)
                    self._round.run(plan.subscription)
                except (TransientError, RequestTimeout):
                    continue


class ClassicWorld(World):
    """Producers, consumers and the job of the original."""

    def _start(self) -> None:
        swarm = self.swarm
        for number in range(swarm.producers):
            self._begin("producer", f"producer-{number}", partial(self._producer, number))
        for group in self.inboxes:
            for number in range(swarm.consumers):
                self._begin("consumer", f"{group}-{number}", partial(self.consumer, group, number))
        self._begin("reconciler", "classic-job", lambda process: ClassicJob(self, process))

    def recorder_of(self, client: SimulatedRedis, group: str) -> KeyRecorder:
        return ClassicRecorder(client, group)

    def inbox_of(self, process: Process, group: str, number: int) -> Inbox:
        del number  # it knows one database
        return RedisDedupe(SimulatedRedis(self.redis, process), group, self.inboxes[group].databases[0])

    def handler_of(self, process: Process, group: str) -> TransactionalHandler:
        """The group's handler in another process."""

        def handle(message: Any, connection: Any) -> object:
            return ConsumingService.effect_of(self, group, message, connection)

        client = SimulatedRedis(self.redis, process)
        return TransactionalHandler(
            handle, self.inbox_of(process, group, 0), group=group, recorder=self.recorder_of(client, group)
        )  # fmt: skip

    def run(self) -> Judgement:
        """The original has no state that could be asked whether it is at rest."""
        kernel = self.kernel
        kernel.run(self.swarm.load_seconds + 30.0)
        self.troubles.heal()
        self.is_healed = True
        kernel.run(kernel.now + REST_SECONDS)
        return self.checkers.judge(is_quiet=True, why_not="")


def run_classic(swarm: Swarm) -> Judgement:
    """One history of the original."""
    world = ClassicWorld(swarm)
    try:
        return world.run()
    finally:
        world.close()
