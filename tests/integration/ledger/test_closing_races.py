"""A person closes a key while another connection works on it: at any statement of either, one of them is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
import sqlalchemy as sa

from checkback_consumers.hand_over_rows import HandOverRows
from reconciler.contract.kept_facts import REPAIR_DISMISSED
from reconciler.contract.tables import EVERY_GROUP, CandidateState, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.ports.closing import Closing, KeyAsRead
from reconciler.policy.ports.ledger import Repair, RepairChange
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import candidate, ledger_metadata, repair
from reconciler.words import said
from tests.contract.ledger.rows import entry, key, message, shard
from tests.polling import eventually

ENVIRONMENT = "races"
ANSWER = REPAIR_DISMISSED(by="anna", reason="paid by hand")
#: More than either side has, so that the last ones run one after the other.
STATEMENTS = 12
SETTLED, QUARANTINED = CandidateState.SETTLED, CandidateState.QUARANTINED

pytestmark = pytest.mark.pooled("nightly")


@dataclass(slots=True)
class Side:
    """One connection of the two, and what happens at a statement of it."""

    engine: sa.Engine
    #: Statements that it has begun.
    begun: int = 0
    at: dict[int, Callable[[], None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sa.event.listen(self.engine, "before_cursor_execute", self._count)

    def _count(self, *_: Any) -> None:
        self.begun += 1
        act = self.at.pop(self.begun, None)
        if act is not None:
            act()

    @property
    def ledger(self) -> SqlLedger:
        return SqlLedger(self.engine, english=said)


@pytest.fixture
def sides(database_url: str) -> Iterator[tuple[Side, Side]]:
    # Who waits for the other one's lock gets it, however busy the machine is.
    engines = [open_engine(database_url, lock_timeout_seconds=60) for _ in range(2)]
    ledger_metadata.create_all(engines[0])
    yield Side(engines[0]), Side(engines[1])
    for engine in engines:
        engine.dispose()


def interleaved(outer: Side, do: Callable[[], Any], inner: Side, meanwhile: Callable[[], Any], *, at: int) -> Any:
    """Both results. The inner act begins before that statement of the outer one, which goes on when the inner act has
    ended, or has begun a statement, which may wait for a lock of the outer one."""
    outer.begun = inner.begun = 0
    with ThreadPoolExecutor(1) as pool:
        started: list[Future[Any]] = []

        def begin() -> None:
            started.append(pool.submit(meanwhile))
            eventually(lambda: started[0].done() or inner.begun, within_seconds=60)

        outer.at[at] = begin
        result = do()
        if not started:
            outer.at.clear()
            started.append(pool.submit(meanwhile))
        return result, started[0].result(120)


def given_up(ledger: SqlLedger, *, billing: RepairState) -> None:
    """Two groups lack the effect. The repair for every group has failed; billing's hand-over waits, or has failed."""
    for group in ("billing", "shipping"):
        seen = entry(1, Verdict.QUARANTINED, QUARANTINED)
        ledger.candidates.record(shard(ENVIRONMENT, group=group), [seen])
    ledger.repairs.open(ENVIRONMENT, "ORDERS", key(1), rung=Rung.HAND_OVER)
    ledger.hand_overs.insert(ENVIRONMENT, message(1), groups=["billing"])
    for scope, row in repairs_of(ledger).items():
        if scope == EVERY_GROUP or billing is RepairState.FAILED:
            assert ledger.repairs.claim(row, token="t", lease_seconds=60) is not None
            ledger.repairs.change(row, RepairChange(state=RepairState.FAILED, rung=row.rung), token="t")


def repairs_of(ledger: SqlLedger) -> dict[str, Repair]:
    return {row.scope: row for row in ledger.repairs.of_keys(ENVIRONMENT, "ORDERS", [key(1)])[key(1)]}


def verdicts_of(ledger: SqlLedger) -> dict[str, tuple[CandidateState, Verdict]]:
    rows = ledger.reports.life(ENVIRONMENT, key(1)).candidates
    return {row.subscription.group: (row.state, row.verdict) for row in rows}


def closing_of(ledger: SqlLedger, *scopes: str) -> Closing:
    life = ledger.reports.life(ENVIRONMENT, key(1))
    dismissed = entry(1, Verdict.QUARANTINED, SETTLED)
    return Closing(
        environment=ENVIRONMENT,
        topic="ORDERS",
        unique_key=key(1),
        candidates=life.candidates,
        repairs=life.repairs,
        verdicts={row.subscription: dismissed for row in life.candidates},
        scopes=frozenset(scopes),
        answer=ANSWER,
    )


def raced(sides: tuple[Side, Side], at: int, is_outer: bool, closing: Closing, other: Callable[[Side], Any]) -> Any:
    """Whether the key was closed, and what the other act answered."""
    return raced_by(sides, at, is_outer, lambda side: side.ledger.closings.close(closing), other)


def raced_by(
    sides: tuple[Side, Side], at: int, is_outer: bool, act: Callable[[Side], Any], other: Callable[[Side], Any]
) -> Any:
    """What each act answered, in this order."""
    person, process = sides
    if is_outer:
        return interleaved(person, lambda: act(person), process, lambda: other(process), at=at)
    result, told = interleaved(process, lambda: other(process), person, lambda: act(person), at=at)
    return told, result


either_is_first = pytest.mark.parametrize("is_outer", [True, False], ids=["person-first", "process-first"])


def at_each_statement(sides: tuple[Side, Side]) -> Iterator[tuple[int, SqlLedger]]:
    """A ledger without rows, each time."""
    ledger = sides[0].ledger
    for at in range(1, STATEMENTS + 1):
        with ledger.database.writing() as connection:
            for table in (candidate, repair):
                connection.execute(sa.delete(table))
        yield at, ledger


@either_is_first
def test_a_replay_worker_runs_what_a_person_has_dismissed(sides: tuple[Side, Side], is_outer: bool) -> None:
    for at, ledger in at_each_statement(sides):
        given_up(ledger, billing=RepairState.OPEN)
        row = repairs_of(ledger)["billing"]

        def claim(side: Side, row: Repair = row) -> Repair | None:
            queue = HandOverRows(side.engine)
            claimed = queue.claim(row, token="worker", lease_seconds=60)
            sending = RepairChange(state=RepairState.SENDING, rung=row.rung, counts_as_attempt=True)
            return None if claimed is None else queue.change(claimed, sending, token="worker")

        closed, sending = raced(sides, at, is_outer, closing_of(ledger, EVERY_GROUP, "billing"), claim)
        assert closed is (sending is None)
        assert repairs_of(ledger)["billing"].state is (RepairState.DONE if closed else RepairState.SENDING)
        assert {state for state, _ in verdicts_of(ledger).values()} == {SETTLED if closed else QUARANTINED}


@either_is_first
def test_a_repair_by_hand_sends_what_another_person_has_dismissed(sides: tuple[Side, Side], is_outer: bool) -> None:
    for at, ledger in at_each_statement(sides):
        given_up(ledger, billing=RepairState.FAILED)
        failed = repairs_of(ledger)[EVERY_GROUP]

        def send(side: Side, failed: Repair = failed) -> Repair | None:
            repairs = side.ledger.repairs
            if not repairs.reopen(failed, rung=Rung.END):
                return None
            return repairs.claim(failed, token="run", lease_seconds=60)

        closed, claimed = raced(sides, at, is_outer, closing_of(ledger, EVERY_GROUP, "billing"), send)
        assert closed is (claimed is None)
        assert {state for state, _ in verdicts_of(ledger).values()} == {SETTLED if closed else QUARANTINED}


@either_is_first
def test_a_hand_over_is_begun_for_a_group_that_is_dismissed(sides: tuple[Side, Side], is_outer: bool) -> None:
    """Shipping has no row yet that could be locked."""
    for at, ledger in at_each_statement(sides):
        given_up(ledger, billing=RepairState.FAILED)

        def hand_over(side: Side) -> None:
            side.ledger.hand_overs.insert(ENVIRONMENT, message(1), groups=["shipping"])

        closed, _ = raced(sides, at, is_outer, closing_of(ledger, "billing", "shipping"), hand_over)
        assert repairs_of(ledger)["shipping"].state is (RepairState.DONE if closed else RepairState.OPEN)
        assert {state for state, _ in verdicts_of(ledger).values()} == {SETTLED if closed else QUARANTINED}


@either_is_first
def test_the_effect_that_came_meanwhile_is_overwritten_by_a_dismissal(sides: tuple[Side, Side], is_outer: bool) -> None:
    for at, ledger in at_each_statement(sides):
        given_up(ledger, billing=RepairState.FAILED)

        def consume(side: Side) -> None:
            consumed = entry(1, Verdict.CONSUMED, SETTLED)
            side.ledger.candidates.record(shard(ENVIRONMENT, group="shipping"), [consumed])

        closed, _ = raced(sides, at, is_outer, closing_of(ledger, EVERY_GROUP, "billing"), consume)
        verdicts = verdicts_of(ledger)
        assert verdicts["shipping"] == (SETTLED, Verdict.CONSUMED)
        assert verdicts["billing"][0] is (SETTLED if closed else QUARANTINED), "all of what the person saw, or nothing"


@either_is_first
def test_two_persons_dismiss_a_key_and_both_believe_it(sides: tuple[Side, Side], is_outer: bool) -> None:
    for at, ledger in at_each_statement(sides):
        given_up(ledger, billing=RepairState.FAILED)
        mine = closing_of(ledger, EVERY_GROUP, "billing")

        def close(side: Side, mine: Closing = mine) -> bool:
            return side.ledger.closings.close(mine)

        assert sorted(raced(sides, at, is_outer, mine, close)) == [False, True]


def handing_over(ledger: SqlLedger) -> KeyAsRead:
    life = ledger.reports.life(ENVIRONMENT, key(1))
    return KeyAsRead(
        environment=ENVIRONMENT,
        topic="ORDERS",
        unique_key=key(1),
        candidates=life.candidates,
        repairs=life.repairs,
    )


@either_is_first
def test_a_person_hands_over_what_another_one_has_dismissed(sides: tuple[Side, Side], is_outer: bool) -> None:
    """Shipping has no row yet that could be locked, and its dismissal closes the row for every group alone."""
    for at, ledger in at_each_statement(sides):
        given_up(ledger, billing=RepairState.FAILED)
        read = handing_over(ledger)

        def hand_over(side: Side, read: KeyAsRead = read) -> bool:
            return side.ledger.closings.hand_over(read, message(1), group="shipping")

        closed, handed = raced(sides, at, is_outer, closing_of(ledger, EVERY_GROUP, "billing"), hand_over)
        assert closed is not handed
        assert ("shipping" in repairs_of(ledger)) is handed


@either_is_first
def test_two_persons_hand_over_one_message_and_both_believe_it(sides: tuple[Side, Side], is_outer: bool) -> None:
    for at, ledger in at_each_statement(sides):
        given_up(ledger, billing=RepairState.FAILED)
        read = handing_over(ledger)

        def hand_over(side: Side, read: KeyAsRead = read) -> bool:
            return side.ledger.closings.hand_over(read, message(1), group="billing")

        assert sorted(raced_by(sides, at, is_outer, hand_over, hand_over)) == [False, True]
        assert repairs_of(ledger)["billing"].state is RepairState.OPEN


@either_is_first
def test_a_worker_runs_what_a_person_has_taken_back(sides: tuple[Side, Side], is_outer: bool) -> None:
    for at, ledger in at_each_statement(sides):
        given_up(ledger, billing=RepairState.OPEN)
        read, row = handing_over(ledger), repairs_of(ledger)["billing"]

        def cancel(side: Side, read: KeyAsRead = read) -> bool:
            return side.ledger.closings.cancel(read, group="billing")

        def run(side: Side, row: Repair = row) -> bool:
            queue = HandOverRows(side.engine)
            claimed = queue.claim(row, token="worker", lease_seconds=60)
            sending = RepairChange(state=RepairState.SENDING, rung=row.rung, counts_as_attempt=True)
            return claimed is not None and queue.change(claimed, sending, token="worker") is not None

        cancelled, runs = raced_by(sides, at, is_outer, cancel, run)
        assert cancelled is not runs
        assert ("billing" in repairs_of(ledger)) is runs


@either_is_first
def test_a_hand_over_goes_out_beside_a_repair_that_another_person_begins_again(
    sides: tuple[Side, Side], is_outer: bool
) -> None:
    """Of the two one comes first, and the other is told: no copy is on its way that the hand-over does not know of."""
    for at, ledger in at_each_statement(sides):
        given_up(ledger, billing=RepairState.FAILED)
        read, failed = handing_over(ledger), repairs_of(ledger)[EVERY_GROUP]

        def hand_over(side: Side, read: KeyAsRead = read) -> bool:
            return side.ledger.closings.hand_over(read, message(1), group="billing")

        def reopen(side: Side, failed: Repair = failed) -> bool:
            return side.ledger.repairs.reopen(failed, rung=Rung.END)

        handed, reopened = raced_by(sides, at, is_outer, hand_over, reopen)
        assert reopened
        assert repairs_of(ledger)["billing"].state is (RepairState.OPEN if handed else RepairState.FAILED)
