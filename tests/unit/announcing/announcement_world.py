"""A unique-key topic in memory with everything the announcement consumer touches."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from reconciler.announcing.looking import AnnouncementLook
from reconciler.announcing.outage_watch import OutageWatch
from reconciler.announcing.port import AnnouncementEvent, EventKind, PulledBatch, SeenRecord, StepKind, StepOutcome
from reconciler.announcing.reader import QueueReader
from reconciler.announcing.rules import AnnouncementRules, PulledAnnouncement
from reconciler.announcing.step import AnnouncementStep
from reconciler.clock import ManualClock
from reconciler.contract.announcement import AnnouncedKey, Announcement, encode_announcement
from reconciler.contract.keyspace import offsets_field
from reconciler.contract.queue_proof import QueueProof, QueueRecord
from reconciler.contract.subscription import Shard, Subscription
from reconciler.errors import BrokerUnavailable, DatabaseAway
from reconciler.policy.ports.announcing import AnnouncementQueue, Floor, HalfSets, RefusedAnnouncement
from reconciler.testing.memory import MemoryLedger
from reconciler.testing.memory_shards import MemoryShards

SUBSCRIPTION = Subscription(environment="test", topic="ORDERS", group="billing")
QUEUE = AnnouncementQueue(unique_key_topic="RECONCILER_UNIQUE_KEY", broker="broker-a", queue_id=3)


#: Entries of its queue that a broker passes in one pull.
SCANNED_MAX = 800


def announcement(*keys: str, environment: str = "test", topic: str = "ORDERS", tag: str | None = None) -> bytes:
    """A version 1 body."""
    return encode_announcement(
        Announcement(
            environment=environment,
            topic=topic,
            producer_group="order-service",
            keys=tuple(AnnouncedKey(unique_key=key, tag=tag, committed_at_ms=1) for key in keys),
        )
    )


class AnsweredPull:
    """PullUnderWay of a broker that holds nothing."""

    is_done = True

    def __init__(self, pull: Callable[[], PulledBatch]) -> None:
        self._outcome: PulledBatch | BrokerUnavailable
        try:
            self._outcome = pull()
        except BrokerUnavailable as error:
            self._outcome = error

    def batch(self) -> PulledBatch:
        if isinstance(self._outcome, BrokerUnavailable):
            raise self._outcome
        return self._outcome

    def when_done(self, call: Callable[[], None]) -> None:
        call()

    def cancel(self) -> None:
        pass


class MemoryTopic:
    """AnnouncementSource over lists; the broker's retention and absence are knobs."""

    def __init__(self, queues: Sequence[AnnouncementQueue] = (QUEUE,)) -> None:
        self.stored: dict[AnnouncementQueue, list[PulledAnnouncement]] = {queue: [] for queue in queues}
        self.minimum: dict[AnnouncementQueue, int] = dict.fromkeys(queues, 0)
        self.is_away = False
        self.pulls = 0
        self.long_pulls = 0
        self.looks = 0
        #: Messages that pulls returned.
        self.returned = 0
        #: So many calls are answered, then it is away; None: all are.
        self.fails_after: int | None = None
        self.sent = 0
        #: Store time of the next record, in milliseconds: the test moves it.
        self.now_ms = 1_000_000

    def send(self, body: bytes, *, queue: AnnouncementQueue = QUEUE, tag: str = "ORDERS", **more: Any) -> int:
        """Returns the queue offset."""
        offset = len(self.stored[queue])
        self.sent += 1
        record = QueueRecord(
            queue_offset=offset,
            stored_at_ms=self.now_ms,
            commit_log_offset=self.sent * 100,
            unique_key=f"{self.sent:032X}",
        )
        self.stored[queue].append(PulledAnnouncement(record=record, tag=tag, body=body, **more))
        return offset

    def lose_tail(self, count: int, *, queue: AnnouncementQueue = QUEUE) -> None:
        """The broker comes back without its last records: the next ones get their offsets."""
        del self.stored[queue][len(self.stored[queue]) - count :]

    def create_again(self, *, queue: AnnouncementQueue = QUEUE) -> None:
        """The topic is deleted and created: its queues begin at 0."""
        self.stored[queue], self.minimum[queue] = [], 0

    def queues(self, unique_key_topic: str) -> Sequence[AnnouncementQueue]:
        self._answer()
        return [queue for queue in self.stored if queue.unique_key_topic == unique_key_topic]

    def pull(self, queue: AnnouncementQueue, *, tag: str, offset: int, max_messages: int) -> PulledBatch:
        self.pulls += 1
        return self._pulled(queue, tag, offset, max_messages)

    def _pulled(self, queue: AnnouncementQueue, tag: str | None, offset: int, max_messages: int) -> PulledBatch:
        self._answer()
        stored, minimum = self.stored[queue], self.minimum[queue]
        if not minimum <= offset <= len(stored):
            return PulledBatch(
                messages=[],
                next_offset=minimum if offset < minimum else len(stored),
                min_offset=minimum,
                max_offset=len(stored),
                is_offset_illegal=True,
            )
        # Like a broker: messages of other tags are left out (but those whose hash is equal), and some 800 are passed.
        messages: list[PulledAnnouncement] = []
        following = offset
        while following < min(len(stored), offset + SCANNED_MAX) and len(messages) < max_messages:
            if tag is None or stored[following].tag in {tag, f"{tag}-hashes-alike"}:
                messages.append(stored[following])
            following += 1
        self.returned += len(messages)
        return PulledBatch(
            messages=messages,
            next_offset=following,
            min_offset=minimum,
            max_offset=len(stored),
        )

    def begin_pull(
        self, queue: AnnouncementQueue, *, offset: int, max_messages: int, hold_seconds: float
    ) -> AnsweredPull:
        self.long_pulls += 1
        return AnsweredPull(lambda: self._pulled(queue, None, offset, max_messages))

    def look(self, queue: AnnouncementQueue, *, offset: int) -> SeenRecord:
        self._answer()
        self.looks += 1
        stored, minimum = self.stored[queue], self.minimum[queue]
        record = stored[offset].record if minimum <= offset < len(stored) else None
        return SeenRecord(record=record, min_offset=minimum, max_offset=len(stored))

    def earliest(self, queue: AnnouncementQueue) -> int:
        self._answer()
        return self.minimum[queue]

    def _answer(self) -> None:
        if self.is_away or self.fails_after == 0:
            raise BrokerUnavailable("away")
        if self.fails_after is not None:
            self.fails_after -= 1


class FailingLedger:
    """The announcements' ledger with a database that can be away."""

    def __init__(self, ledger: MemoryLedger) -> None:
        self._ledger = ledger.announcements
        self.is_away = False

    def floor(self, subscription: Subscription, queue: AnnouncementQueue) -> Floor | None:
        self._answer()
        return self._ledger.floor(subscription, queue)

    def quarantine(self, environment: str, refused: Sequence[RefusedAnnouncement]) -> None:
        self._answer()
        self._ledger.quarantine(environment, refused)

    def open_outage_reason(self, environment: str) -> str | None:
        self._answer()
        return self._ledger.open_outage_reason(environment)

    def open_outage(self, environment: str, *, reason: str, noticed_by: str) -> None:
        self._answer()
        self._ledger.open_outage(environment, reason=reason, noticed_by=noticed_by)

    def _answer(self) -> None:
        if self.is_away:
            raise DatabaseAway("away")


class World:
    """One subscription, its topic, its Redis and its ledger, on a clock that the test moves."""

    #: Queues are read by common readers, one a token.
    is_shared = False

    def __init__(self, *, half_sets: HalfSets | None = None, queues: Sequence[AnnouncementQueue] = (QUEUE,)) -> None:
        self.readers: dict[tuple[AnnouncementStep, AnnouncementQueue], QueueReader] = {}
        self.clock = ManualClock()
        self.topic = MemoryTopic(queues)
        self.memory = MemoryShards(self.clock)
        self.half_sets = half_sets or self.memory
        self.rows = MemoryLedger(self.clock)
        self.ledger = FailingLedger(self.rows)
        self.events: list[AnnouncementEvent] = []

    def step(self, token: str = "one", **options: Any) -> AnnouncementStep:
        """A consumer process."""
        rules = options.pop("rules", AnnouncementRules(environment="test", topic="ORDERS"))
        step = AnnouncementStep(
            options.pop("subscription", SUBSCRIPTION),
            unique_key_topic="RECONCILER_UNIQUE_KEY",
            shards=16,
            half_sets=options.pop("half_sets", self.half_sets),
            ledger=self.ledger,
            source=self.topic,
            rules=rules,
            token=token,
            clock=self.clock,
            on_event=self.events.append,
            jitter=random.Random(1),
            **options,
        )
        if self.is_shared:
            for queue in self.topic.stored:
                self.share(step, queue)
        return step

    def share(self, step: AnnouncementStep, queue: AnnouncementQueue = QUEUE) -> QueueReader:
        """A process begins, with a reader of its own."""
        reader = QueueReader(queue, source=self.topic, clock=self.clock, wake=lambda: None)
        self.readers[step, queue] = reader
        step.share(queue, reader, wake=lambda: None)
        return reader

    def turn(self, step: AnnouncementStep, queue: AnnouncementQueue = QUEUE) -> StepOutcome:
        """A turn of the common reader, if there is one, and one of the step."""
        reader = self.readers.get((step, queue))
        while reader is not None and reader.run_once() == 0.0:
            pass
        return step.run_once(queue)

    def look(self, *steps: AnnouncementStep) -> AnnouncementLook:
        """Of one process."""
        outages = OutageWatch(self.ledger, "test", clock=self.clock)
        return AnnouncementLook(steps, self.half_sets, outages, clock=self.clock)

    def run(self, step: AnnouncementStep, queue: AnnouncementQueue = QUEUE, *, steps: int = 60) -> StepOutcome:
        """Steps until there is nothing to do; time passes as the outcomes ask for."""
        for _ in range(steps):
            outcome = self.turn(step, queue)
            self.clock.advance(outcome.wait_seconds)
            if outcome.kind is not StepKind.MOVED_ON:
                return outcome
        raise AssertionError("the step never came to rest")

    def run_seconds(self, step: AnnouncementStep, seconds: float, queue: AnnouncementQueue = QUEUE) -> None:
        """Steps for a while."""
        end = self.clock.monotonic_seconds() + seconds
        while self.clock.monotonic_seconds() < end:
            outcome = self.turn(step, queue)
            self.clock.advance(max(0.01, outcome.wait_seconds))

    def apart(self, queue: AnnouncementQueue = QUEUE) -> set[str]:
        """Announced keys of the queue's shard that are set apart."""
        return set(self.memory._memory(Shard(subscription=SUBSCRIPTION, number=queue.queue_id)).apart)

    def half(self, queue: AnnouncementQueue = QUEUE) -> set[str]:
        """Announced keys of the queue's shard."""
        found = self.memory._shards.get(Shard(subscription=SUBSCRIPTION, number=queue.queue_id))
        return set(found.half) if found else set()

    def kinds(self) -> list[EventKind]:
        """What was told, in order."""
        return [event.kind for event in self.events]

    def set_floor(self, offset: int, queue: AnnouncementQueue = QUEUE, *, is_proved: bool = True) -> None:
        """A floor as rounds leave it; of an older release it has no proof."""
        field = offsets_field(queue.broker, queue.queue_id)
        stored = self.topic.stored[queue]
        proof = None
        if is_proved and 0 < offset <= len(stored):
            proof = QueueProof(following=offset, record=stored[offset - 1].record)
        self.rows.rows.floors[(SUBSCRIPTION, field)] = Floor(
            subscription=SUBSCRIPTION,
            broker=queue.broker,
            queue_id=queue.queue_id,
            queue_offset=offset,
            updated_at_ms=self.clock.now_ms(),
            proof=proof,
        )

    def scan_outage(self) -> None:
        """The daemon puts the inbox back: announcements may resume."""
        current = self.rows.outages.current("test")
        assert current is not None
        self.rows.outages.advance(current, scan_position={"complete": True}, scanned=0)

    def close_outage(self) -> None:
        """The next round."""
        current = self.rows.outages.current("test")
        assert current is not None
        self.rows.outages.finish(current)


def away() -> None:
    """What a call of a database that is away comes to."""
    raise DatabaseAway("away")


class Process:
    """Subscriptions of a process at one queue, called as AnnouncementConsumer calls them: a step when it is due, or
    woken by the common reader or the look."""

    def __init__(self, world: World, *subscriptions: Subscription, **options: Any) -> None:
        self.world = world
        self.outages = OutageWatch(world.ledger, "test", clock=world.clock)
        self.reader = QueueReader(QUEUE, source=world.topic, clock=world.clock, wake=lambda: None)
        self.steps: list[AnnouncementStep] = []
        #: When each step is due; None: it waits to be woken.
        self.due: dict[AnnouncementStep, float | None] = {}
        for subscription in subscriptions:
            rules = AnnouncementRules(environment="test", topic=subscription.topic)
            step = world.step(subscription=subscription, rules=rules, outages=self.outages, **options)
            step.share(QUEUE, self.reader, wake=partial(self._wake, step))
            self.steps.append(step)
            self.due[step] = 0.0
        self.look = AnnouncementLook(self.steps, world.half_sets, self.outages, clock=world.clock)

    def _wake(self, step: AnnouncementStep) -> None:
        self.due[step] = 0.0

    def run_seconds(self, seconds: float) -> None:
        """Ten turns a second of whatever is due, a look each second."""
        for tick in range(round(seconds * 10)):
            while self.reader.run_once() == 0.0:
                pass
            if tick % 10 == 0:
                self.look.run_once()
            for step in self.steps:
                while self.is_due(step):
                    self.turn(step)
            self.world.clock.advance(0.1)

    def is_due(self, step: AnnouncementStep) -> bool:
        """Whether its time has come, or it was woken."""
        due = self.due[step]
        return due is not None and due <= self.world.clock.monotonic_seconds()

    def turn(self, step: AnnouncementStep) -> None:
        """One step, whether it is due or not."""
        self.due[step] = None
        outcome = step.run_once(QUEUE)
        if self.due[step] is None and not outcome.is_called_for:
            self.due[step] = self.world.clock.monotonic_seconds() + outcome.wait_seconds

    @property
    def joined(self) -> int:
        """How many take what the common reader hands out."""
        return sum(1 for step in self.steps for _ in step.joined(self.world.clock.monotonic_seconds()))

    def half(self, number: int) -> set[str]:
        """Announced keys of a subscription."""
        found = self.world.memory._shards.get(Shard(subscription=self.steps[number].subscription, number=3))
        return set(found.half) if found else set()
