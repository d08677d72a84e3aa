"""The original algorithm does what it was written to do, and loses what it was written to lose, as documented."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from reconciler.contract.subscription import Subscription
from reconciler.demo.classic.round import PULLS_MAX, ClassicBatch, ClassicRound
from reconciler.errors import BrokerUnavailable, DatabaseAway, RedisAway
from reconciler.policy.evidence import Lookup, Presence, StoredMessage, TransactionState
from reconciler.policy.ports.announcing import AnnouncementQueue

SUBSCRIPTION = Subscription(environment="test", topic="ORDERS", group="billing")
QUEUE = AnnouncementQueue(unique_key_topic="KEYS", broker="b", queue_id=0)


class Died(BaseException):
    """The process is gone."""


@dataclass(kw_only=True)
class Original:
    """Everything around the original's job, in memory: Redis, broker, business with dedupe."""

    announced: list[str] = field(default_factory=list)
    offset: int = 0
    half: set[str] = field(default_factory=set)
    commit: set[str] = field(default_factory=set)
    stored: dict[str, StoredMessage] = field(default_factory=dict)
    applied: list[str] = field(default_factory=list)
    attempts: list[str] = field(default_factory=list)
    fails: dict[str, BaseException] = field(default_factory=dict)
    #: Pulls that bring other topics' announcements only.
    foreign: int = 0
    pulls: int = 0

    def round(self) -> ClassicRound:
        return ClassicRound(announcements=self, sets=self, view_message=self.view_message, hand_over=self.hand_over)

    def _may_fail(self, call: str) -> None:
        if call in self.fails:
            raise self.fails.pop(call)

    def pull(self, subscription: Subscription) -> Sequence[ClassicBatch]:
        self.pulls += 1
        if self.foreign:
            self.foreign -= 1
            return [ClassicBatch(queue=QUEUE, unique_keys=(), next_offset=self.offset)]
        keys = tuple(self.announced[self.offset : self.offset + 2])
        return [ClassicBatch(queue=QUEUE, unique_keys=keys, next_offset=self.offset + len(keys))] if keys else []

    def acknowledge(self, subscription: Subscription, batch: ClassicBatch) -> None:
        self._may_fail("acknowledge")
        self.offset = batch.next_offset

    def add_announced(self, subscription: Subscription, unique_keys: Sequence[str]) -> None:
        self._may_fail("add")
        self.half.update(unique_keys)

    def take_difference(self, subscription: Subscription) -> list[str]:
        missing = sorted(self.half - self.commit)
        self.half.clear()
        self.commit.clear()
        self._may_fail("difference")
        return missing

    def view_message(self, topic: str, unique_key: str) -> Lookup[StoredMessage]:
        self._may_fail("view")
        if unique_key not in self.stored:
            return Lookup(presence=Presence.ABSENT)
        return Lookup(presence=Presence.FOUND, records=(self.stored[unique_key],))

    def hand_over(self, subscription: Subscription, message: StoredMessage) -> None:
        self._may_fail("hand-over")
        self.attempts.append(message.unique_key)
        if message.unique_key not in self.applied:
            self.applied.append(message.unique_key)


def message(key: str) -> StoredMessage:
    return StoredMessage(
        unique_key=key,
        topic="ORDERS",
        real_topic="ORDERS",
        broker="b",
        queue_id=0,
        queue_offset=0,
        commit_log_offset=0,
        born_timestamp_ms=0,
        store_timestamp_ms=0,
        transaction_state=TransactionState.PREPARED,
        prepared_transaction_offset=0,
        producer_group="orders",
        check_times=None,
        reconsume_times=0,
        properties={"UNIQ_KEY": key},
        body=b"",
    )


def lost(*keys: str) -> Original:
    """Committed, announced, half at the broker, END lost."""
    return Original(announced=list(keys), stored={key: message(key) for key in keys})


A, B, C = "A" * 32, "B" * 32, "C" * 32


def test_a_lost_message_is_handed_over_and_a_consumed_one_is_not() -> None:
    original = lost(A, B, C)
    original.commit = {B}
    job = original.round()
    assert job.consume_announcements(SUBSCRIPTION) == 3
    report = job.run(SUBSCRIPTION)
    assert (report.missing, report.handed_over, report.not_found, report.refused) == (2, 2, (), ())
    assert original.applied == [A, C]
    assert job.run(SUBSCRIPTION).missing == 0


def test_a_crash_between_exec_and_hand_over_loses_what_was_not_handed_over_yet() -> None:
    original = lost(A, B)
    original.round().consume_announcements(SUBSCRIPTION)
    original.fails["hand-over"] = Died()
    with pytest.raises(Died):
        original.round().run(SUBSCRIPTION)
    after = original.round()
    after.consume_announcements(SUBSCRIPTION)
    assert after.run(SUBSCRIPTION).missing == 0
    assert original.applied == []


def test_a_lost_answer_of_exec_loses_the_whole_difference() -> None:
    original = lost(A, B)
    job = original.round()
    job.consume_announcements(SUBSCRIPTION)
    original.fails["difference"] = RedisAway("the answer was lost")
    with pytest.raises(RedisAway):
        job.run(SUBSCRIPTION)
    assert job.run(SUBSCRIPTION).missing == 0


def test_a_query_that_failed_is_taken_for_not_found_and_the_key_forgotten() -> None:
    original = lost(A, B)
    job = original.round()
    job.consume_announcements(SUBSCRIPTION)
    original.fails["view"] = BrokerUnavailable("restarting")
    report = job.run(SUBSCRIPTION)
    assert (report.handed_over, report.not_found) == (1, (A,))
    assert job.run(SUBSCRIPTION).missing == 0


def test_a_business_that_is_away_loses_the_message_too() -> None:
    original = lost(A)
    job = original.round()
    job.consume_announcements(SUBSCRIPTION)
    original.fails["hand-over"] = DatabaseAway("ledger")
    assert job.run(SUBSCRIPTION).refused == (A,)
    assert job.run(SUBSCRIPTION).missing == 0


def test_a_half_that_the_real_topic_does_not_show_is_not_repaired() -> None:
    original = lost(A)
    original.stored.clear()  # 4.3 and newer: it lies in the half topic
    job = original.round()
    job.consume_announcements(SUBSCRIPTION)
    assert job.run(SUBSCRIPTION).not_found == (A,)


def test_a_round_between_the_two_sadds_hands_over_in_vain() -> None:
    original = lost(A)
    original.commit = {A}
    job = original.round()
    assert job.run(SUBSCRIPTION).missing == 0  # and forgets that A was consumed
    original.applied = [A]
    job.consume_announcements(SUBSCRIPTION)
    assert job.run(SUBSCRIPTION).handed_over == 1
    assert (original.attempts, original.applied) == ([A], [A])


def test_announcements_are_acknowledged_after_their_sadd_only() -> None:
    original = lost(A, B, C)
    original.fails["add"] = RedisAway("away")
    with pytest.raises(RedisAway):
        original.round().consume_announcements(SUBSCRIPTION)
    assert original.offset == 0
    original.fails["acknowledge"] = BrokerUnavailable("away")
    with pytest.raises(BrokerUnavailable):
        original.round().consume_announcements(SUBSCRIPTION)
    assert (original.half, original.offset) == ({A, B}, 0)
    assert original.round().consume_announcements(SUBSCRIPTION) == 3


def test_announcements_of_other_topics_are_passed_and_no_turn_reads_for_ever() -> None:
    original = lost(A)
    original.foreign = 3
    assert original.round().consume_announcements(SUBSCRIPTION) == 1
    endless = lost()
    endless.foreign = 10 * PULLS_MAX
    assert endless.round().consume_announcements(SUBSCRIPTION) == 0
    assert endless.pulls == PULLS_MAX
