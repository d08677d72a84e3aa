"""When a group's offset proves something again, in a queue that gave offsets a second time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

import pytest

from reconciler.clock import ManualClock
from reconciler.contract.queue_proof import QueueRecord
from reconciler.contract.verdicts import Verdict
from reconciler.errors import DatabaseAway
from reconciler.evidence.reused_offsets import CLIENTS_SECONDS, LOOK_SECONDS, ReusedOffsets
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.evidence import (
    Lookup,
    Presence,
    QueuePosition,
    StoredMessage,
    TransactionState,
    WitnessAnswer,
)
from reconciler.policy.inquiry.delivery import group_position, has_passed
from reconciler.sql.tables import ledger_metadata
from tests.engines import with_tables

ROUND_SECONDS = 5.0


@dataclass
class Queue:
    """One queue of one broker. Every record has a place in the log of its own."""

    records: list[QueueRecord] = field(default_factory=list)
    stored: int = 0

    def grow(self, count: int) -> list[QueueRecord]:
        new = []
        for _ in range(count):
            self.stored += 1
            record = QueueRecord(
                queue_offset=len(self.records),
                stored_at_ms=1,
                commit_log_offset=self.stored * 100,
                unique_key=str(self.stored),
            )
            self.records.append(record)
            new.append(record)
        return new

    def lose_tail(self, count: int) -> None:
        del self.records[len(self.records) - count :]

    def look(self, offset: int) -> QueueRecord | None:
        return self.records[offset] if 0 <= offset < len(self.records) else None


class Watch:
    """Rounds of one process that look at that queue."""

    def __init__(self, queue: Queue, clock: ManualClock, ledger: SqlLedger | None = None) -> None:
        self.queue, self.clock = queue, clock
        kept = None if ledger is None else ledger.seen_queues
        self.reused = ReusedOffsets(clock, kept=kept, environment="test")
        self.reused.begin_to_keep()

    def position(self, consumer_offset: int | None, group: str = "billing") -> QueuePosition:
        end = len(self.queue.records)
        proved = self.reused.proved_from(
            ("ORDERS", "broker-a", 0),
            group=group,
            consumer_offset=consumer_offset,
            end=end,
            look=self.queue.look,
        )
        self.reused.keep(["ORDERS"])
        return QueuePosition(
            topic="ORDERS",
            broker="broker-a",
            queue_id=0,
            consumer_offset=consumer_offset,
            min_offset=0,
            max_offset=end,
            doubtful_below=proved.queue_offset,
            doubtful_log_offset=proved.behind_log_offset,
            seen=self.reused.last_seen(("ORDERS", "broker-a", 0)),
        )

    def passed(self, record: QueueRecord, *, at: int | None, group: str = "billing") -> bool | None:
        """Whether a group at that offset is known to be past the record."""
        return has_passed([self.position(at, group)], copy_of(record))

    def rounds(self, seconds: float, *, at: int | None, group: str = "billing") -> None:
        """So long the group's offset stays."""
        end = self.clock.monotonic_seconds() + seconds
        while self.clock.monotonic_seconds() < end:
            self.position(at, group)
            self.clock.advance(ROUND_SECONDS)


def copy_of(record: QueueRecord) -> StoredMessage:
    return StoredMessage(
        unique_key=record.unique_key,
        topic="ORDERS",
        real_topic="ORDERS",
        broker="broker-a",
        queue_id=0,
        queue_offset=record.queue_offset,
        commit_log_offset=record.commit_log_offset,
        born_timestamp_ms=1,
        store_timestamp_ms=1,
        transaction_state=TransactionState.COMMIT,
        prepared_transaction_offset=0,
        producer_group="orders",
        check_times=None,
        reconsume_times=0,
        properties={},
        body=b"",
    )


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqlLedger]:
    with with_tables(f"sqlite:///{tmp_path}/ledger.db", ledger_metadata) as engine:
        yield SqlLedger(engine)


@pytest.fixture
def old() -> list[QueueRecord]:
    """Records of the queue before it was created again."""
    return []


@pytest.fixture
def watch(clock: ManualClock, old: list[QueueRecord]) -> Watch:
    """A slow topic of 1 000 messages, all consumed, that was created again; the group's offset is as it was."""
    watch = Watch(Queue(), clock)
    old += watch.queue.grow(1_000)
    watch.rounds(60, at=1_000)
    watch.queue.lose_tail(1_000)
    watch.rounds(10, at=1_000)
    return watch


def test_an_offset_on_one_broker_says_nothing_of_the_queue_of_that_number_on_another(clock: ManualClock) -> None:
    queue = Queue()
    (record,) = queue.grow(1)
    behind = Watch(queue, clock).position(0)
    for other in (replace(behind, broker="broker-b"), replace(behind, topic="PAYMENTS"), replace(behind, queue_id=1)):
        ahead = replace(other, consumer_offset=1)
        assert has_passed([ahead], copy_of(record)) is None
        assert has_passed([ahead, behind], copy_of(record)) is False


def test_a_group_that_was_set_back_in_a_topic_created_again_is_believed_for_what_came_after(
    watch: Watch, old: list[QueueRecord]
) -> None:
    between = watch.queue.grow(3)
    watch.rounds(LOOK_SECONDS, at=1_000)
    assert watch.passed(between[0], at=1_000) is None
    watch.rounds(ROUND_SECONDS, at=3)
    (new,) = watch.queue.grow(1)
    assert watch.passed(new, at=3) is False
    assert watch.passed(new, at=4) is True
    assert [watch.passed(one, at=4) for one in between] == [None] * 3, "its broker may have set it to the end"


def test_copies_of_the_former_queue_stay_unknown_though_their_offsets_come_again(
    watch: Watch, old: list[QueueRecord]
) -> None:
    watch.queue.grow(3)
    watch.rounds(LOOK_SECONDS, at=1_000)
    watch.rounds(ROUND_SECONDS, at=3)
    watch.queue.grow(500)
    assert {watch.passed(one, at=400) for one in old} == {None}
    assert watch.passed(watch.queue.records[350], at=400) is True
    watch.queue.grow(1_500)
    watch.rounds(2 * LOOK_SECONDS, at=2_000)
    assert {watch.passed(one, at=2_000) for one in old} == {None}


def test_a_group_that_was_not_seen_to_come_down_is_believed_when_no_client_can_be_where_it_was(watch: Watch) -> None:
    watch.queue.grow(3)
    watch.rounds(CLIENTS_SECONDS - 20, at=2, group="mail")
    (early,) = watch.queue.grow(1)
    assert watch.passed(early, at=4, group="mail") is None
    watch.rounds(30, at=4, group="mail")
    (new,) = watch.queue.grow(1)
    assert watch.passed(new, at=5, group="mail") is True
    assert watch.passed(early, at=5, group="mail") is None
    assert watch.passed(new, at=1_000) is None, "the other group is where it was"


def test_an_offset_that_the_queue_has_grown_past_proves_nothing_of_what_it_skipped(watch: Watch) -> None:
    """Nobody of the group was there meanwhile: it goes on where it was."""
    skipped = watch.queue.grow(700)
    watch.rounds(2 * CLIENTS_SECONDS, at=1_000)
    skipped += watch.queue.grow(500)[:300]
    watch.rounds(2 * LOOK_SECONDS, at=1_000)
    assert {watch.passed(one, at=1_200) for one in skipped} == {None}
    (new,) = watch.queue.grow(1)
    assert watch.passed(new, at=1_201) is True


def test_a_client_that_still_works_on_a_lost_tail_makes_nobody_believe_it_had_the_new_one(clock: ManualClock) -> None:
    watch = Watch(Queue(), clock)
    watch.queue.grow(100)
    watch.rounds(60, at=88)
    watch.queue.lose_tail(10)
    new = watch.queue.grow(2)
    watch.rounds(60, at=88)
    new += watch.queue.grow(9)
    assert {watch.passed(one, at=100) for one in new[:10]} == {None}, "it had 88 to 99 in hand, and goes on at 100"


def test_a_client_that_was_further_than_any_look_has_asked_its_broker_before_the_group_is_believed(
    clock: ManualClock,
) -> None:
    watch = Watch(Queue(), clock)
    watch.queue.grow(100)
    watch.rounds(30, at=100)
    watch.queue.lose_tail(10)
    watch.queue.grow(15)
    watch.position(100)
    skipped = watch.queue.grow(5)
    watch.rounds(60, at=110)
    assert {watch.passed(one, at=110) for one in skipped} == {None}, "the client was at 110, and goes on there"


def test_a_group_that_the_queue_has_overtaken_has_not_come_down(watch: Watch) -> None:
    watch.rounds(10, at=700, group="mail")
    watch.queue.grow(710)
    watch.rounds(60, at=700, group="mail")
    new = watch.queue.grow(20)
    assert {watch.passed(one, at=730, group="mail") for one in new} == {None}, "a client may have gone on at 720"


def test_what_one_process_proved_after_an_earlier_accident_is_nothing_after_a_later_one(
    clock: ManualClock, ledger: SqlLedger
) -> None:
    first = Watch(Queue(), clock, ledger)
    first.queue.grow(1_000)
    first.rounds(60, at=1_000)
    first.queue.lose_tail(1_000)
    first.queue.grow(3)
    first.rounds(LOOK_SECONDS, at=1_000)
    first.rounds(60, at=3)
    second = Watch(first.queue, clock, ledger)
    assert second.passed(first.queue.records[2], at=3) is None
    first.queue.grow(5)
    second.rounds(10, at=8)
    first.queue.lose_tail(3)
    second.rounds(10, at=5)
    first.rounds(60, at=5)  # it saw nothing of what was lost, and writes what it knows
    (new,) = first.queue.grow(1)
    assert Watch(first.queue, clock, ledger).passed(new, at=6) is None


def test_a_second_accident_ends_what_was_proved_after_the_first(watch: Watch) -> None:
    watch.queue.grow(3)
    watch.rounds(LOOK_SECONDS, at=1_000)
    watch.rounds(ROUND_SECONDS, at=3)
    (kept, lost) = watch.queue.grow(2)
    assert watch.passed(kept, at=5) is True
    watch.queue.lose_tail(1)
    assert watch.passed(kept, at=4) is None
    watch.queue.grow(1)
    assert watch.passed(lost, at=5) is None


def test_what_was_proved_again_outlives_the_process(clock: ManualClock, ledger: SqlLedger) -> None:
    first = Watch(Queue(), clock, ledger)
    first.queue.grow(1_000)
    first.rounds(60, at=1_000)
    first.queue.lose_tail(1_000)
    first.queue.grow(3)
    first.rounds(LOOK_SECONDS, at=1_000)
    first.rounds(ROUND_SECONDS, at=3)
    (new,) = first.queue.grow(1)
    second = Watch(first.queue, clock, ledger)
    assert second.passed(new, at=4) is True
    assert second.passed(new, at=4, group="mail") is None
    second.queue.lose_tail(4)
    assert second.passed(new, at=4) is None
    assert Watch(first.queue, clock, ledger).passed(new, at=4) is None


def test_a_queue_that_changes_between_two_looks_at_it_is_noticed(clock: ManualClock) -> None:
    """Its end is asked for, then records: the new last one is believed only if the former one is there after it."""
    watch = Watch(Queue(), clock)
    watch.queue.grow(100)
    watch.rounds(60, at=100)
    look = watch.queue.look
    asked: list[int] = []

    def changes_once(offset: int) -> QueueRecord | None:
        found = look(offset)
        asked.append(offset)
        if len(asked) == 1:
            watch.queue.lose_tail(100)
            watch.queue.grow(150)
        return found

    watch.queue.look = changes_once  # type: ignore[method-assign]
    for _ in range(20):
        watch.rounds(ROUND_SECONDS, at=100)
    assert watch.passed(watch.queue.records[50], at=100) is None


@pytest.mark.parametrize(
    ("queue_offset", "log_offset", "verdict"),
    [
        pytest.param(5, 100, Verdict.UNKNOWN, id="of the former queue"),
        pytest.param(1, 600, Verdict.UNKNOWN, id="of the time of the accident"),
        pytest.param(5, 600, Verdict.DELIVERED_NOT_APPLIED, id="passed since"),
        pytest.param(9, 600, Verdict.RETRYING, id="still to come"),
    ],
)
def test_a_copy_in_a_retry_topic_that_was_created_again_waits_only_if_the_group_will_get_it(
    queue_offset: int, log_offset: int, verdict: Verdict
) -> None:
    record = QueueRecord(queue_offset=queue_offset, stored_at_ms=1, commit_log_offset=log_offset, unique_key="1")
    copy = replace(copy_of(record), topic="%RETRY%billing")
    position = QueuePosition(
        topic="%RETRY%billing",
        broker="broker-a",
        queue_id=0,
        consumer_offset=9,
        min_offset=0,
        max_offset=12,
        doubtful_below=2,
        doubtful_log_offset=500,
    )
    answer = WitnessAnswer(witness="broker-a", presence=Presence.FOUND, detail="")
    retry = Lookup(presence=Presence.FOUND, records=(copy,), answers=(answer,))
    absent = WitnessAnswer(witness="broker-a", presence=Presence.ABSENT, detail="")
    dead: Lookup[StoredMessage] = Lookup(presence=Presence.ABSENT, answers=(absent,))
    assert group_position([position], {"retry": retry, "dead-letter": dead}) is verdict


class Client:
    """The group's client: what it has in hand keeps its offset back, and it goes on where it was after an accident."""

    def __init__(self, queue: Queue, rng: random.Random) -> None:
        self.queue, self.rng = queue, rng
        self.pulled_to = self.stored = 0
        self.in_hand: list[int] = []
        self.delivered: set[str] = set()
        self.is_alive, self.stuck_seconds = True, 0.0

    def turn(self) -> None:
        if not self.is_alive or self.rng.random() < 0.3:
            return
        if self.in_hand and self.stuck_seconds < CLIENTS_SECONDS / 3 and self.rng.random() < 0.5:
            self.stuck_seconds += ROUND_SECONDS
        else:
            self.in_hand, self.stuck_seconds = [], 0.0
        end = len(self.queue.records)
        if not self.in_hand or self.rng.random() < 0.5:
            if self.pulled_to > end:
                self.in_hand, self.pulled_to = [], self.rng.choice([0, end])
            for record in self.queue.records[self.pulled_to : self.pulled_to + self.rng.randint(1, 40)]:
                self.delivered.add(record.unique_key)
                self.in_hand.append(record.queue_offset)
                self.pulled_to = record.queue_offset + 1
        self.stored = min(self.in_hand, default=self.pulled_to)

    def restart(self) -> None:
        self.is_alive, self.in_hand, self.pulled_to = True, [], self.stored


@pytest.mark.parametrize("seed", range(40))
def test_no_group_is_called_past_a_copy_that_it_was_never_given(seed: int, clock: ManualClock) -> None:
    rng = random.Random(seed)
    queue = Queue()
    watch, clients = Watch(queue, clock), {name: Client(queue, rng) for name in ("billing", "mail")}
    copies: list[QueueRecord] = []
    proved = 0
    for _turn in range(rng.randint(200, 1_200)):
        busy = rng.choice([0, 0, 0, 1, 3, rng.randint(0, 60)])
        copies = (copies + queue.grow(busy))[-400:]
        for client in clients.values():
            client.turn()
            if rng.random() < 0.005:
                client.is_alive = not client.is_alive
                if client.is_alive:
                    client.restart()
        clock.advance(ROUND_SECONDS)
        for name, client in clients.items():
            position = watch.position(client.stored, name)
            for copy in rng.sample(copies, min(len(copies), 20)):
                if has_passed([position], copy_of(copy)) is True:
                    proved += 1
                    assert copy.unique_key in client.delivered, (name, copy, position)
        if rng.random() < 0.01:
            end = len(queue.records) - rng.choice([len(queue.records), rng.randint(0, min(50, len(queue.records)))])
            if end > 0:  # a lost tail is nowhere any more; of a topic that is created again the log has all records
                gone = {one.unique_key for one in queue.records[end:]}
                copies = [one for one in copies if one.unique_key not in gone]
            queue.lose_tail(len(queue.records) - end)
            watch.position(clients["mail"].stored, "mail")  # before the queue has grown again
    assert proved


@pytest.mark.parametrize("has_noticed", [True, False], ids=["noticed", "not noticed yet"])
def test_a_process_that_takes_a_subscription_over_while_it_runs_has_the_doubts_of_the_one_before(
    clock: ManualClock, ledger: SqlLedger, has_noticed: bool
) -> None:
    """Its own last look was before the messages whose offsets were given again."""
    queue = Queue()
    queue.grow(10)
    ours, other = Watch(queue, clock, ledger), Watch(queue, clock, ledger)
    ours.rounds(LOOK_SECONDS + 1, at=10)
    queue.grow(10)
    other.rounds(LOOK_SECONDS + 1, at=20)
    queue.lose_tail(5)
    lost = queue.grow(10)[2]
    if has_noticed:
        clock.advance(LOOK_SECONDS)
        assert not other.passed(lost, at=20)
    assert not ours.passed(lost, at=20)


def test_what_an_earlier_process_saw_is_not_replaced_unread(
    clock: ManualClock, ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger is away at the first look of this one, and back when it writes what it has seen."""
    earlier = Watch(Queue(), clock, ledger)
    queue = earlier.queue
    queue.grow(20)
    earlier.position(20)
    queue.lose_tail(5)
    lost = queue.grow(10)[2]
    ours = Watch(queue, clock, ledger)
    with monkeypatch.context() as patch:
        patch.setattr(ledger.seen_queues, "of_topic", _away)
        ours.position(20)
    ours.rounds(2 * LOOK_SECONDS, at=20)
    assert not ours.passed(lost, at=20)


def _away(_environment: str, _topic: str) -> NoReturn:
    raise DatabaseAway("the ledger")


def test_processes_that_look_at_one_queue_side_by_side_look_no_more_often(
    clock: ManualClock, ledger: SqlLedger
) -> None:
    queue = Queue()
    both = [Watch(queue, clock, ledger) for _ in range(2)]
    looks: list[int] = []
    look = queue.look
    queue.look = lambda offset: looks.append(offset) or look(offset)  # type: ignore[method-assign,func-returns-value]
    end = clock.monotonic_seconds() + 10 * LOOK_SECONDS
    while clock.monotonic_seconds() < end:
        queue.grow(1)
        for one in both:
            one.position(len(queue.records))
        clock.advance(ROUND_SECONDS)
    assert len(looks) <= 2 * 2 * 11


def test_a_copy_at_the_offset_of_the_last_seen_record_proves_before_the_next_look_that_it_was_given_again(
    clock: ManualClock,
) -> None:
    watch = Watch(Queue(), clock)
    (*_, old, last) = watch.queue.grow(10)
    watch.position(10)
    watch.queue.lose_tail(3)
    new = watch.queue.grow(5)
    clock.advance(ROUND_SECONDS)
    assert [watch.passed(one, at=10) for one in new] == [None, None, None, False, False]
    assert [watch.passed(one, at=10) for one in (old, last)] == [True, True]


@pytest.mark.parametrize("is_written", [False, True], ids=["before the accident", "after it"])
def test_the_last_record_that_a_process_has_seen_is_compared_whatever_another_one_has_seen(
    clock: ManualClock, ledger: SqlLedger, is_written: bool
) -> None:
    """The other one looked earlier, and writes a later end than this one has seen."""
    queue = Queue()
    queue.grow(10)
    ours = Watch(queue, clock, ledger)
    ours.position(10)
    clock.advance(LOOK_SECONDS / 2)
    queue.grow(2)
    other = Watch(queue, clock, ledger)
    other.position(12)
    clock.advance(LOOK_SECONDS / 2 - 4)
    queue.grow(1)
    ours.position(13)  # it writes, and not so soon again
    clock.advance(4)
    queue.grow(7)
    ours.position(20)  # it looks
    if not is_written:
        clock.advance(2)
        queue.grow(1)
        other.position(21)
        clock.advance(4)
        ours.position(21)
    queue.lose_tail(len(queue.records) - 15)
    new = queue.grow(20)
    if is_written:
        clock.advance(LOOK_SECONDS / 2 + 1)
        other.position(35)  # it looks, and sees the record before the lost tail
    clock.advance(LOOK_SECONDS)
    assert ours.passed(new[2], at=35) is None


@pytest.mark.parametrize(("lost", "is_noticed"), [(10, False), (11, True)])
def test_between_two_looks_a_tail_that_reaches_below_the_last_seen_record_is_noticed_though_it_has_grown_again(
    clock: ManualClock, lost: int, is_noticed: bool
) -> None:
    """The documented limit: what lies wholly behind that record is not, where all of its offsets were given again."""
    queue = Queue()
    queue.grow(10)
    watch = Watch(queue, clock)
    watch.position(10)
    queue.grow(10)
    queue.lose_tail(lost)
    new = queue.grow(30)
    clock.advance(LOOK_SECONDS)
    assert watch.passed(new[5], at=20) is (None if is_noticed else True)
