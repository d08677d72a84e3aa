"""What is told and when: nothing twice without need, nothing never, and no storm."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.contract.tables import NoticeKind
from reconciler.telling.conversations import (
    COUNTED_TROUBLES_MAX,
    LATE_COMMIT_MS,
    Pace,
    after_past,
    after_standing,
    new_conversation,
    oldest_untold_ms,
    once_told,
)
from reconciler.telling.ports.notices import Conversation, Notice, PastTroubles, Place, StandingTrouble
from tests.examples import examples

PACE = Pace(interval_seconds=900, reminder_seconds=4 * 3_600, gather_seconds=5)
LOSSES: Place = (NoticeKind.LOSS_PROVED, "ORDERS", "billing")
BREAKER: Place = (NoticeKind.BREAKER_OPEN, "ORDERS", None)
QUARANTINE: Place = (NoticeKind.QUARANTINED, "ORDERS", "billing")
BEGIN_MS = 1_764_000_000_000
SECOND = 1_000
MINUTE = 60 * SECOND


@dataclass
class Loss:
    """One row: dated when its transaction writes it, visible once that is committed."""

    at_ms: int
    visible_ms: int


@dataclass
class Receiver:
    """One conversation, the ledger that it tells of, and a receiver that may fail."""

    place: Place
    now_ms: int = BEGIN_MS
    losses: list[Loss] = field(default_factory=list)
    open_losses: int = 0
    standing: StandingTrouble | None = None
    #: Surely sent, with the time; and those that arrived before the process died.
    sent: list[tuple[int, Notice]] = field(default_factory=list)
    arrived: list[Notice] = field(default_factory=list)
    conversation: Conversation = field(init=False)
    ids: Iterator[str] = field(default_factory=lambda: (f"id-{n}" for n in itertools.count(1)))

    def __post_init__(self) -> None:
        self.conversation = new_conversation("prod", "on-call", self.place, born_ms=self.now_ms - 1)

    def lose(self, count: int = 1, *, visible_after_ms: int = 0) -> None:
        self.losses += [Loss(self.now_ms, self.now_ms + visible_after_ms) for _ in range(count)]
        self.open_losses += count

    def pass_time(self, milliseconds: int) -> None:
        self.now_ms += milliseconds

    def look(self) -> None:
        """As a process does at an interval."""
        about = {"pace": PACE, "now_ms": self.now_ms, "new_id": lambda: next(self.ids)}
        if self.place is LOSSES:
            after = after_past(self.conversation, self._past(), **about)  # type: ignore[arg-type]
        else:
            after = after_standing(self.conversation, self.standing, **about)  # type: ignore[arg-type]
        self.conversation = after or self.conversation

    def _past(self) -> PastTroubles:
        seen = [loss.at_ms for loss in self.losses if loss.visible_ms <= self.now_ms]
        recent_ms = self.now_ms - LATE_COMMIT_MS
        found = [at_ms for at_ms in seen if at_ms > self.conversation.mark_ms]
        return PastTroubles(
            count=len(found),
            recent_ms=recent_ms,
            recent_count=sum(at_ms > recent_ms for at_ms in seen),
            since_ms=min(found, default=0),
            until_ms=max(found, default=0),
            is_open=self.open_losses > 0,
            detail="KEY",
        )

    def send(self, *, works: bool = True, dies: bool = False) -> Notice | None:
        """One try, if a message is due. `dies`: the process, after the message has arrived."""
        waiting = self.conversation.waiting
        if waiting is None or self.conversation.next_at_ms > self.now_ms:
            return None
        self.conversation = replace(self.conversation, attempts=self.conversation.attempts + 1)
        if dies:
            self.arrived.append(waiting.notice)
        elif works:
            self.sent.append((self.now_ms, waiting.notice))
            self.conversation = once_told(self.conversation, now_ms=self.now_ms)
        return waiting.notice

    def look_and_send(self, *, works: bool = True) -> Notice | None:
        self.look()
        return self.send(works=works)

    def after(self, milliseconds: int) -> Notice | None:
        """What is told by then, looked at as often as needed: now, when it is due, and then."""
        until = self.now_ms + milliseconds
        told = self.look_and_send()
        if told is None and self.conversation.waiting is not None and self.conversation.next_at_ms <= until:
            self.now_ms = max(self.now_ms, self.conversation.next_at_ms)
            told = self.look_and_send()
        self.now_ms = until
        return told or self.look_and_send()


def told(notice: Notice | None) -> Notice:
    assert notice is not None
    return notice


def test_losses_that_come_together_are_one_message_soon_after_the_first() -> None:
    receiver = Receiver(LOSSES)
    receiver.lose(3)
    assert receiver.look_and_send() is None
    receiver.pass_time(4 * SECOND)
    receiver.lose(2)
    receiver.look()
    receiver.pass_time(SECOND)
    notice = told(receiver.look_and_send())
    assert (notice.count, notice.is_over, notice.since_ms) == (5, False, BEGIN_MS)


def test_a_loss_that_is_repaired_between_two_looks_is_told_all_the_same() -> None:
    receiver = Receiver(LOSSES)
    receiver.lose()
    receiver.open_losses = 0
    notice = told(receiver.after(5 * SECOND))
    assert (notice.count, notice.is_over) == (1, True)
    assert receiver.after(24 * 60 * MINUTE) is None


def test_what_comes_within_the_interval_waits_for_its_end_and_is_counted() -> None:
    receiver = Receiver(LOSSES)
    receiver.lose()
    told(receiver.after(5 * SECOND))
    for _ in range(14):
        receiver.pass_time(MINUTE)
        receiver.lose(10)
        assert receiver.look_and_send() is None
    receiver.pass_time(MINUTE)
    assert told(receiver.look_and_send()).count == 140


def test_an_end_is_told_at_once_and_only_once() -> None:
    receiver = Receiver(LOSSES)
    receiver.lose(2)
    told(receiver.after(5 * SECOND))
    receiver.pass_time(SECOND)
    receiver.open_losses = 0
    notice = told(receiver.look_and_send())
    assert (notice.is_over, notice.count, notice.since_ms, notice.until_ms) == (True, 0, BEGIN_MS, BEGIN_MS)
    assert receiver.after(10 * 60 * MINUTE) is None


def test_a_trouble_that_goes_on_is_told_again_after_hours_and_not_before() -> None:
    receiver = Receiver(BREAKER)
    receiver.standing = StandingTrouble(kind=BREAKER[0], topic="ORDERS", since_ms=BEGIN_MS, detail="too many")
    told(receiver.after(5 * SECOND))
    assert receiver.after(239 * MINUTE) is None
    assert told(receiver.after(2 * MINUTE)).is_over is False


def test_a_breaker_that_flaps_is_told_once_an_interval() -> None:
    receiver = Receiver(BREAKER)
    opened = StandingTrouble(kind=BREAKER[0], topic="ORDERS", since_ms=BEGIN_MS, detail="too many")
    for _ in range(60):  # an hour, open for half of each minute
        receiver.standing = opened
        receiver.after(30 * SECOND)
        receiver.standing = None
        receiver.after(30 * SECOND)
    assert sum(not notice.is_over for _, notice in receiver.sent) <= 5
    assert len(receiver.sent) <= 10


def test_a_breaker_that_closed_before_its_message_left_is_told_as_over() -> None:
    receiver = Receiver(BREAKER)
    receiver.standing = StandingTrouble(kind=BREAKER[0], topic="ORDERS", since_ms=BEGIN_MS, detail="too many")
    receiver.look()
    receiver.pass_time(3 * SECOND)
    receiver.standing = None
    receiver.look()
    receiver.pass_time(2 * SECOND)
    notice = told(receiver.look_and_send())
    until_ms = BEGIN_MS + 3 * SECOND
    assert (notice.is_over, notice.since_ms, notice.until_ms, notice.detail) == (True, BEGIN_MS, until_ms, "too many")


def test_an_end_whose_trouble_is_back_before_its_message_left_is_not_told() -> None:
    receiver = Receiver(BREAKER)
    opened = StandingTrouble(kind=BREAKER[0], topic="ORDERS", since_ms=BEGIN_MS, detail="too many")
    receiver.standing = opened
    told(receiver.after(5 * SECOND))
    receiver.standing = None
    receiver.look()
    receiver.standing = opened
    assert receiver.after(200 * MINUTE) is None


def test_an_end_that_may_have_arrived_is_followed_by_the_trouble_that_is_back() -> None:
    receiver = Receiver(BREAKER)
    opened = StandingTrouble(kind=BREAKER[0], topic="ORDERS", since_ms=BEGIN_MS, detail="too many")
    receiver.standing = opened
    told(receiver.after(5 * SECOND))
    receiver.standing = None
    assert told(receiver.look_and_send(works=False)).is_over
    receiver.standing = opened
    assert receiver.after(10 * MINUTE) is None
    assert not told(receiver.after(6 * MINUTE)).is_over


def test_a_violation_whose_audit_was_removed_before_its_message_left_is_told() -> None:
    receiver = Receiver((NoticeKind.AUDIT_VIOLATION, None, None))
    receiver.standing = StandingTrouble(
        kind=NoticeKind.AUDIT_VIOLATION, count=1, since_ms=BEGIN_MS, newest_ms=BEGIN_MS, detail="2026-11-24"
    )
    receiver.look()
    receiver.standing = None
    assert told(receiver.after(5 * SECOND)).count == 1


def test_a_message_that_another_process_has_sent_changes_nothing_once_more() -> None:
    quiet = Receiver(BREAKER).conversation
    assert once_told(quiet, now_ms=BEGIN_MS) == quiet


def test_another_quarantined_key_is_news_although_one_was_dismissed() -> None:
    receiver = Receiver(QUARANTINE)
    receiver.standing = StandingTrouble(
        kind=QUARANTINE[0], topic="ORDERS", group="billing", count=2, since_ms=BEGIN_MS, newest_ms=BEGIN_MS
    )
    assert told(receiver.after(5 * SECOND)).count == 2
    receiver.standing = replace(receiver.standing, newest_ms=BEGIN_MS + 6 * SECOND)
    assert told(receiver.after(16 * MINUTE)).count == 2
    assert receiver.after(16 * MINUTE) is None


def test_after_an_hour_without_the_receiver_one_message_tells_what_is_there_now() -> None:
    receiver = Receiver(LOSSES)
    receiver.lose(2)
    for _ in range(720):
        receiver.pass_time(5 * SECOND)
        receiver.lose()
        receiver.look_and_send(works=False)
    receiver.open_losses = 0
    notice = told(receiver.look_and_send())
    assert (notice.count, notice.is_over, notice.since_ms) == (722, True, BEGIN_MS)
    assert receiver.after(60 * MINUTE) is None


def test_a_message_grows_late_although_it_says_more_at_each_look() -> None:
    receiver = Receiver(LOSSES)
    receiver.lose()
    receiver.look()
    assert oldest_untold_ms([receiver.conversation], now_ms=receiver.now_ms) is None
    due_ms = BEGIN_MS + 5 * SECOND
    for _ in range(60):
        receiver.pass_time(5 * SECOND)
        receiver.lose()
        receiver.look_and_send(works=False)
        assert oldest_untold_ms([receiver.conversation], now_ms=receiver.now_ms) == due_ms
    told(receiver.look_and_send())
    assert oldest_untold_ms([receiver.conversation], now_ms=receiver.now_ms) is None


def test_a_message_that_may_have_arrived_keeps_its_id_while_it_says_the_same() -> None:
    receiver = Receiver(LOSSES)
    receiver.lose()
    receiver.look()
    receiver.pass_time(5 * SECOND)
    receiver.send(dies=True)
    receiver.pass_time(MINUTE)
    again = told(receiver.look_and_send())
    assert again == receiver.arrived[0]


def test_a_message_that_may_have_arrived_gets_a_new_id_once_it_says_more() -> None:
    receiver = Receiver(LOSSES)
    receiver.lose()
    receiver.look()
    receiver.pass_time(5 * SECOND)
    receiver.send(dies=True)
    receiver.lose()
    again = told(receiver.look_and_send())
    assert (receiver.arrived[0].count, again.count) == (1, 2)
    assert again.notice_id != receiver.arrived[0].notice_id


@pytest.mark.parametrize("minutes", [1, 20])
def test_rows_that_are_deleted_after_they_were_told_hide_no_new_loss(minutes: int) -> None:
    receiver = Receiver(LOSSES)
    receiver.lose(50)
    receiver.open_losses = 0
    assert told(receiver.after(5 * SECOND)).count == 50
    receiver.pass_time(minutes * MINUTE)
    assert receiver.look_and_send() is None
    receiver.losses.clear()
    assert receiver.after(20 * MINUTE) is None
    receiver.lose()
    receiver.open_losses = 0
    assert told(receiver.after(5 * SECOND)).count == 1


def test_rows_that_are_deleted_while_others_of_their_time_stay_hide_no_new_loss() -> None:
    receiver = Receiver(LOSSES)
    receiver.lose(3)
    receiver.open_losses = 0
    assert told(receiver.after(5 * SECOND)).count == 3
    del receiver.losses[0]
    assert receiver.look_and_send() is None
    receiver.lose()
    receiver.open_losses = 0
    assert told(receiver.after(16 * MINUTE)).count == 1


def test_a_key_that_waits_is_news_where_as_many_were_dismissed_before() -> None:
    receiver = Receiver(QUARANTINE)
    receiver.standing = StandingTrouble(
        kind=QUARANTINE[0], topic="ORDERS", group="billing", count=5, since_ms=BEGIN_MS, newest_ms=BEGIN_MS
    )
    assert told(receiver.after(5 * SECOND)).count == 5
    receiver.standing = replace(receiver.standing, count=2)
    assert receiver.after(16 * MINUTE) is None
    receiver.standing = replace(receiver.standing, count=3)  # a key that was seen before those that were told
    assert told(receiver.after(5 * SECOND)).count == 3


def test_a_transaction_that_becomes_visible_late_is_counted() -> None:
    receiver = Receiver(LOSSES)
    receiver.lose(visible_after_ms=2 * MINUTE)  # dated before the next ones, and seen after their message
    receiver.pass_time(SECOND)
    receiver.lose(3)
    assert told(receiver.after(5 * SECOND)).count == 3
    receiver.pass_time(20 * MINUTE)
    assert told(receiver.after(5 * SECOND)).count == 1
    assert receiver.after(16 * MINUTE) is None


def test_more_losses_than_are_counted_are_told_and_do_not_confuse_the_next_count() -> None:
    receiver = Receiver(LOSSES)
    receiver.losses = [Loss(BEGIN_MS + 1, BEGIN_MS + 1)] * (COUNTED_TROUBLES_MAX + 1)
    receiver.open_losses = 1
    receiver.pass_time(SECOND)
    assert told(receiver.after(5 * SECOND)).count == COUNTED_TROUBLES_MAX + 1
    receiver.pass_time(20 * MINUTE)
    receiver.lose(7)
    assert told(receiver.after(5 * SECOND)).count == 7


@pytest.mark.parametrize("count", [1, 3])
def test_a_violation_of_an_audit_is_told_once_and_never_ends(count: int) -> None:
    receiver = Receiver((NoticeKind.AUDIT_VIOLATION, None, None))
    receiver.standing = StandingTrouble(
        kind=NoticeKind.AUDIT_VIOLATION, count=count, since_ms=BEGIN_MS, newest_ms=BEGIN_MS, detail="2026-11-24"
    )
    notice = told(receiver.after(5 * SECOND))
    assert (notice.count, notice.is_over) == (count, False)
    assert receiver.after(48 * 60 * MINUTE) is None
    receiver.standing = replace(receiver.standing, count=count + 1, newest_ms=BEGIN_MS + 1)
    assert told(receiver.after(16 * MINUTE)).count == count + 1


@pytest.mark.parametrize("left", [1, 0])
def test_violations_that_were_mended_hide_as_many_new_ones(left: int) -> None:
    receiver = Receiver((NoticeKind.AUDIT_VIOLATION, None, None))
    days = StandingTrouble(kind=NoticeKind.AUDIT_VIOLATION, count=2, since_ms=BEGIN_MS, newest_ms=BEGIN_MS)
    receiver.standing = days
    assert told(receiver.after(5 * SECOND)).count == 2
    receiver.standing = replace(days, count=left) if left else None
    assert receiver.after(16 * MINUTE) is None
    receiver.standing = days
    assert told(receiver.after(5 * SECOND)).count == 2
    assert receiver.after(48 * 60 * MINUTE) is None


def test_a_witness_that_is_away_for_a_moment_is_no_alarm_and_one_that_stays_away_is() -> None:
    place: Place = (NoticeKind.ACCOUNTED_UNTIL_STALE, "ORDERS", "billing")
    receiver = Receiver(place)
    stale = StandingTrouble(kind=place[0], topic="ORDERS", group="billing", since_ms=BEGIN_MS)
    receiver.standing = stale
    assert receiver.after(60 * SECOND) is None
    receiver.standing = None
    assert receiver.after(60 * MINUTE) is None
    receiver.standing = stale
    assert told(receiver.after(121 * SECOND)).is_over is False
    receiver.standing = None
    assert told(receiver.after(SECOND)).is_over


def test_the_end_is_told_of_a_witness_whose_alarm_may_have_arrived() -> None:
    place: Place = (NoticeKind.ACCOUNTED_UNTIL_STALE, "ORDERS", "billing")
    receiver = Receiver(place)
    receiver.standing = StandingTrouble(kind=place[0], topic="ORDERS", group="billing", since_ms=BEGIN_MS)
    receiver.look()
    receiver.pass_time(121 * SECOND)
    receiver.send(dies=True)
    assert [notice.is_over for notice in receiver.arrived] == [False]
    receiver.standing = None
    assert told(receiver.after(SECOND)).is_over


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("lose"), st.integers(1, 3)),
        st.tuples(st.just("lose late"), st.integers(1, 5 * MINUTE)),
        st.tuples(st.just("settle"), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 20 * MINUTE)),
        st.tuples(st.just("look"), st.just(0)),
        st.tuples(st.just("send"), st.just(0)),
        st.tuples(st.just("fail"), st.just(0)),
        st.tuples(st.just("die"), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=examples(150), deadline=None)
@given(STEPS)
def test_each_loss_is_counted_once_in_what_was_sent_and_no_conversation_talks_too_often(
    steps: list[tuple[str, int]],
) -> None:
    receiver = Receiver(LOSSES)
    for step, number in steps:
        match step:
            case "lose":
                receiver.lose(number)
            case "lose late":
                receiver.lose(visible_after_ms=number)
            case "settle":
                receiver.open_losses = 0
            case "wait":
                receiver.pass_time(number)
            case "look":
                receiver.look()
            case "send":
                receiver.send()
            case "fail":
                receiver.send(works=False)
            case "die":
                receiver.send(dies=True)
    for _ in range(4):  # what is late becomes visible, and the receiver is there again
        receiver.pass_time(15 * MINUTE)
        receiver.look()
        receiver.pass_time(15 * MINUTE)
        receiver.look_and_send()
    assert sum(notice.count for _, notice in receiver.sent) == len(receiver.losses)
    troubles = [at_ms for at_ms, notice in receiver.sent if notice.count and not _ends_what_was_told(receiver, notice)]
    assert all(later - earlier >= 15 * MINUTE for earlier, later in itertools.pairwise(troubles))
    assert len(receiver.sent) <= 2 * len(troubles) + 1 + _reminders(receiver)


def _ends_what_was_told(receiver: Receiver, notice: Notice) -> bool:
    notices = [one for _, one in receiver.sent]
    place = notices.index(notice)
    return notice.is_over and place > 0 and not notices[place - 1].is_over


def _reminders(receiver: Receiver) -> int:
    return sum(notice.count == 0 and not notice.is_over for _, notice in receiver.sent)
