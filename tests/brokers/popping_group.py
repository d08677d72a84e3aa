"""A thin thread whose group pops on a real broker, whatever it pops with."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass

import pytest

from reconciler.contract.verdicts import Verdict
from reconciler.evidence.repairs import RemotingBrokerRepairs
from reconciler.policy.evidence import ConsumeMode
from reconciler.words import said
from tests.integration.policy.test_thin_thread import GROUP, Thread
from tests.services.rocketmq import RealBroker, marks
from tests.unit.policy.world import TOPIC, World

#: POP needs the timer wheel. What waits for acknowledgement is written down, and revived, sooner than as delivered.
QUICK = {
    "timerWheelEnable": "true",
    "popCkStayBufferTime": "2000",
    "popCkStayBufferTimeOut": "1000",
    "reviveInterval": "500",
}
#: How a broker may be set: names of the retry topics of POP, and where its check points are.
SETTINGS = {
    "as-delivered": {},
    "v2": (_V2 := {"enableRetryTopicV2": "true"}),
    "rocksdb": (_ROCKSDB := {"popConsumerKVServiceInit": "true", "popConsumerKVServiceEnable": "true"}),
    "rocksdb-v2": _ROCKSDB | _V2,
}
#: How long messages are invisible, seconds.
LONG, SHORT = 300.0, 3.0


#: Releases that the nightly run tries; BROKER runs them at once.
BY_NIGHT = ("5.4.0", "5.5.0")


def marks_of(version: str) -> list[pytest.MarkDecorator]:
    """Marks of a test on this release."""
    is_nightly = version in BY_NIGHT and not every_setting()
    return [*marks(version), *([pytest.mark.nightly] if is_nightly else [])]


def every_setting() -> list[tuple[str, str]]:
    """(Version, setting) of the versions that BROKER=5.1.4,5.5.0 chooses; empty if it chooses none."""
    chosen = [name for name in os.environ.get("BROKER", "").split(",") if name.startswith("5.")]
    return [(name, how) for name in chosen for how in SETTINGS if how == "as-delivered" or name >= "5.3"]


@dataclass(kw_only=True)
class PoppingGroup:
    """What its messages come to, as the reconciler judges them. A verdict that it was delivered fails the test."""

    thread: Thread
    broker: RealBroker
    #: One of SETTINGS.
    how: str

    @property
    def of_the_last(self) -> Verdict:
        """On the last message that was handed out, while it waits in its retry topic.

        With check points in RocksDB the offset passes a message when the group asks for the next ones
        (PopConsumerService.handleGetMessageResult).
        """
        return Verdict.LAGGING if self.how.startswith("rocksdb") else Verdict.RETRYING

    def deliver(self) -> str:
        """A message that was committed."""
        thread, key = self.thread, self.thread.lose_end()
        row = thread.outbox.rows[key].seen.message
        answer = RemotingBrokerRepairs(thread.instance, english=said).end_transaction(
            thread.half(key), expected=row, commit=True
        )()()
        assert answer.outcome == "DONE", answer
        return key

    def take_effect(self, key: str) -> None:
        """In the inbox."""
        thread = self.thread
        thread.inbox.rows[GROUP, key] = World.inbox_row_of(GROUP, key, thread.instance.clock.now_ms())

    def verdict(self, key: str) -> Verdict:
        subscription = self.thread.plan.subscriptions[0].subscription
        self.thread.rounds.run(subscription)
        verdict = self.thread.rounds.keys_by_hand.judge_one(subscription, key, dry_run=True).entry.verdict
        if verdict is Verdict.DELIVERED_NOT_APPLIED:
            pytest.fail(f"{key} was called delivered")  # an AssertionError is waited out by eventually()
        return verdict

    def consume_mode(self) -> ConsumeMode:
        return self.thread.evidence.consume_mode(self.thread.plan.subscriptions[0].subscription)

    def places(self, topics: Collection[str]) -> list[tuple[int, int]]:
        """The group's offset, and where the next message will lie, in each queue of these topics."""
        positions = self.thread.evidence.positions(self.thread.plan.subscriptions[0].subscription) or ()
        return [(place.consumer_offset or 0, place.max_offset) for place in positions if place.topic in topics]

    def assert_nothing_was_sent_but_for(self, lost: str, *, of: Collection[str]) -> None:
        """One copy of each, and a repair of the lost one only."""
        evidence = self.thread.evidence
        horizon = evidence.horizon(TOPIC)
        copies = {key: evidence.committed_copies(TOPIC, key, horizon=horizon, not_before_ms=0)().records for key in of}
        assert {key: len(records) for key, records in copies.items()} == dict.fromkeys(of, 1), "sent again"
        assert {key for key in of if self.thread.state(key) is not None} == {lost}
