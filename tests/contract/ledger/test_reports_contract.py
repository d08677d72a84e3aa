"""ports.LedgerReports on every backend."""

from __future__ import annotations

import pytest

from reconciler.contract.tables import CandidateState, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.policy.ports import Candidate, LedgerFilter, Repair, RepairChange
from tests.contract.ledger.conftest import World
from tests.contract.ledger.rows import key, message, round_done, shard, subscription, verification

OPEN, QUARANTINED, SETTLED = CandidateState.OPEN, CandidateState.QUARANTINED, CandidateState.SETTLED


def fill(world: World) -> None:
    candidates, e = world.ledger.candidates, world.environment
    candidates.record(
        shard(e),
        [
            verification(1, Verdict.LOST_CONFIRM),
            verification(2, Verdict.CONSUMED, SETTLED),
            verification(3, Verdict.CONSUMED, SETTLED),
            verification(4, Verdict.DEAD_LETTERED, QUARANTINED),
        ],
    )
    candidates.record(shard(e), [verification(3, Verdict.CONSUMED, SETTLED)])
    candidates.record(shard(e, group="shipping"), [verification(1, Verdict.LAGGING)])
    candidates.record(shard(e, topic="PAYMENTS"), [verification(9, Verdict.PARKED)])
    candidates.record(shard(e + "x"), [verification(1, Verdict.PARKED)])


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (LedgerFilter(), 6),
        (LedgerFilter(topic="ORDERS"), 5),
        (LedgerFilter(group="shipping"), 1),
        (LedgerFilter(candidate_state=SETTLED), 2),
        (LedgerFilter(verdict=Verdict.DEAD_LETTERED), 1),
        (LedgerFilter(is_loss=True), 2),
        (LedgerFilter(is_loss=False), 4),
        (LedgerFilter(topic="PAYMENTS", is_loss=True, candidate_state=OPEN), 1),
        (LedgerFilter(topic="PAYMENTS", candidate_state=SETTLED), 0),
        (LedgerFilter(unique_keys=(key(1), key(9))), 3),
        (LedgerFilter(unique_keys=(key(1), key(8)), topic="ORDERS", group="shipping"), 1),
        (LedgerFilter(unique_keys=()), 0),
    ],
)
def test_candidates_are_filtered_and_paged_without_gaps(world: World, only: LedgerFilter, expected: int) -> None:
    fill(world)
    reports, e = world.ledger.reports, world.environment
    whole = reports.candidates(e, only=only, limit=100)
    assert len(whole) == expected
    for page_size in (1, 2, 5):
        paged: list[Candidate] = []
        after: tuple[str, str, str] | None = None
        while page := reports.candidates(e, only=only, limit=page_size, after=after):
            paged += page
            last = page[-1]
            after = (last.subscription.topic, last.subscription.group, last.unique_key)
        assert paged == whole


def test_repairs_are_filtered_paged_and_counted(world: World) -> None:
    ledger, e = world.ledger, world.environment
    for number in (1, 2, 3):
        ledger.repairs.open(e, "ORDERS", key(number), rung=Rung.END)
    ledger.repairs.open(e, "PAYMENTS", key(9), rung=Rung.REPUBLISH)
    ledger.hand_overs.insert(e, message(1), groups=["billing"])
    row = ledger.repairs.claim(ledger.repairs.of_keys(e, "ORDERS", [key(2)])[key(2)][0], token="t", lease_seconds=9)
    assert row is not None
    ledger.repairs.change(row, RepairChange(state=RepairState.OPEN, rung=Rung.END, counts_as_attempt=True), token="t")

    whole = ledger.reports.repairs(e, only=LedgerFilter(), limit=100)
    assert [(one.topic, one.scope, one.unique_key) for one in whole] == [
        ("ORDERS", "*", key(1)),
        ("ORDERS", "*", key(2)),
        ("ORDERS", "*", key(3)),
        ("ORDERS", "billing", key(1)),
        ("PAYMENTS", "*", key(9)),
    ]
    paged: list[Repair] = []
    after: tuple[str, str, str] | None = None
    while page := ledger.reports.repairs(e, only=LedgerFilter(), limit=2, after=after):
        paged += page
        after = (page[-1].topic, page[-1].scope, page[-1].unique_key)
    assert paged == whole
    assert len(ledger.reports.repairs(e, only=LedgerFilter(rung=Rung.HAND_OVER), limit=9)) == 1
    assert len(ledger.reports.repairs(e, only=LedgerFilter(scope="*", topic="ORDERS"), limit=9)) == 3
    assert ledger.reports.repairs(e, only=LedgerFilter(repair_state=RepairState.DONE), limit=9) == []
    assert len(ledger.reports.repairs(e, only=LedgerFilter(unique_keys=(key(1), key(8))), limit=9)) == 2

    counts = {(one.topic, one.scope, one.rung): (one.attempted, one.count) for one in ledger.reports.repair_counts(e)}
    assert counts == {
        ("ORDERS", "*", Rung.END): (1, 3),
        ("ORDERS", "billing", Rung.HAND_OVER): (0, 1),
        ("PAYMENTS", "*", Rung.REPUBLISH): (0, 1),
    }
    assert ledger.reports.repair_counts(e + "x") == []

    done = ledger.repairs.claim(ledger.repairs.of_keys(e, "ORDERS", [key(3)])[key(3)][0], token="t", lease_seconds=9)
    assert done is not None
    ledger.repairs.change(done, RepairChange(state=RepairState.DONE, rung=Rung.END), token="t")
    of_long_ago = ledger.reports.repairs(e, only=LedgerFilter(is_done=True), limit=9)
    others = ledger.reports.repairs(e, only=LedgerFilter(is_done=False), limit=9)
    assert [one.unique_key for one in of_long_ago] == [key(3)]
    assert [one.unique_key for one in others] == [key(1), key(2), key(1), key(9)]


def test_verdicts_are_counted_by_subscription_and_state(world: World) -> None:
    fill(world)
    found = world.ledger.reports.verdict_counts(world.environment)
    counts = [(str(one.subscription), one.state, one.verdict, one.loss_verdict, one.count) for one in found]
    every = world.ledger.reports.candidates(world.environment, only=LedgerFilter(), limit=100)
    for one in found:
        mine = [c for c in every if (c.subscription, c.state, c.verdict) == (one.subscription, one.state, one.verdict)]
        assert one.oldest_ms == min(c.first_seen_ms for c in mine)
    assert counts == [
        ("ORDERS/billing", OPEN, Verdict.LOST_CONFIRM, Verdict.LOST_CONFIRM, 1),
        ("ORDERS/billing", QUARANTINED, Verdict.DEAD_LETTERED, None, 1),
        ("ORDERS/billing", SETTLED, Verdict.CONSUMED, None, 2),
        ("ORDERS/shipping", OPEN, Verdict.LAGGING, None, 1),
        ("PAYMENTS/billing", OPEN, Verdict.PARKED, Verdict.PARKED, 1),
    ]


def test_the_life_of_a_key_has_its_rows_of_every_group_and_the_round_that_saw_it_first(world: World) -> None:
    fill(world)
    ledger, e = world.ledger, world.environment
    ledger.repairs.open(e, "ORDERS", key(1), rung=Rung.END)
    ledger.hand_overs.insert(e, message(1), groups=["billing"])
    ledger.rounds.store(round_done(shard(e), 1, 1_000))
    ledger.rounds.store(round_done(shard(e), 2, 2_000))
    life = ledger.reports.life(e, key(1))
    assert [str(one.subscription) for one in life.candidates] == ["ORDERS/billing", "ORDERS/shipping"]
    assert [one.scope for one in life.repairs] == ["*", "billing"]
    assert [(str(one.done.shard), one.done.generation) for one in life.rounds] == [("ORDERS/billing#3", 1)]
    nothing = ledger.reports.life(e, key(77))
    assert (list(nothing.candidates), list(nothing.repairs), list(nothing.rounds)) == ([], [], [])


def test_the_last_round_of_each_shard_leaves_void_ones_out(world: World) -> None:
    ledger, e = world.ledger, world.environment
    for number, generation, at_ms in ((0, 1, 1_000), (0, 2, 2_000), (5, 7, 9_000), (2, 1, 500)):
        ledger.rounds.store(round_done(shard(e, number), generation, at_ms))
    ledger.rounds.store(round_done(shard(e, 0), 1, 3_000, epoch="test:aaa"))
    ledger.rounds.void_after(shard(e, 0), epoch="test:aaa", generation=0)
    ledger.rounds.store(round_done(shard(e, 1, group="shipping"), 1, 1))
    rows = ledger.reports.last_rounds(subscription(e))
    assert [(one.done.shard.number, one.done.generation, one.is_void) for one in rows] == [
        (0, 2, False),
        (2, 1, False),
        (5, 7, False),
    ]
    assert rows[0].stored_at_ms == world.clock.now_ms()


def test_floors_are_listed(world: World) -> None:
    ledger, e = world.ledger, world.environment
    ledger.rounds.raise_floor(subscription(e), {"b/3": 5, "a/3": 6})
    assert [(one.broker, one.queue_id, one.queue_offset) for one in ledger.reports.floors(subscription(e))] == [
        ("a", 3, 6),
        ("b", 3, 5),
    ]
