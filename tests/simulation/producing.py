"""Producing services and sweepers; what they mean to send.

Each process builds the product's own objects over simulated ports, as the product does.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from checkback_producers.announcer import AnnouncementRoute, Announcer
from checkback_producers.errors import HalfNotSafe
from checkback_producers.ports import AnnouncementMessage, Answer, CheckedHalf, Outcome, SentHalf
from checkback_producers.producer import TransactionalProducer
from checkback_producers.sweeper import OutboxSource, Sweeper
from reconciler.contract.properties import OUTBOX_MARK
from reconciler.errors import BrokerUnavailable, ReconcilerError, RequestTimeout
from reconciler.policy.evidence import EndOutcome, SendAnswer
from reconciler.policy.sweeping import SweepRules, SweptSubscription
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.record import MessageRecord
from tests.simulation.bounds import bounds_of
from tests.simulation.broker import Broker
from tests.simulation.kernel import Process
from tests.simulation.outbox_database import (
    PRODUCER_GROUP,
    TOPIC,
    DriverError,
    LocalTransaction,
    NamelessOutbox,
    OutboxDatabase,
    SimulatedOutbox,
)
from tests.simulation.tables_seen import InboxSeen
from tests.simulation.witnesses import ask
from tests.simulation.workers import workers_of

if TYPE_CHECKING:
    from tests.simulation.world import World

#: How long an outbox keeps rows: longer than a history, and than its clock may be behind.
KEEP_SECONDS = 86_400.0
ENVIRONMENT = "sim"
UNIQUE_KEY_TOPIC = "RECONCILER_UNIQUE_KEY"


class BusinessError(Exception):
    """The service changed its mind."""


@dataclass(slots=True, kw_only=True)
class Order:
    """One message that a service means to send, and what it is: the truth that effects are compared with."""

    number: int
    at: float
    tag: str | None
    keys: tuple[str, ...]
    properties: dict[str, str]
    body: bytes
    rolls_back: bool
    commits_late: bool
    forgets_commit: bool
    business_seconds: float
    is_poison: bool
    failures: int
    commits_halfway: bool = False
    unique_key: str = ""


class Halves:
    """The port HalfSender of one producing process."""

    def __init__(self, world: World, process: Process, outbox: str) -> None:
        self._world = world
        self._process = process
        self._group = PRODUCER_GROUP
        self._outbox = outbox
        self.answer: Answer | None = None

    def start(self, answer: Answer) -> None:
        self.answer = answer
        for broker in self._world.cluster.brokers.values():
            broker.producers[self._group] = broker.producers.get(self._group, 0) + 1

    def shutdown(self) -> None:
        """Histories end without a shutdown."""

    def has_check_back(self) -> bool | None:
        return all(broker.facts.has_check_back for broker in self._world.cluster.brokers.values())

    def next_unique_key(self) -> str:
        return self._world.key_shapes.next_key()

    def send_half(self, message: Message) -> SentHalf:
        """Tried at two brokers, as senders do: the first may have stored it all the same."""
        world, process, key = self._world, self._process, message.unique_key or ""
        routed = world.cluster.routed
        if world.cluster.unrouted:
            world.kernel.saw("route read without a broker")
        first = world.kernel.any_of(len(routed))
        queue_id = world.kernel.any_of(world.swarm.queues)
        born_ms = process.clock.now_ms()
        error: Exception = BrokerUnavailable("no broker")
        for attempt in range(2):
            broker = routed[(first + attempt) % len(routed)]
            properties = {**message.wire_properties(key), "TRAN_MSG": "true", "PGROUP": self._group}
            if not broker.facts.indexes_unique_key:
                properties["KEYS"] = " ".join((key, *message.keys))

            def store(broker: Broker = broker, properties: Mapping[str, str] = properties) -> MessageRecord | None:
                if broker.is_disk_full:
                    world.kernel.saw("broker disk full", "half")
                    return None
                return broker.send_half(TOPIC, queue_id, properties, message.body, born_ms=born_ms)

            try:
                record = ask(process, broker, store, "SEND half")
            except (BrokerUnavailable, RequestTimeout) as problem:
                error = problem
                continue
            if record is None:
                error = BrokerUnavailable("disk full")
                continue
            if attempt:
                world.kernel.saw("half tried at another broker", key[-4:])
            half = SentHalf(
                unique_key=key, broker=broker.name, commit_log_offset=record.physical_offset,
                queue_offset=record.queue_offset, handle=(broker, record),
            )  # fmt: skip
            if world.half_unsafe and world.kernel.dice.random() < world.half_unsafe:
                world.kernel.saw("half stored less safely than told", key[-4:])
                raise HalfNotSafe(key, status="SLAVE_NOT_AVAILABLE", end_answer=self.end(half, Outcome.ROLLBACK))
            return half
        raise error

    def end(self, half: SentHalf, outcome: Outcome) -> SendAnswer:
        """END_TRANSACTION, two-way, once."""
        assert isinstance(half.handle, tuple)
        broker, record = half.handle
        answer = self._world.send_end(self._process, broker, record, self._group, is_commit=outcome is Outcome.COMMIT)
        return SendAnswer(outcome=EndOutcome[answer.status.name], code=answer.code, detail=answer.remark or "")

    def checked(self, broker: Broker, record: MessageRecord) -> None:
        """A broker asks: answered on a thread of its own, with a one-way END."""
        if self.answer is None:
            return
        mark = record.properties.get(OUTBOX_MARK)
        if mark is None:
            self._world.kernel.saw("check-back about a stranger's half", record.unique_key[-4:])
        elif mark != self._outbox:
            self._world.kernel.saw("check-back about another database's half", record.unique_key[-4:])
        half = CheckedHalf(
            unique_key=record.unique_key,
            topic=TOPIC,
            producer_group=self._group,
            tag=record.tags,
            born_timestamp_ms=record.born_timestamp_ms,
            check_times=int(record.properties.get("TRANSACTION_CHECK_TIMES", "0")),
            # Before halves had marks, an instance took every one for its own.
            outbox_mark=self._outbox if self._world.is_older(self._process) else mark,
        )
        if any(record.unique_key in database.open_rows for database in self._world.outboxes):
            self._world.kernel.saw("check-back met an open transaction", record.unique_key[-4:])
        try:
            outcome = self.answer(half)
        except ReconcilerError:
            outcome = Outcome.UNKNOWN  # as the transports have it
        if self._world.is_older(self._process) and outcome is Outcome.ROLLBACK and mark not in (None, self._outbox):
            self._world.kernel.saw("an older instance rolled back another database's half", record.unique_key[-4:])
        if outcome is not Outcome.UNKNOWN:
            self._world.kernel.saw(f"check-back answered {outcome}", record.unique_key[-4:])
            self._world.send_end(
                self._process, broker, record, self._group, is_commit=outcome is Outcome.COMMIT, is_oneway=True
            )


class Announcements:
    """The port AnnouncementSender of one process."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def send_announcement(self, message: AnnouncementMessage) -> None:
        world, dice = self._world, self._world.kernel.dice
        routed = world.cluster.routed
        first = world.kernel.any_of(len(routed))
        error: Exception = BrokerUnavailable("no broker")
        for attempt in range(2):
            broker = routed[(first + attempt) % len(routed)]

            def store(broker: Broker = broker) -> None:
                properties = {"TAGS": message.tag, **message.properties}
                broker.append(message.unique_key_topic, message.queue_id, properties, message.body, is_indexed=False)
                if world.announcements_twice and dice.random() < world.announcements_twice:
                    world.kernel.saw("announcement stored twice")
                    broker.append(
                        message.unique_key_topic, message.queue_id, properties, message.body, is_indexed=False
                    )

            if world.announcements_lost and dice.random() < world.announcements_lost:
                world.kernel.saw("announcement not taken by its broker")
                error = RequestTimeout("no answer")
                continue
            try:
                ask(self._process, broker, store, "SEND announcement")
                return
            except (BrokerUnavailable, RequestTimeout) as problem:
                error = problem
        raise error


def announcer_of(world: World, process: Process) -> Announcer:
    route = AnnouncementRoute(
        environment=ENVIRONMENT, unique_key_topic=UNIQUE_KEY_TOPIC, queues=world.swarm.shards
    )  # fmt: skip
    return Announcer(Announcements(world, process), route)


def orders_in_time(world: World, process: Process) -> Iterator[Order]:
    """What a process is to send, each order when its time has come."""
    while (order := world.next_order()) is not None:
        wait = order.at - world.kernel.now
        if wait > 0:
            process.sleep(wait)
        yield order
    world.done_producing(process)


class ProducingService:
    """One process that sends orders."""

    def __init__(self, world: World, process: Process, database: OutboxDatabase) -> None:
        self._world = world
        self._process = process
        self._database = database
        self.halves = Halves(world, process, database.name)
        names_none = bool(world.swarm.of("another outbox")) and world.kernel.dice.random() < 0.7
        self._producer = TransactionalProducer(
            group=PRODUCER_GROUP,
            halves=self.halves,
            announcer=announcer_of(world, process),
            outbox=(NamelessOutbox if names_none else SimulatedOutbox)(database, process),
            keep_bodies=world.swarm.keep_bodies,
            local_transaction_timeout_seconds=world.swarm.local_transaction_timeout,
            check_maximum=15,
            clock=process.clock,
        ).start()
        process.spawn(self._run)

    def _run(self) -> None:
        for order in orders_in_time(self._world, self._process):
            self._send(order)

    def _send(self, order: Order) -> None:
        message = Message(
            topic=TOPIC, body=order.body, tags=order.tag, keys=order.keys, properties=order.properties
        )  # fmt: skip
        try:
            block = self._producer.transaction(message, business_id=f"business-{order.number}")
            self._world.meant(order, block.unique_key)
            if OUTBOX_MARK not in block.message.properties:
                self._database.nameless.add(block.unique_key)
            with block as tx:
                connection = LocalTransaction(self._database, self._process)
                try:
                    tx.record(connection)
                    if order.business_seconds:
                        self._process.sleep(order.business_seconds)
                    connection.order(tx.unique_key)
                    if order.rolls_back:
                        self._world.kernel.saw("business rolled back", tx.unique_key[-4:])
                        raise BusinessError
                    if order.forgets_commit:
                        self._world.kernel.saw("commit forgotten", tx.unique_key[-4:])
                        connection.undo()
                    elif order.commits_late:
                        self._process.spawn(connection.commit_quietly, after=self._late_seconds(tx.unique_key))
                    else:
                        connection.commit()
                except (Exception, CancelledError):
                    connection.undo()
                    raise
        except (ReconcilerError, DriverError, BusinessError, CancelledError):
            return

    def _late_seconds(self, key: str) -> float:
        """How long after the end of its block a transaction commits: some seconds, or most of a minute."""
        dice = self._world.kernel.dice
        late = 3 * dice.random()
        if not self._world.swarm.of("late rows"):
            return late
        self._world.kernel.saw("commit long after its row was written", key[-4:])
        return 25 + 30 * dice.random()


class Sweeping:
    """reconciler sweep."""

    def __init__(self, world: World, process: Process) -> None:
        announcer = announcer_of(world, process)
        self._world = world
        self._process = process
        self._sweeper = Sweeper(
            [
                OutboxSource(producer_group=PRODUCER_GROUP, outbox=SimulatedOutbox(database, process))
                for database in world.outboxes
            ],
            announcer=announcer,
            subscriptions=[
                SweptSubscription(subscription=plan.subscription, tags=plan.tags) for plan in world.plan.subscriptions
            ],
            inboxes=InboxSeen(process, world.inboxes),
            workers=workers_of(process, world.swarm.workers),
            rules=SweepRules(
                sweep_after_seconds=20.0,
                settle_after_seconds=60.0,
                announce_again_after_seconds=world.announce_again_seconds,
                keep_seconds=KEEP_SECONDS,
                **bounds_of(world.swarm, "sweep"),
            ),
        )
        process.spawn(self._run)
        if world.swarm.looks_for_due_rows:
            process.spawn(self._look)

    def _look(self) -> None:
        while True:
            self._process.sleep(2.0)
            self._sweeper.announce_due()

    def _run(self) -> None:
        while True:
            self._process.sleep(8.0 + 4 * self._world.kernel.dice.random())
            report = self._sweeper.sweep_once()
            self._world.damaged_rows_told, self._world.differing_told = report.damaged, report.differing
