"""Acts of persons beside acts of others, at any statement of either: one of them is told, and nothing is undone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from checkback_consumers.errors import TransientError
from checkback_consumers.handler import transactional_handler
from checkback_consumers.inbox import InboxAnswer
from checkback_consumers.message import HandedOverMessage
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import CandidateState, Ending, HoldKind, JobKind, JobState, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.policy.ports.ledger import Repair, RepairChange
from reconciler.sql import schema
from reconciler.sql.engines import open_engine
from reconciler.sql.incomplete_rows import IncompleteRow, IncompleteRows
from reconciler.sql.tables import hold, inbox, job
from reconciler.telling.ports.jobs import ClaimedJob, WantedJob
from tests.contract.ledger.rows import entry, key, shard, subscription
from tests.integration.ledger.test_closing_races import (
    ENVIRONMENT,
    STATEMENTS,
    Side,
    at_each_statement,
    either_is_first,
    given_up,
    interleaved,
    repairs_of,
    sides,
)
from tests.unit.consumers.messages import business, effect_count, effects, message

__all__ = ["sides"]

pytestmark = pytest.mark.pooled("nightly")
BILLING = Subscription(environment=ENVIRONMENT, topic="ORDERS", group="billing")


def both(sides: tuple[Side, Side], first: object, second: object, *, at: int, is_outer: bool) -> tuple[object, object]:
    """What each of two acts answered; `first` is the outer one if `is_outer`."""
    one, other = sides
    if is_outer:
        result: tuple[object, object] = interleaved(one, first, other, second, at=at)  # type: ignore[arg-type]
        return result
    answered, told = interleaved(other, second, one, first, at=at)  # type: ignore[arg-type]
    return told, answered


@either_is_first
@pytest.mark.parametrize("reason", ["another migration", "migration"])
def test_a_topic_that_a_second_person_holds_is_released_with_the_hold_of_the_first(
    sides: tuple[Side, Side], is_outer: bool, reason: str
) -> None:
    """Ben lifts what he saw, Anna's hold. Carl, who holds the topic meanwhile, is told that it is held: it is."""
    for at in range(1, STATEMENTS + 1):
        ledger = sides[0].ledger
        with ledger.database.writing() as connection:
            connection.execute(sa.delete(hold))
        assert ledger.holds.place(ENVIRONMENT, "ORDERS", HoldKind.HOLD, by="anna", reason="migration")
        (seen,) = ledger.reports.holds(ENVIRONMENT)

        lifted, placed = both(
            sides,
            lambda seen=seen: sides[0].ledger.holds.lift_seen(ENVIRONMENT, seen),
            lambda: sides[1].ledger.holds.place(ENVIRONMENT, "ORDERS", HoldKind.HOLD, by="carl", reason=reason),
            at=at,
            is_outer=is_outer,
        )
        assert ledger.holds.active(ENVIRONMENT) == {"ORDERS": [HoldKind.HOLD]}
        assert bool(lifted) is placed, "what Ben saw was lifted before Carl's hold, or not at all"
        (left,) = ledger.reports.holds(ENVIRONMENT)
        assert "carl" in f"{left.by} {left.reason}"


@either_is_first
def test_a_job_that_is_cancelled_while_a_process_takes_it_goes_on_untold(
    sides: tuple[Side, Side], is_outer: bool
) -> None:
    for at in range(1, STATEMENTS + 1):
        ledger = sides[0].ledger
        with ledger.database.writing() as connection:
            connection.execute(sa.delete(job))
        wanted = WantedJob(job_id=f"{at:032x}", kind=JobKind.REPAIR, request={}, by="anna")
        ledger.jobs.place(ENVIRONMENT, wanted)

        def claim() -> ClaimedJob | None:
            return sides[1].ledger.jobs.claim(ENVIRONMENT, token="run", lease_seconds=60)

        _, claimed = both(
            sides,
            lambda wanted=wanted: sides[0].ledger.jobs.cancel(ENVIRONMENT, wanted.job_id, by="ben"),
            claim,
            at=at,
            is_outer=is_outer,
        )
        found = ledger.jobs.find(ENVIRONMENT, wanted.job_id)
        assert found is not None
        assert found.cancelled_by == "ben"
        assert found.state is (JobState.CANCELLED if claimed is None else JobState.RUNNING)


@either_is_first
def test_a_repair_that_ended_by_itself_is_begun_again_by_hand(sides: tuple[Side, Side], is_outer: bool) -> None:
    """The effect came later, and a round ends the failed repair; of the two one has it."""
    for at, ledger in at_each_statement(sides):
        given_up(ledger, billing=RepairState.FAILED)
        failed = repairs_of(ledger)["*"]

        def end(failed: Repair = failed) -> bool:
            return sides[1].ledger.repairs.dismiss(failed, answer="the effect came later")

        reopened, ended = both(
            sides,
            lambda failed=failed: sides[0].ledger.repairs.reopen(failed, rung=Rung.END),
            end,
            at=at,
            is_outer=is_outer,
        )
        assert reopened is not ended
        assert repairs_of(ledger)["*"].state is (RepairState.OPEN if reopened else RepairState.DONE)


@either_is_first
def test_two_persons_begin_one_repair_again_and_it_is_sent_twice(sides: tuple[Side, Side], is_outer: bool) -> None:
    for at, ledger in at_each_statement(sides):
        given_up(ledger, billing=RepairState.FAILED)
        failed = repairs_of(ledger)["*"]

        def send(side: Side, failed: Repair = failed) -> bool:
            repairs = side.ledger.repairs
            repairs.reopen(failed, rung=Rung.END)
            claimed = repairs.claim(failed, token=f"of {id(side)}", lease_seconds=60)
            sending = RepairChange(state=RepairState.SENDING, rung=Rung.END, counts_as_attempt=True)
            return claimed is not None and repairs.change(claimed, sending, token=f"of {id(side)}") is not None

        answers = both(sides, lambda: send(sides[0]), lambda: send(sides[1]), at=at, is_outer=is_outer)
        assert sorted(map(bool, answers)) == [False, True]


@either_is_first
def test_a_key_that_is_opened_again_forgets_the_effect_that_came_meanwhile(
    sides: tuple[Side, Side], is_outer: bool
) -> None:
    for at, ledger in at_each_statement(sides):
        given_up(ledger, billing=RepairState.FAILED)
        row = ledger.candidates.of_keys(subscription(ENVIRONMENT, group="shipping"), [key(1)])[key(1)]

        def consume() -> None:
            consumed = entry(1, Verdict.CONSUMED, CandidateState.SETTLED)
            sides[1].ledger.candidates.record(shard(ENVIRONMENT, group="shipping"), [consumed])

        both(sides, lambda row=row: sides[0].ledger.candidates.reopen(row), consume, at=at, is_outer=is_outer)
        found = ledger.candidates.of_keys(row.subscription, [key(1)])[key(1)]
        assert (found.state, found.verdict) == (CandidateState.SETTLED, Verdict.CONSUMED)


class Books:
    """An inbox of billing, whose handler commits halfway once, and then does not."""

    def __init__(self, url: str) -> None:
        one, other = (Side(open_engine(url, lock_timeout_seconds=60)) for _ in range(2))
        self.sides = one, other
        #: What both persons have seen.
        self.seen: list[IncompleteRow] = []
        schema.upgrade(url, "inbox")
        business.create_all(self.sides[0].engine)

    def halfway(self) -> HandedOverMessage:
        """A message with half an effect; nothing else is left of messages before it."""
        with self.sides[0].engine.begin() as connection:
            connection.execute(sa.delete(inbox))
            connection.execute(sa.delete(effects))
        received = message()

        def handler(_: object, connection: sa.Connection) -> None:
            connection.exec_driver_sql("COMMIT")
            raise ValueError("the rest is missing")

        with pytest.raises(ValueError, match="the rest"):
            transactional_handler(self.sides[0].engine, group="billing")(handler).apply(received)
        return received

    def end(self, side: Side, received: HandedOverMessage, ending: Ending) -> bool:
        """One person's act, on what was seen."""
        return received.unique_key in IncompleteRows(side.engine, BILLING).end(self.seen, ending)

    def look(self, received: HandedOverMessage) -> None:
        """Before the race."""
        self.seen = IncompleteRows(self.sides[0].engine, BILLING).of_keys([received.unique_key])
        assert len(self.seen) == 1

    def deliver(self, received: HandedOverMessage) -> InboxAnswer | None:
        """The redelivery, to a handler that is mended; None: it was refused."""

        def handler(one: HandedOverMessage, connection: sa.Connection) -> None:
            connection.execute(effects.insert().values(unique_key=one.unique_key, amount=1))

        try:
            return transactional_handler(self.sides[1].engine, group="billing")(handler).apply(received)
        except TransientError:  # IncompleteEffect, or the row that it met is gone again: it comes again
            return None

    def mark(self, received: HandedOverMessage) -> list[str | None]:
        """Of the rows of the key."""
        of_key = sa.select(inbox.c.incomplete).where(inbox.c.unique_key == received.unique_key)
        with self.sides[0].engine.connect() as connection:
            return list(connection.scalars(of_key))


@pytest.fixture
def books(database_url: str) -> Iterator[Books]:
    made = Books(database_url)
    yield made
    for side in made.sides:
        side.engine.dispose()


@either_is_first
def test_a_row_that_one_person_accepts_is_deleted_by_another(books: Books, is_outer: bool) -> None:
    for at in range(1, STATEMENTS + 1):
        received = books.halfway()
        books.look(received)
        accepted, deleted = both(
            books.sides,
            lambda received=received: books.end(books.sides[0], received, Ending.ACCEPT),
            lambda received=received: books.end(books.sides[1], received, Ending.DELETE),
            at=at,
            is_outer=is_outer,
        )
        assert accepted is not deleted
        assert books.mark(received) == ([None] if accepted else [])


@either_is_first
@pytest.mark.parametrize("ending", list(Ending))
def test_a_delivery_while_a_row_is_ended_has_its_effect_twice_or_never(
    books: Books, ending: Ending, is_outer: bool
) -> None:
    for at in range(1, STATEMENTS + 1):
        received = books.halfway()
        books.look(received)
        ended, answer = both(
            books.sides,
            lambda received=received: books.end(books.sides[0], received, ending),
            lambda received=received: books.deliver(received),
            at=at,
            is_outer=is_outer,
        )
        assert ended
        if ending is Ending.ACCEPT:
            assert answer in (None, InboxAnswer.DUPLICATE)
            assert (books.mark(received), effect_count(books.sides[0].engine)) == ([None], 0)
        else:
            assert answer in (None, InboxAnswer.NEW)
            if answer is None:
                assert books.deliver(received) is InboxAnswer.NEW
            assert (books.mark(received), effect_count(books.sides[0].engine)) == ([None], 1)
