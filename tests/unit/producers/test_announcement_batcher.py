"""Announcements beside the blocks: together, in the order announce, mark, and never in the way of a block."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from checkback_producers.announcement_batcher import AnnouncementBatcher
from checkback_producers.announcer import AnnouncementRoute, Announcer
from checkback_producers.counts import Counts
from checkback_producers.outbox import SqlOutbox
from checkback_producers.ports import AnnouncementMessage
from checkback_producers.sweeper import OutboxSource, Sweeper
from checkback_producers.transaction import Transaction
from reconciler.clock import SystemClock
from reconciler.contract.announcement import AnnouncedKey, decode_announcement
from reconciler.contract.unique_key import shard_of
from reconciler.errors import DatabaseAway, InvalidValue, RequestTimeout
from reconciler.policy.sweeping import SweepRules
from tests.polling import eventually
from tests.unit.producers.world import GROUP, TOPIC, MemoryAnnouncements, World, message, new_key

MOMENT_SECONDS = 0.01
LONG_SECONDS = 10.0
QUEUES = 4


@dataclass
class Gate(MemoryAnnouncements):
    """Broker that answers when it is told to, and sees the rows' states when it is asked."""

    world: World | None = None
    is_open: threading.Event = field(default_factory=threading.Event)
    is_asked: threading.Event = field(default_factory=threading.Event)
    away: set[int] = field(default_factory=set)
    states: list[str | None] = field(default_factory=list)

    def send_announcement(self, message: AnnouncementMessage) -> None:
        self.is_asked.set()
        assert self.is_open.wait(60)
        if message.queue_id in self.away:
            raise RequestTimeout(f"queue {message.queue_id}")
        super().send_announcement(message)
        if self.world is not None:
            self.states += [self.world.state(key) for key in self.keys]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(f"sqlite:///{tmp_path}/orders.db")
    made.announcements = Gate(world=made)
    yield made
    gate(made).is_open.set()
    made.close()


def gate(world: World) -> Gate:
    assert isinstance(world.announcements, Gate)
    return world.announcements


def sold(world: World, producer: object, count: int) -> list[Transaction]:
    done = []
    for _ in range(count):
        with producer.transaction(message()) as tx, world.engine.begin() as connection:  # type: ignore[attr-defined]
            tx.record(connection)
        done.append(tx)
    return done


def states(world: World, transactions: list[Transaction]) -> set[str | None]:
    return {world.state(tx.unique_key) for tx in transactions}


def test_a_slow_broker_holds_no_block_up_and_what_waited_travels_together(world: World) -> None:
    producer = world.producer(announce_every_seconds=MOMENT_SECONDS, clock=SystemClock())
    first = sold(world, producer, 1)
    assert gate(world).is_asked.wait(60)
    others = sold(world, producer, 40)  # returns although nothing is answered
    assert [tx.is_announced for tx in first + others] == [False] * 41
    assert states(world, first + others) == {"NEW"}
    gate(world).is_open.set()
    eventually(lambda: all(tx.is_announced for tx in first + others), within_seconds=60)
    assert states(world, first + others) == {"ANNOUNCED"}
    assert sorted(world.announcements.keys) == sorted(tx.unique_key for tx in first + others)
    assert len(world.announcements.sent) <= 1 + QUEUES


def test_a_row_is_marked_only_after_a_broker_took_its_announcement(world: World) -> None:
    producer = world.producer(announce_every_seconds=MOMENT_SECONDS, clock=SystemClock())
    gate(world).is_open.set()
    (tx,) = sold(world, producer, 1)
    eventually(lambda: tx.is_announced, within_seconds=60)
    assert gate(world).states == ["NEW"]


def test_keys_that_no_broker_took_stay_new_for_the_sweeper(world: World) -> None:
    producer = world.producer(announce_every_seconds=MOMENT_SECONDS, clock=SystemClock())
    transactions = sold(world, producer, 20)
    away = shard_of(transactions[-1].unique_key, QUEUES)
    gate(world).away = {away}
    gate(world).is_open.set()
    lost = [tx for tx in transactions if shard_of(tx.unique_key, QUEUES) == away]
    eventually(lambda: sum(tx.is_announced for tx in transactions) == 20 - len(lost), within_seconds=60)
    eventually(lambda: producer.counts.as_dict().get("announcements_failed") == len(lost), within_seconds=60)
    assert states(world, lost) == {"NEW"}
    assert states(world, [tx for tx in transactions if tx not in lost]) == {"ANNOUNCED"}


def test_what_dies_with_the_process_is_announced_by_the_sweeper(world: World) -> None:
    producer = world.producer(announce_every_seconds=LONG_SECONDS, clock=SystemClock())
    transactions = sold(world, producer, 5)  # the thread hangs with the first, the rest waits: as if it had died
    sender = MemoryAnnouncements()
    sweeper = Sweeper(
        [OutboxSource(producer_group=GROUP, outbox=(outbox := SqlOutbox(world.url)))],
        announcer=Announcer(sender, AnnouncementRoute(environment="test", queues=QUEUES)),
        subscriptions=[],
        inboxes=None,  # type: ignore[arg-type]  # nothing is settled here
        rules=SweepRules(sweep_after_seconds=0.0),
    )
    assert sweeper.announce_new(OutboxSource(producer_group=GROUP, outbox=outbox)).announced == 5
    assert sorted(sender.keys) == sorted(tx.unique_key for tx in transactions)
    outbox.close()


def test_shutdown_announces_what_waits(world: World) -> None:
    gate(world).is_open.set()
    producer = world.producer(announce_every_seconds=LONG_SECONDS, clock=SystemClock())
    (first,) = sold(world, producer, 1)
    eventually(lambda: first.is_announced, within_seconds=60)  # at once; the next ones have ten seconds
    others = sold(world, producer, 3)
    producer.shutdown()
    assert all(tx.is_announced for tx in others)
    assert states(world, others) == {"ANNOUNCED"}


class WaitlessClock(SystemClock):
    """Notes how long it was asked to wait, and waits for nothing."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.waits.append(seconds)
        return super().wait(event, min(seconds, 0.0))


def test_the_first_key_goes_at_once_and_the_next_ones_are_gathered_for_the_interval(world: World) -> None:
    gate(world).is_open.set()
    clock = WaitlessClock()
    producer = world.producer(announce_every_seconds=LONG_SECONDS, clock=clock)
    for _ in range(2):
        (tx,) = sold(world, producer, 1)
        eventually(lambda tx=tx: tx.is_announced, within_seconds=60)  # type: ignore[misc]
    first, second = clock.waits[:2]
    assert first <= 0.0
    assert 0.0 < second <= LONG_SECONDS


def test_without_an_outbox_every_block_announces_for_itself(world: World) -> None:
    gate(world).is_open.set()
    producer = world.producer(without_outbox=True, announce_every_seconds=LONG_SECONDS, clock=SystemClock())
    for number in range(3):
        with producer.transaction(message()) as tx:
            pass
        assert tx.is_announced
        assert len(world.announcements.sent) == number + 1


class FailingMarks(SqlOutbox):
    """A database that is away when rows are marked."""

    is_away = True

    def mark_announced(self, unique_keys: object) -> int:
        if self.is_away:
            raise DatabaseAway("away")
        return super().mark_announced(unique_keys)  # type: ignore[arg-type]


def batcher_of(world: World, outbox: SqlOutbox, **options: object) -> tuple[AnnouncementBatcher, Counts]:
    counts = Counts()
    announcer = Announcer(world.announcements, AnnouncementRoute(environment="test", queues=QUEUES))
    values: dict[str, object] = {"interval_seconds": MOMENT_SECONDS, **options}
    made = AnnouncementBatcher(
        announcer, outbox, producer_group=GROUP, counts=counts, clock=SystemClock(), **values  # type: ignore[arg-type]
    )  # fmt: skip
    return made, counts


def announced_key() -> AnnouncedKey:
    return AnnouncedKey(unique_key=new_key(), tag=None, committed_at_ms=1)


def test_a_database_that_is_away_ends_nothing(world: World) -> None:
    gate(world).is_open.set()
    outbox = FailingMarks(world.url)
    batcher, counts = batcher_of(world, outbox)
    noted: list[str] = []
    assert batcher.put(TOPIC, announced_key(), lambda: noted.append("marked without a database"))
    eventually(lambda: counts.as_dict().get("announcements_failed") == 1, within_seconds=60)
    outbox.is_away = False
    assert batcher.put(TOPIC, announced_key(), lambda: noted.append("marked"))
    eventually(lambda: noted == ["marked"], within_seconds=60)
    batcher.close()
    outbox.close()


def test_a_topic_whose_keys_cannot_be_marked_holds_up_no_other_of_its_delivery(world: World) -> None:
    class RefusesOne(SqlOutbox):
        def mark_announced(self, unique_keys: Sequence[str]) -> int:
            if set(unique_keys) & refused:
                raise DatabaseAway("refused")
            return super().mark_announced(unique_keys)

    outbox = RefusesOne(world.url)
    batcher, counts = batcher_of(world, outbox)
    refused: set[str] = set()
    noted: list[str] = []
    assert batcher.put(TOPIC, announced_key(), lambda: noted.append("the first one"))
    assert gate(world).is_asked.wait(60)  # what comes now travels together
    for topic in ("PAYMENTS", "REFUNDS"):
        one = announced_key()
        refused |= {one.unique_key} if topic == "PAYMENTS" else set()
        assert batcher.put(topic, one, lambda topic=topic: noted.append(topic))  # type: ignore[misc]  # a default
    gate(world).is_open.set()
    batcher.close(timeout_seconds=60)
    assert noted == ["the first one", "REFUNDS"]
    assert counts.as_dict()["announcements_failed"] == 1
    topics = [decode_announcement(one.body).topic for one in world.announcements.sent]
    assert topics == [TOPIC, "PAYMENTS", "REFUNDS"]
    outbox.close()


def test_a_full_batcher_and_a_closed_one_send_the_block_on_its_own_way(world: World) -> None:
    outbox = SqlOutbox(world.url)
    batcher, _ = batcher_of(world, outbox, waiting_keys_max=2)
    assert batcher.put(TOPIC, announced_key(), lambda: None)
    assert gate(world).is_asked.wait(60)
    assert [batcher.put(TOPIC, announced_key(), lambda: None) for _ in range(3)] == [True, True, False]
    gate(world).is_open.set()
    batcher.close()
    assert len(world.announcements.keys) == 3
    assert batcher.put(TOPIC, announced_key(), lambda: None) is False
    outbox.close()


@pytest.mark.parametrize("seconds", [0.0, -1.0, 11.0])
def test_an_interval_that_would_spin_or_hide_announcements_is_refused(world: World, seconds: float) -> None:
    with pytest.raises(InvalidValue, match="announce_every_seconds"):
        world.producer(announce_every_seconds=seconds)


def test_a_committed_block_does_not_fail_where_no_thread_can_start(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the caller would try again what has committed, and do its business twice."""
    gate(world).is_open.set()
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if thread.name == "announcements":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)
    producer = world.producer(announce_every_seconds=0.05, clock=SystemClock())
    first = sold(world, producer, 2)
    assert world.announcements.keys == [tx.unique_key for tx in first]
    monkeypatch.setattr(threading.Thread, "start", start)
    later = sold(world, producer, 1)
    eventually(lambda: world.announcements.keys[2:] == [tx.unique_key for tx in later], within_seconds=60)
