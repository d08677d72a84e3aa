"""ports.Candidates on every backend."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Undecided, Verdict
from reconciler.policy.ports.ledger import Candidate, VerdictEntry
from tests.contract.ledger.conftest import World
from tests.contract.ledger.rows import entry, key, shard, subscription

OPEN, QUARANTINED, SETTLED = CandidateState.OPEN, CandidateState.QUARANTINED, CandidateState.SETTLED


def row_of(world: World) -> Candidate:
    return world.ledger.candidates.of_keys(subscription(world.environment), [key(1)])[key(1)]


def test_a_recorded_verdict_reads_back_with_all_its_fields(world: World) -> None:
    evidence: dict[str, object] = {"inbox": "ABSENT", "detail": "ünïcode \x00 and 漢字", "brokers": [1, 2.5, None]}
    world.ledger.candidates.record(
        shard(world.environment), [entry(1, Verdict.LAGGING, wait_seconds=2.5, evidence=evidence)]
    )

    row = world.ledger.candidates.of_keys(subscription(world.environment), [key(1), key(2)])

    assert list(row) == [key(1)]
    found = row[key(1)]
    assert (found.subscription, found.shard, found.unique_key) == (subscription(world.environment), 3, key(1))
    assert (found.state, found.verdict, found.loss_verdict) == (OPEN, Verdict.LAGGING, None)
    assert found.evidence == evidence
    assert (found.attempts, found.first_seen_ms) == (1, 1_000)
    assert (found.updated_at_ms, found.next_at_ms) == (world.clock.now_ms(), world.clock.now_ms() + 2_500)


def test_attempts_grow_and_the_first_loss_verdict_stays(world: World) -> None:
    candidates, of = world.ledger.candidates, shard(world.environment)
    candidates.record(of, [entry(1, Verdict.UNKNOWN)])
    candidates.record(of, [entry(1, Verdict.PARKED, first_seen_ms=900)])
    candidates.record(of, [entry(1, Verdict.LOST_CONFIRM, first_seen_ms=5_000)])
    candidates.record(of, [entry(1, Verdict.CONSUMED, SETTLED)])

    found = candidates.of_keys(of.subscription, [key(1)])[key(1)]

    assert (found.state, found.verdict, found.loss_verdict) == (SETTLED, Verdict.CONSUMED, Verdict.PARKED)
    assert (found.attempts, found.first_seen_ms) == (4, 900)


@pytest.mark.parametrize(
    ("first", "second", "stands"),
    [
        (OPEN, QUARANTINED, QUARANTINED),
        (OPEN, SETTLED, SETTLED),
        (QUARANTINED, SETTLED, SETTLED),
        (QUARANTINED, OPEN, QUARANTINED),
        (SETTLED, OPEN, SETTLED),
        (SETTLED, QUARANTINED, SETTLED),
    ],
)
def test_a_slower_owner_never_reopens_what_has_left_pending(
    world: World, first: CandidateState, second: CandidateState, stands: CandidateState
) -> None:
    candidates, of = world.ledger.candidates, shard(world.environment)
    candidates.record(of, [entry(1, Verdict.DEAD_LETTERED, first, evidence={"n": 1})])
    before = candidates.of_keys(of.subscription, [key(1)])[key(1)]
    world.clock.advance(1)
    candidates.record(of, [entry(1, Verdict.UNKNOWN, second, evidence={"n": 2})])
    after = candidates.of_keys(of.subscription, [key(1)])[key(1)]

    assert after.state is stands
    if stands is second:
        assert (after.attempts, after.evidence, after.updated_at_ms) == (2, {"n": 2}, world.clock.now_ms())
    else:
        assert after == before


def test_a_key_that_is_reopened_takes_a_verdict_of_the_quarantine_after_it_was_settled(world: World) -> None:
    candidates, of = world.ledger.candidates, shard(world.environment)
    candidates.record(of, [entry(1, Verdict.REJECTED, SETTLED)])
    assert candidates.reopen(row_of(world))
    candidates.record(of, [entry(1, Verdict.DELIVERED_NOT_APPLIED, QUARANTINED)])
    row = candidates.of_keys(of.subscription, [key(1)])[key(1)]
    assert (row.state, row.verdict) == (QUARANTINED, Verdict.DELIVERED_NOT_APPLIED)


def test_a_batch_of_mixed_states_is_written_whole(world: World) -> None:
    candidates, of = world.ledger.candidates, shard(world.environment)
    states = [OPEN, SETTLED, QUARANTINED]
    candidates.record(of, [entry(n, state=states[n % 3]) for n in range(1_203)])
    found = candidates.of_keys(of.subscription, [key(n) for n in range(1_203)])
    assert {n: found[key(n)].state for n in range(1_203)} == {n: states[n % 3] for n in range(1_203)}
    candidates.record(of, [])
    assert candidates.of_keys(of.subscription, []) == {}


@pytest.mark.set_up("one ledger for two environments")
def test_groups_topics_and_environments_do_not_mix(world: World) -> None:
    candidates = world.ledger.candidates
    candidates.record(shard(world.environment), [entry(1, Verdict.LOST_CONFIRM)])
    for other in (
        subscription(world.environment, group="shipping"),
        subscription(world.environment, topic="ORDERS2"),
        subscription(world.environment + "x"),
    ):
        assert candidates.of_keys(other, [key(1)]) == {}
        assert candidates.open_losses(other, limit=10) == []
        assert candidates.open_due(other, shards=range(9), limit=10) == []
        assert other not in candidates.due_subscriptions(other.environment)
        assert not candidates.reopen(replace(row_of(world), subscription=other, state=QUARANTINED))


@pytest.mark.parametrize(("offset_ms", "is_due"), [(-1, False), (0, True), (1, True)])
def test_an_open_row_is_due_exactly_when_its_time_has_come(world: World, offset_ms: int, is_due: bool) -> None:
    candidates, of = world.ledger.candidates, shard(world.environment)
    candidates.record(of, [entry(1, Verdict.LOST_CONFIRM, wait_seconds=10)])
    world.clock.advance(10 + offset_ms / 1000)
    assert bool(candidates.open_losses(of.subscription, limit=1)) is is_due
    assert bool(candidates.open_due(of.subscription, shards=[of.number], limit=1)) is is_due
    assert set(candidates.due_subscriptions(world.environment)) == ({of.subscription} if is_due else set())


def test_rows_that_wait_are_due_once_the_clock_of_the_ledger_was_set_back_by_an_hour(world: World) -> None:
    candidates, of = world.ledger.candidates, shard(world.environment)
    waits = [entry(1, Verdict.LOST_CONFIRM, wait_seconds=30), entry(2, Verdict.UNKNOWN, wait_seconds=60)]
    candidates.record(of, waits)
    world.clock.step_wall(-3_600)
    candidates.record(of, [entry(3, Verdict.UNKNOWN, wait_seconds=3_600)])
    assert [row.unique_key for row in candidates.open_losses(of.subscription, limit=9)] == [key(1)]
    due = candidates.open_due(of.subscription, shards=[of.number], limit=9)
    assert [row.unique_key for row in due] == [key(1), key(2)], "a row that waits for an hour is none of the future"
    assert len(candidates.open_due(of.subscription, shards=[of.number], limit=1)) == 1
    candidates.record(of, [entry(1, Verdict.LOST_CONFIRM, wait_seconds=30)])
    due = candidates.open_due(of.subscription, shards=[of.number], limit=9)
    assert [row.unique_key for row in due] == [key(2)], "a look heals the time"


def test_losses_come_oldest_first_and_without_rows_that_are_no_loss_or_not_open(world: World) -> None:
    candidates, of = world.ledger.candidates, shard(world.environment)
    candidates.record(
        of,
        [
            entry(1, Verdict.LOST_CONFIRM, first_seen_ms=3_000),
            entry(2, Verdict.EXPIRED, first_seen_ms=1_000),
            entry(3, Verdict.LAGGING, first_seen_ms=500),
            entry(4, Verdict.PARKED, SETTLED, first_seen_ms=400),
            entry(5, Verdict.ROLLED_BACK_WRONGLY, first_seen_ms=2_000),
            entry(6, Verdict.LOST_CONFIRM, QUARANTINED, first_seen_ms=1),
        ],
    )
    assert [row.unique_key for row in candidates.open_losses(of.subscription, limit=10)] == [key(2), key(5), key(1)]
    assert [row.unique_key for row in candidates.open_losses(of.subscription, limit=2)] == [key(2), key(5)]


def test_due_rows_come_by_their_time_with_any_verdict(world: World) -> None:
    candidates, of = world.ledger.candidates, shard(world.environment)
    candidates.record(
        of,
        [
            entry(1, Verdict.LAGGING, wait_seconds=3),
            entry(2, Verdict.LOST_CONFIRM, wait_seconds=1),
            entry(3, Verdict.UNKNOWN, wait_seconds=2),
            entry(4, Verdict.CONSUMED, SETTLED),
        ],
    )
    world.clock.advance(3)
    assert [row.unique_key for row in candidates.open_due(of.subscription, shards=[of.number], limit=10)] == [
        key(2),
        key(3),
        key(1),
    ]


def test_rows_of_a_shard_that_nobody_looks_at_take_no_room(world: World) -> None:
    candidates, stopped, healthy = world.ledger.candidates, shard(world.environment, 1), shard(world.environment, 2)
    for number in range(5):
        candidates.record(stopped, [entry(number, Verdict.UNKNOWN)])
    candidates.record(healthy, [entry(9, Verdict.UNKNOWN)])
    found = candidates.open_due(healthy.subscription, shards={2, 3}, limit=2)
    assert [row.unique_key for row in found] == [key(9)]
    assert len(candidates.open_due(healthy.subscription, shards={1, 2}, limit=10)) == 6


def test_an_operator_reopens_what_was_quarantined(world: World) -> None:
    candidates, of = world.ledger.candidates, shard(world.environment)
    candidates.record(of, [entry(1, Verdict.LOST_CONFIRM, QUARANTINED, wait_seconds=60)])
    as_read = row_of(world)
    assert candidates.reopen(as_read)
    assert [row.unique_key for row in candidates.open_losses(of.subscription, limit=10)] == [key(1)]
    assert not candidates.reopen(as_read), "it is open already"
    assert not candidates.reopen(row_of(world)), "it is open already"
    assert not candidates.reopen(replace(as_read, unique_key=key(2)))


@pytest.mark.parametrize("now", [(Verdict.CONSUMED, SETTLED), (Verdict.DEAD_LETTERED, QUARANTINED)])
def test_what_has_another_verdict_since_it_was_read_is_not_reopened(
    world: World, now: tuple[Verdict, CandidateState]
) -> None:
    candidates, of = world.ledger.candidates, shard(world.environment)
    candidates.record(of, [entry(1, Verdict.QUARANTINED, QUARANTINED)])
    as_read = row_of(world)
    candidates.record(of, [entry(1, *now)])
    assert not candidates.reopen(as_read)
    assert (row_of(world).verdict, row_of(world).state) == now


def test_undecided_rows_come_oldest_first_page_by_page_whether_due_or_not(world: World) -> None:
    candidates, of = world.ledger.candidates, shard(world.environment)
    candidates.record(
        of,
        [
            entry(1, first_seen_ms=3_000, wait_seconds=3_600.0),
            entry(2, first_seen_ms=1_000),
            entry(3, first_seen_ms=1_000),
            entry(4, Verdict.LAGGING, first_seen_ms=1),
            entry(5, Verdict.REJECTED, SETTLED, first_seen_ms=1),
            entry(6, Verdict.LOST_CONFIRM, first_seen_ms=1),
        ],
    )
    candidates.record(of, [entry(6)])  # its loss was proved, so it is no secret
    candidates.record(shard(world.environment, group="shipping"), [entry(7, first_seen_ms=1)])
    found: list[str] = []
    page = candidates.undecided(of.subscription, limit=2)
    while page:
        found += [row.unique_key for row in page]
        page = candidates.undecided(of.subscription, limit=2, after=page[-1])
    assert found == [key(2), key(3), key(1)]


def test_rows_before_since_come_newest_first_page_by_page_and_are_opened_unless_they_changed(world: World) -> None:
    candidates, of = world.ledger.candidates, shard(world.environment)
    candidates.record(of, [entry(4, Verdict.LOST_CONFIRM)])  # a loss, which was no longer the group's
    before = [entry(n, Verdict.BEFORE_SINCE, SETTLED, first_seen_ms=at_ms, ask_again_seconds=None)
              for n, at_ms in ((1, 3_000), (2, 1_000), (3, 1_000), (4, 1_000))]  # fmt: skip
    others = [entry(5, Verdict.FILTERED, SETTLED), entry(6, Verdict.DELIVERED_NOT_APPLIED, QUARANTINED)]
    candidates.record(of, [*before, *others])
    candidates.record(shard(world.environment, group="shipping"), before)
    found: list[str] = []
    page = candidates.before_since(of.subscription, None, limit=2)
    while page:
        found += [row.unique_key for row in page]
        page = candidates.before_since(of.subscription, None, limit=2, after=page[-1])
    assert found == [key(1), key(3), key(2)]
    was_lost = candidates.before_since(of.subscription, Verdict.LOST_CONFIRM, limit=2)
    assert [row.unique_key for row in was_lost] == [key(4)]
    candidates.answer_for(replace(of, number=5), [key(n) for n in range(2, 8)])
    now = candidates.of_keys(of.subscription, [key(n) for n in range(1, 8)])
    assert {n: str(now[key(n)].state) for n in range(1, 7)} == {
        1: "SETTLED", 2: "OPEN", 3: "OPEN", 4: "OPEN", 5: "SETTLED", 6: "QUARANTINED"
    }  # fmt: skip
    assert (now[key(2)].verdict, now[key(2)].shard) == (Verdict.BEFORE_SINCE, 5)
    due = candidates.open_due(of.subscription, shards=[5], limit=9)
    assert [row.unique_key for row in due] == [key(2), key(3), key(4)]
    assert len(candidates.before_since(subscription(world.environment, group="shipping"), None, limit=9)) == 4


def test_undecided_rows_are_counted_and_found_by_what_keeps_them_so(world: World) -> None:
    candidates, of = world.ledger.candidates, shard(world.environment)

    def undecided(number: int, by: Undecided | None, *, since_ms: int = 7, first_seen_ms: int) -> VerdictEntry:
        since = None if by is None else since_ms
        return replace(entry(number, first_seen_ms=first_seen_ms), undecided_by=by, undecided_since_ms=since)

    def found(by: Undecided | None, *, most: int = 9, **since: int) -> tuple[int, str | None]:
        rows = candidates.undecided_rows(of.subscription, by, most=most, **since)
        assert rows is not None
        return rows.count, None if rows.oldest is None else rows.oldest.unique_key

    candidates.record(
        of,
        [
            undecided(1, Undecided.WITNESS, since_ms=50, first_seen_ms=1_000),
            undecided(2, Undecided.WITNESS, since_ms=40, first_seen_ms=2_000),
            undecided(3, Undecided.SET_UP, first_seen_ms=3_000),
            undecided(4, Undecided.SET_UP, first_seen_ms=3_000),
            undecided(5, None, first_seen_ms=4_000),
            undecided(6, Undecided.CONTRADICTION, first_seen_ms=5_000),
            undecided(7, Undecided.CONTRADICTION, first_seen_ms=500),
        ],
    )
    candidates.record(shard(world.environment, group="shipping"), [undecided(8, Undecided.WITNESS, first_seen_ms=1)])
    candidates.record(of, [entry(7, Verdict.CONSUMED, SETTLED, first_seen_ms=500)])
    assert found(Undecided.WITNESS) == (2, key(1))
    assert found(Undecided.WITNESS, since_before_ms=50) == (1, key(2))
    assert found(Undecided.WITNESS, since_before_ms=40) == (0, None)
    assert found(Undecided.WITNESS, since_after_ms=40) == (1, key(1))
    assert found(Undecided.WITNESS, since_after_ms=50) == (0, None)
    assert found(Undecided.SET_UP) == (2, key(3))
    assert found(Undecided.SET_UP, most=1)[0] == 1
    assert found(Undecided.CONTRADICTION) == (1, key(6))
    assert found(None) == (1, key(5))
    candidates.record(of, [undecided(3, Undecided.WITNESS, since_ms=9, first_seen_ms=3_000), entry(1)])
    assert (found(Undecided.SET_UP), found(Undecided.WITNESS)) == ((1, key(4)), (2, key(2)))
    assert found(None)[0] == 2
