"""What a broker's check-back is answered, at the limits of time and of rounds, and by whom."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from checkback_producers.check_answer import AWAY_SECONDS, CheckAnswer, CheckAnswerer, StandIn
from checkback_producers.check_answer import decide as answer_of
from checkback_producers.ports import Outcome
from reconciler.clock import ManualClock
from reconciler.contract.tables import OutboxState
from reconciler.errors import DatabaseAway, MalformedInput
from reconciler.policy.sweeping import OutboxFact
from tests.unit.producers.world import GROUP, TOPIC, World, checked, new_key


def fact(state: OutboxState) -> OutboxFact:
    return OutboxFact(unique_key=new_key(), topic=TOPIC, tag=None, state=state, created_at_ms=1, announced_at_ms=None)


@pytest.mark.parametrize(
    ("born_before_ms", "check_times", "outcome"),
    [
        (59_999, 14, Outcome.UNKNOWN),
        (60_000, 0, Outcome.ROLLBACK),
        (0, 15, Outcome.ROLLBACK),
        (0, 16, Outcome.ROLLBACK),
    ],
)
def test_a_tombstone_beats_a_local_transaction_that_had_time_left(
    world: World, born_before_ms: int, check_times: int, outcome: Outcome
) -> None:
    answerer = CheckAnswerer(world.outbox(), clock=world.clock)
    key = new_key()
    half = world.checked(key, born_timestamp_ms=world.clock.now_ms() - born_before_ms, check_times=check_times)
    assert answerer.decide(half).outcome is outcome
    assert world.state(key) == (None if outcome is Outcome.UNKNOWN else "ROLLED_BACK")


@pytest.mark.parametrize(
    ("state", "is_own", "outcome", "reason"),
    [
        ("ANNOUNCED", True, Outcome.COMMIT, "the row is ANNOUNCED"),
        ("ANNOUNCED", False, Outcome.COMMIT, "the row is ANNOUNCED"),
        ("ROLLED_BACK", True, Outcome.ROLLBACK, "a tombstone holds the key"),
        ("ROLLED_BACK", False, Outcome.UNKNOWN, "no committed row here, and the half has no mark"),
        (None, False, Outcome.UNKNOWN, "no committed row here, and the half has no mark"),
        (None, True, Outcome.UNKNOWN, "no row yet"),
    ],
)
def test_a_row_says_more_or_less_than_it_proves_about_a_half(
    world: World, state: str | None, is_own: bool, outcome: Outcome, reason: str
) -> None:
    key = new_key()
    if state is not None:
        world.insert_row(key, state=state)
    half = world.checked(key) if is_own else checked(key)
    answer = answer_of(world.outbox(), half, is_final=False)
    assert (answer.outcome, answer.reason) == (outcome, reason)
    assert (None if answer.fact is None else (answer.fact.unique_key, answer.fact.state)) == (
        None if state is None else (key, state)
    )


@dataclass
class OneRow:
    """What a stand-in reads of an outbox: its mark, and one row or an error."""

    row: OutboxFact | Exception | None = None
    mark: str = "another"
    asked: int = field(default=0)

    def find(self, _unique_key: str) -> OutboxFact | None:
        self.asked += 1
        if isinstance(self.row, Exception):
            raise self.row
        return self.row

    def identity(self) -> str:
        return self.mark


def stand_in(*outboxes: OneRow, clock: ManualClock | None = None) -> StandIn:
    known: list[Any] = list(outboxes)
    return StandIn(known, clock=clock or ManualClock())


COMMITTED, TOMBSTONE = fact(OutboxState.NEW), fact(OutboxState.ROLLED_BACK)
AWAY, DAMAGED = DatabaseAway("refused"), MalformedInput("state is no text")


@pytest.mark.parametrize(
    ("outboxes", "wanted"),
    [
        ([], CheckAnswer(outcome=Outcome.UNKNOWN, reason="no database has a row that decides")),
        ([OneRow(), OneRow(COMMITTED)], CheckAnswer(outcome=Outcome.COMMIT, reason="the row is NEW", fact=COMMITTED)),
        (
            [OneRow(AWAY), OneRow(COMMITTED)],
            CheckAnswer(outcome=Outcome.COMMIT, reason="the row is NEW", fact=COMMITTED),
        ),
        ([OneRow(TOMBSTONE)], CheckAnswer(outcome=Outcome.UNKNOWN, reason="no database has a row that decides")),
        (
            [OneRow(TOMBSTONE, mark="own"), OneRow()],
            CheckAnswer(outcome=Outcome.ROLLBACK, reason="a tombstone holds the key", fact=TOMBSTONE),
        ),
        (
            [OneRow(TOMBSTONE, mark="own"), OneRow(AWAY), OneRow(DAMAGED)],
            CheckAnswer(outcome=Outcome.UNKNOWN, reason="refused; state is no text"),
        ),
    ],
)
def test_a_stand_in_rolls_back_what_another_database_of_the_group_has_committed(
    outboxes: list[OneRow], wanted: CheckAnswer
) -> None:
    assert stand_in(*outboxes).decide(checked(new_key(), outbox_mark="own")) == wanted


def test_a_database_that_is_away_is_asked_by_every_check_back_or_never_again() -> None:
    clock = ManualClock()
    away, damaged = OneRow(AWAY), OneRow(DAMAGED)
    both = stand_in(away, damaged, clock=clock)
    asked = []
    for seconds in (0.0, AWAY_SECONDS - 0.001, 0.001):
        clock.advance(seconds)
        assert both.decide(checked(new_key())).reason == "refused; state is no text"
        asked.append((away.asked, damaged.asked))
    assert asked == [(1, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize(("meanwhile", "outcome"), [(COMMITTED, Outcome.COMMIT), (TOMBSTONE, Outcome.ROLLBACK)])
def test_a_row_that_comes_while_its_tombstone_is_written_decides(meanwhile: OutboxFact, outcome: Outcome) -> None:
    class TooLate(OneRow):
        def insert_tombstone(self, _half: object) -> bool:
            self.row = meanwhile
            return False

    outbox: Any = TooLate(mark="own")
    answer = answer_of(outbox, checked(new_key(), outbox_mark="own"), is_final=True)
    assert (answer.outcome, answer.fact) == (outcome, meanwhile)


def test_a_weaker_producer_answers_for_an_outbox_that_it_has_not() -> None:
    half = checked(new_key(), check_times=15)
    assert half.producer_group == GROUP
    assert CheckAnswerer(None, clock=ManualClock()).answer(half) is Outcome.UNKNOWN
