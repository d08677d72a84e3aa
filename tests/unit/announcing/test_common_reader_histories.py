"""Accidents in any order while a queue is read once for several subscriptions: none of them misses a key by it.

Two processes read the queue for three subscriptions. Their pulls are held: the broker answers when it has something,
the answer arrives later, or never. Rounds take nothing here: what the queue has, the half sets must have in the end.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from reconciler.announcing import reader as readers
from reconciler.announcing.port import PulledBatch
from reconciler.contract.subscription import Shard, Subscription
from reconciler.errors import BrokerUnavailable
from reconciler.policy.ports.announcing import AnnouncementQueue
from tests.unit.announcing.announcement_world import QUEUE, MemoryTopic, Process, World, announcement
from tests.unit.consumers.messages import new_key

ORDERS = Subscription(environment="test", topic="ORDERS", group="billing")
POINTS = Subscription(environment="test", topic="ORDERS", group="points")
REFUNDS = Subscription(environment="test", topic="REFUNDS", group="billing")
SUBSCRIPTIONS = (ORDERS, POINTS, REFUNDS)


class HeldPull:
    """PullUnderWay: what the broker answers, and when that arrives, are two moments."""

    def __init__(self, offset: int, pull: Callable[[], PulledBatch]) -> None:
        self.offset = offset
        self._pull = pull
        self._answer: PulledBatch | BrokerUnavailable | None = None
        self.is_done = False
        self._call: Callable[[], None] = lambda: None

    def answer(self) -> None:
        if self._answer is None:
            try:
                self._answer = self._pull()
            except BrokerUnavailable as error:
                self._answer = error

    def arrive(self) -> None:
        if self._answer is not None:
            self.is_done = True
            self._call()

    def fail(self) -> None:
        self._answer, self.is_done = BrokerUnavailable("the connection ended"), True
        self._call()

    def batch(self) -> PulledBatch:
        assert self._answer is not None
        if isinstance(self._answer, BrokerUnavailable):
            raise self._answer
        return self._answer

    def when_done(self, call: Callable[[], None]) -> None:
        self._call = call

    def cancel(self) -> None:
        self.is_done = True


class HoldingTopic(MemoryTopic):
    """A broker that holds pulls until the test lets it answer."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[HeldPull] = []

    def begin_pull(  # type: ignore[override]
        self, queue: AnnouncementQueue, *, offset: int, max_messages: int, hold_seconds: float
    ) -> HeldPull:
        held = HeldPull(offset, lambda: self._pulled(queue, None, offset, max_messages))
        self.held.append(held)
        if not self.minimum[queue] <= offset < len(self.stored[queue]):
            return held
        held.answer()  # it holds nothing where there is something
        held.arrive()
        return held


class History:
    """Random acts, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.world = World()
        self.topic = self.world.topic = HoldingTopic()
        self.processes = [self.begin(number) for number in range(2)]
        self.begun = 2
        self.saved = self.world.memory.save()
        usual = [
            self.announce, self.announce, self.announce_others, self.read, self.read, self.step, self.step, self.look,
            self.answer, self.arrive, self.arrive, self.time_passes, self.time_passes,
        ]  # fmt: skip
        accidents = [
            self.lose_tail, self.lose_tail, self.answer_before_a_loss, self.create_again, self.delete_by_age, self.fail,
            self.remember, self.fall_back, self.wipe, self.broker_goes, self.ledger_goes, self.restart,
            self.lease_is_lost,
        ]  # fmt: skip
        # A few kinds a history: with all at once nobody would ever follow a reader.
        self.acts = usual * 2 + self.dice.sample(accidents, self.dice.randint(1, 4))

    def begin(self, number: int) -> Process:
        return Process(self.world, *SUBSCRIPTIONS, token=f"process {number}", half_set_keys_max=1_000_000)

    def run(self, spells: int) -> None:
        """Spells of accidents; before most of them the subscriptions have come to follow their readers."""
        for _ in range(spells):
            if self.dice.random() < 0.7:
                self.calm()
            for _ in range(30):
                self.dice.choice(self.acts)()
                self.scan()

    def calm(self) -> None:
        """A while in which nothing new fails."""
        for held in self.topic.held:
            if not held.is_done:
                held.answer()
                held.arrive()
        self.topic.held.clear()
        for process in self.processes:
            process.run_seconds(3)

    def announce(self) -> None:
        for _ in range(self.dice.choice((1, 1, 2, 5, 40))):
            topic = self.dice.choice(("ORDERS", "REFUNDS"))
            self.topic.now_ms += 1
            self.topic.send(announcement(new_key(), topic=topic), tag=topic)

    def announce_others(self) -> None:
        for _ in range(self.dice.choice((1, 3, 70))):
            self.topic.send(b"", tag="OTHERS")

    def _process(self) -> Process:
        return self.dice.choice(self.processes)

    def read(self) -> None:
        self._process().reader.run_once()

    def step(self) -> None:
        process = self._process()
        process.turn(self.dice.choice(process.steps))

    def look(self) -> None:
        self._process().look.run_once()

    def answer(self) -> None:
        for held in self.topic.held:
            if self.dice.random() < 0.7 and not held.is_done:
                held.answer()

    def arrive(self) -> None:
        for held in self.topic.held:
            if self.dice.random() < 0.7 and not held.is_done:
                held.arrive()
        self.topic.held = [held for held in self.topic.held if not held.is_done]

    def answer_before_a_loss(self) -> None:
        """A pull's answer arrives, and the queue is another one before the reader looks at it."""
        self.answer()
        for held in self.topic.held:
            held.arrive()
        self.lose_tail()
        self.announce()

    def fail(self) -> None:
        for held in self.topic.held:
            if not held.is_done:
                held.fail()

    def time_passes(self) -> None:
        seconds = self.dice.choice((0.1, 1.0, 1.0, 6.0, 70.0))
        self.world.clock.advance(seconds)
        self.topic.now_ms += int(seconds * 1000)

    def lose_tail(self) -> None:
        self.topic.lose_tail(min(self.dice.choice((1, 2, 10)), len(self.topic.stored[QUEUE])))

    def create_again(self) -> None:
        self.topic.create_again()

    def delete_by_age(self) -> None:
        first, end = self.topic.minimum[QUEUE], len(self.topic.stored[QUEUE])
        self.topic.minimum[QUEUE] = self.dice.choice((first, (first + end) // 2, end))

    def remember(self) -> None:
        self.saved = self.world.memory.save()

    def fall_back(self) -> None:
        self.world.memory.restore(self.saved)

    def wipe(self) -> None:
        self.world.memory.wipe()
        self.saved = self.world.memory.save()

    def broker_goes(self) -> None:
        self.topic.is_away = not self.topic.is_away

    def ledger_goes(self) -> None:
        self.world.ledger.is_away = not self.world.ledger.is_away

    def restart(self) -> None:
        number = self.dice.randrange(2)
        self.begun += 1
        self.processes[number] = self.begin(self.begun)

    def lease_is_lost(self) -> None:
        subscription = self.dice.choice(SUBSCRIPTIONS)
        for process in self.processes:
            for step in process.steps:
                shard = Shard(subscription=subscription, number=3)
                self.world.memory.release_lease(shard, QUEUE, token=step.token)

    def scan(self) -> None:
        if (current := self.world.rows.outages.current("test")) is not None and self.dice.random() < 0.3:
            self.world.rows.outages.advance(current, scan_position={"complete": True}, scanned=0)
            self.world.rows.outages.finish(current)

    def settle(self) -> None:
        """Nothing fails any more."""
        self.topic.is_away = self.world.ledger.is_away = False
        for _ in range(12):
            self.calm()
            while (current := self.world.rows.outages.current("test")) is not None:
                self.world.rows.outages.advance(current, scan_position={"complete": True}, scanned=0)
                self.world.rows.outages.finish(current)

    def missing(self) -> list[tuple[str, int]]:
        """Groups and offsets of keys that the queue has, and no half set."""
        found = []
        memory, first = self.world.memory, self.topic.minimum[QUEUE]
        for subscription in SUBSCRIPTIONS:
            half = memory._memory(Shard(subscription=subscription, number=3)).half
            for one in self.topic.stored[QUEUE][first:]:
                if one.tag == subscription.topic and not any(key.encode() in one.body for key in half):
                    found.append((f"{subscription.topic} {subscription.group}", one.queue_offset))
        return found


@pytest.mark.parametrize("seed", range(40))
def test_no_subscription_misses_a_key_whatever_happens_to_its_reader(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 4 == 0:
        monkeypatch.setattr(readers, "WAITING_MESSAGES_MAX", 20)
    history = History(seed)
    history.run(14)
    history.settle()
    assert history.missing() == []
    assert sum(process.joined for process in history.processes) == len(SUBSCRIPTIONS)
