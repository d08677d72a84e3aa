"""ports.LedgerReports on every backend."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa

from reconciler.contract.tables import CandidateState, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.errors import InvalidValue
from reconciler.policy.ports.ledger import RepairChange
from reconciler.policy.ports.rounds import RestingShard
from reconciler.sql.tables import subscription_row
from reconciler.telling.ports.paging import LedgerFilter, Page, Position
from tests.contract.ledger.conftest import DatabaseWorld, World
from tests.contract.ledger.rows import entry, key, message, round_done, shard, subscription

OPEN, QUARANTINED, SETTLED = CandidateState.OPEN, CandidateState.QUARANTINED, CandidateState.SETTLED


def fill(world: World) -> None:
    candidates, e = world.ledger.candidates, world.environment
    candidates.record(
        shard(e),
        [
            entry(1, Verdict.LOST_CONFIRM),
            entry(2, Verdict.CONSUMED, SETTLED),
            entry(3, Verdict.CONSUMED, SETTLED),
            entry(4, Verdict.DEAD_LETTERED, QUARANTINED),
        ],
    )
    candidates.record(shard(e), [entry(3, Verdict.CONSUMED, SETTLED)])
    candidates.record(shard(e, group="shipping"), [entry(1, Verdict.LAGGING)])
    candidates.record(shard(e, topic="PAYMENTS"), [entry(9, Verdict.PARKED)])
    candidates.record(shard(e + "x"), [entry(1, Verdict.PARKED)])


T = TypeVar("T")
AT_MS = 1_000


def walked(listing: Callable[..., Page[T]], *, page_size: int) -> list[T]:
    """All rows of a listing, page by page; every page is full but the last."""
    found: list[T] = []
    after: Position | None = None
    while True:
        page = listing(limit=page_size, after=after)
        found += page.rows
        if page.end is None:
            return found
        assert len(page.rows) == page_size
        after = page.end


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
        (LedgerFilter(since_ms=AT_MS, before_ms=AT_MS + 1), 6),
        (LedgerFilter(since_ms=AT_MS + 1), 0),
        (LedgerFilter(before_ms=AT_MS), 0),
    ],
)
def test_candidates_are_filtered_and_paged_without_gaps(world: World, only: LedgerFilter, expected: int) -> None:
    fill(world)
    listing = partial(world.ledger.reports.candidates, world.environment, only=only)
    whole = listing(limit=100).rows
    assert len(whole) == expected
    for page_size in (1, 2, 5):
        assert walked(listing, page_size=page_size) == whole


def test_the_newest_row_comes_first_and_those_of_one_millisecond_in_one_order(world: World) -> None:
    e = world.environment
    for number, at_ms in ((1, 30), (2, 10), (3, 20), (4, 20), (5, 20)):
        for group in ("billing", "shipping"):
            of = shard(e, group=group)
            world.ledger.candidates.record(of, [entry(number, first_seen_ms=at_ms)])
    expected = [
        *((30, "shipping", 1), (30, "billing", 1)),
        *((20, "shipping", 5), (20, "shipping", 4), (20, "shipping", 3)),
        *((20, "billing", 5), (20, "billing", 4), (20, "billing", 3)),
        *((10, "shipping", 2), (10, "billing", 2)),
    ]
    listing = partial(world.ledger.reports.candidates, e)
    for page_size in (1, 3, 99):
        rows = walked(listing, page_size=page_size)
        assert [(one.first_seen_ms, one.subscription.group, int(one.unique_key, 16)) for one in rows] == expected
    named = partial(listing, only=LedgerFilter(unique_keys=tuple(map(key, range(6)))))
    assert walked(named, page_size=3) == rows


def test_a_page_goes_on_where_it_was_whatever_has_come_or_gone_since(world: World) -> None:
    e, candidates = world.environment, world.ledger.candidates
    candidates.record(shard(e), [entry(number, first_seen_ms=number * 10) for number in range(1, 7)])
    listing = partial(world.ledger.reports.candidates, e, only=LedgerFilter(candidate_state=OPEN))
    first = listing(limit=3)
    assert [int(one.unique_key, 16) for one in first.rows] == [6, 5, 4]
    candidates.record(shard(e), [entry(4, Verdict.CONSUMED, SETTLED), entry(9, first_seen_ms=90)])
    rest = listing(limit=3, after=first.end)
    assert ([int(one.unique_key, 16) for one in rest.rows], rest.end) == ([3, 2, 1], None)


def test_rounds_are_listed_void_ones_too(world: World) -> None:
    ledger, e = world.ledger, world.environment
    for generation in range(1, 5):
        ledger.rounds.store(round_done(shard(e), generation, generation))
        ledger.rounds.store(round_done(shard(e, 1, group="shipping"), generation, generation))
        world.clock.advance(generation % 2)
    ledger.rounds.void_after(shard(e), epoch="test:one", generation=3)
    listing = partial(ledger.reports.rounds, e)
    rows = walked(listing, page_size=3)
    assert rows == listing(limit=9).rows
    assert len(rows) == 8
    assert [one.stored_at_ms for one in rows] == sorted((one.stored_at_ms for one in rows), reverse=True)
    assert [one.done.generation for one in rows if one.is_void] == [4]
    mine = walked(partial(listing, only=LedgerFilter(group="shipping")), page_size=1)
    assert [one.done.generation for one in mine] == [4, 3, 2, 1]
    assert listing(limit=9, only=LedgerFilter(topic="PAYMENTS")).rows == []


def test_a_position_of_another_listing_is_refused(database_world: DatabaseWorld) -> None:
    """A database would fail on it as on a bug, or compare what is nothing alike."""
    reports, e = database_world.ledger.reports, database_world.environment
    positions: list[Any] = [(1,), (1, "a", "b"), (1, "a", "b", "c", "d"), ()]
    positions += [(value, "a", "b", "c") for value in (None, [1], True, 1 << 63, "\ud800")]
    positions += [(1, text, "b", "c") for text in (None, 1, "\ud800")]
    for position in positions:
        with pytest.raises(InvalidValue, match="cursor"):
            reports.candidates(e, limit=1, after=position)
    for text in ("\0", "x" * 161):
        with suppress(InvalidValue):  # only a damaged row of SQLite has them
            assert reports.candidates(e, limit=1, after=(1, text, "b", "c")).rows == []


def test_repairs_are_filtered_paged_and_counted(world: World) -> None:
    ledger, e = world.ledger, world.environment
    for number in (1, 2, 3):
        ledger.repairs.open(e, "ORDERS", key(number), rung=Rung.END)
    ledger.repairs.open(e, "PAYMENTS", key(9), rung=Rung.REPUBLISH)
    ledger.hand_overs.insert(e, message(1), groups=["billing"])
    row = ledger.repairs.claim(ledger.repairs.of_keys(e, "ORDERS", [key(2)])[key(2)][0], token="t", lease_seconds=9)
    assert row is not None
    ledger.repairs.change(row, RepairChange(state=RepairState.OPEN, rung=Rung.END, counts_as_attempt=True), token="t")

    def those(only: LedgerFilter) -> list[str]:
        return [one.unique_key for one in ledger.reports.repairs(e, only=only, limit=9).rows]

    whole = ledger.reports.repairs(e, limit=100).rows
    assert [(one.topic, one.scope, one.unique_key) for one in whole] == [
        ("PAYMENTS", "*", key(9)),
        ("ORDERS", "billing", key(1)),
        ("ORDERS", "*", key(3)),
        ("ORDERS", "*", key(2)),
        ("ORDERS", "*", key(1)),
    ]
    assert walked(partial(ledger.reports.repairs, e), page_size=2) == whole
    assert len(those(LedgerFilter(rung=Rung.HAND_OVER))) == 1
    assert len(those(LedgerFilter(scope="*", topic="ORDERS"))) == 3
    assert those(LedgerFilter(repair_state=RepairState.DONE)) == []
    assert len(those(LedgerFilter(unique_keys=(key(1), key(8))))) == 2

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
    assert those(LedgerFilter(repair_state=RepairState.DONE)) == [key(3)]
    assert those(LedgerFilter(repair_state=RepairState.OPEN)) == [key(9), key(1), key(2), key(1)]


def test_verdicts_are_counted_by_subscription_and_state(world: World) -> None:
    fill(world)
    found = world.ledger.reports.verdict_counts(world.environment)
    counts = [(str(one.subscription), one.state, one.verdict, one.loss_verdict, one.count) for one in found]
    every = world.ledger.reports.candidates(world.environment, limit=100).rows
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


def test_the_last_rounds_of_all_are_those_of_each(world: World) -> None:
    ledger, e = world.ledger, world.environment
    of_several = [shard(e, 0), shard(e, 3), shard(e, 0, group="shipping"), shard(e, 1, topic="PAYMENTS")]
    for one in (*of_several, shard(e + "x", 0)):
        for epoch, generation, at_ms in (("test:b", 1, 1_000), ("test:b", 2, 2_000), ("test:c", 1, 1_500)):
            ledger.rounds.store(round_done(one, generation, at_ms, epoch=epoch))
    ledger.rounds.void_after(of_several[1], epoch="test:b", generation=1)
    ledger.rounds.void_after(of_several[2], epoch="test:b", generation=0)
    ledger.rounds.void_after(of_several[2], epoch="test:c", generation=0)
    subscriptions = [*{one.subscription for one in of_several}, subscription(e, group="new")]
    found = ledger.reports.last_rounds_of(subscriptions)
    assert found == {one: ledger.reports.last_rounds(one) for one in subscriptions}
    newest = [(one.done.shard.number, one.done.epoch, one.done.generation) for one in found[subscription(e)]]
    assert newest == [(0, "test:b", 2), (3, "test:c", 1)]
    assert found[subscription(e, group="shipping")] == found[subscription(e, group="new")] == []
    assert ledger.reports.last_rounds_of([]) == {}


def test_traces_of_an_environment_tell_rounds_of_before_from_young_and_void_ones(world: World) -> None:
    ledger, e = world.ledger, world.environment
    before_ms = world.clock.now_ms()
    assert not ledger.reports.traces(e, before_ms=before_ms).is_known
    ledger.rounds.store(round_done(shard(e, 1), 1, 1_000))
    ledger.rounds.void_after(shard(e, 1), epoch="test:one", generation=0)
    world.clock.advance(1)
    assert not ledger.reports.traces(e, before_ms=world.clock.now_ms()).is_known
    ledger.rounds.store(round_done(shard(e, 0), 1, 1_000))
    young = ledger.reports.traces(e, before_ms=world.clock.now_ms())
    assert (young.is_known, young.has_earlier_round) == (True, False)
    world.clock.advance(1)
    assert ledger.reports.traces(e, before_ms=world.clock.now_ms()).has_earlier_round
    assert e not in young.others


def test_shards_whose_rounds_are_new_leave_old_and_void_ones_out(world: World) -> None:
    ledger, e, before_ms = world.ledger, world.environment, world.clock.now_ms()
    ledger.rounds.store(round_done(shard(e, 0), 1, 1_000))
    world.clock.advance(1)
    assert ledger.reports.shards_since(e, since_ms=before_ms) == set()
    ledger.rounds.store(round_done(shard(e, 2), 1, 1_000))
    ledger.rounds.store(round_done(shard(e, 2), 2, 1_000))
    ledger.rounds.store(round_done(shard(e, 1, group="shipping"), 1, 1_000))
    ledger.rounds.store(round_done(shard(e, 5), 1, 1_000))
    ledger.rounds.void_after(shard(e, 5), epoch="test:one", generation=0)
    assert ledger.reports.shards_since(e, since_ms=before_ms) == {shard(e, 2), shard(e, 1, group="shipping")}


def resting(*rounds_ms: int, offset: int = 0) -> list[RestingShard]:
    return [RestingShard(round_at_ms=at_ms, offsets={f"b/{n}": offset}) for n, at_ms in enumerate(rounds_ms)]


def keep_rest(world: World | DatabaseWorld, *rounds_ms: int, offset: int = 0, seconds_ago: float = 0) -> None:
    """Of a subscription that has had rounds."""
    of = subscription(world.environment)
    world.ledger.rounds.begin(of, at_ms=None)
    assert world.ledger.rounds.keep_rest({of: resting(*rounds_ms, offset=offset)}, seconds_ago=seconds_ago)


def test_a_shard_at_rest_has_its_last_round_when_it_was_seen_so(world: World) -> None:
    ledger, e = world.ledger, world.environment
    ledger.rounds.store(round_done(shard(e, 0), 1, 1_000, offsets={"b/0": 5}))
    ledger.rounds.store(round_done(shard(e, 1), 1, 1_001))
    before_ms = world.clock.now_ms()
    for offset in (6, 7):  # in place
        world.clock.advance(60)
        keep_rest(world, 1_000, 1_001, offset=offset, seconds_ago=2)
    last = ledger.reports.last_rounds(subscription(e))
    assert [one.stored_at_ms for one in last] == [world.clock.now_ms() - 2_000] * 2
    assert ledger.reports.last_rounds_of([subscription(e)]) == {subscription(e): last}
    assert [one.done.offsets for one in last] == [{"b/0": 7}, {"b/1": 7}]
    assert [(one.done.at_ms, one.done.generation) for one in last] == [(1_000, 1), (1_001, 1)]
    assert ledger.reports.shards_since(e, since_ms=before_ms) == {shard(e, 0), shard(e, 1)}
    assert ledger.reports.shards_since(e, since_ms=world.clock.now_ms()) == set()


def test_a_row_of_rest_stands_for_no_other_round_than_it_saw(world: World) -> None:
    """A later one has a row of its own; one that Redis fell back behind took with it what was seen."""
    ledger, e = world.ledger, world.environment
    for number in range(3):
        ledger.rounds.store(round_done(shard(e, number), 1, 500))
        ledger.rounds.store(round_done(shard(e, number), 2, 1_000))
    stored_ms = world.clock.now_ms()
    world.clock.advance(60)
    keep_rest(world, 1_000, 1_000, offset=9)
    world.clock.advance(60)
    ledger.rounds.store(round_done(shard(e, 0), 3, 2_000))
    ledger.rounds.void_after(shard(e, 1), epoch="test:one", generation=1)
    last = ledger.reports.last_rounds(subscription(e))
    assert ledger.reports.last_rounds_of([subscription(e)]) == {subscription(e): last}
    found = {one.done.shard.number: one for one in last}
    assert {n: one.stored_at_ms for n, one in found.items()} == {0: world.clock.now_ms(), 1: stored_ms, 2: stored_ms}
    assert not any(one.done.offsets == {f"b/{n}": 9} for n, one in found.items())


def test_a_row_of_rest_is_no_round_to_void_to_miss_or_to_begin_an_outage_with(world: World) -> None:
    """What is lost with Redis' memory was announced and consumed before the look, too."""
    ledger, e = world.ledger, world.environment
    done = round_done(shard(e, 0), 1, 1_000)
    ledger.rounds.store(done)
    stored_ms = world.clock.now_ms()
    world.clock.advance(60)
    keep_rest(world, 1_000, offset=9)
    assert ledger.rounds.last(shard(e, 0)) == done
    assert ledger.rounds.last(shard(e, 1)) is None, "it never had one"
    assert ledger.outages.open(e, reason="MEMORY_LOST", noticed_by="x").started_at_ms == stored_ms


def test_a_row_of_rest_that_nobody_can_read_counts_as_none(database_world: DatabaseWorld) -> None:
    ledger, e = database_world.ledger, database_world.environment
    ledger.rounds.store(round_done(shard(e, 0), 1, 1_000))
    stored_ms = database_world.clock.now_ms()
    database_world.clock.advance(60)
    keep_rest(database_world, 1_000)
    for text in (
        "soon",
        "[]",
        "{}",
        '{"at_ms":"1","shards":[]}',
        '{"at_ms":1,"shards":[[1]]}',
        '{"at_ms":1,"shards":[[1,2]]}',
    ):
        with database_world.ledger.database.engine.begin() as connection:
            connection.execute(sa.update(subscription_row).where(subscription_row.c.environment == e).values(rest=text))
        (last,) = ledger.reports.last_rounds(subscription(e))
        assert last.stored_at_ms == stored_ms, text


def test_floors_are_listed(world: World) -> None:
    ledger, e = world.ledger, world.environment
    ledger.rounds.raise_floor(subscription(e), {"b/3": 5, "a/3": 6})
    assert [(one.broker, one.queue_id, one.queue_offset) for one in ledger.reports.floors(subscription(e))] == [
        ("a", 3, 6),
        ("b", 3, 5),
    ]
