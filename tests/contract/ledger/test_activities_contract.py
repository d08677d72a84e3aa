"""Activity on every database: what charts draw is what the rows say, and no more is read than is allowed."""

from __future__ import annotations

from dataclasses import replace

import sqlalchemy as sa

from reconciler.contract.tables import RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.ledger.activity import READ_AGAIN, SqlActivities
from reconciler.policy.ports.ledger import RepairChange
from reconciler.sql.tables import candidate, round_row
from reconciler.telling.ports.activity import ActivityBucket
from tests.contract.ledger.conftest import DatabaseWorld
from tests.contract.ledger.rows import entry, key, round_done, shard

MINUTE = 60_000


def buckets(world: DatabaseWorld, *, hours: int = 1, rows_max: int = 1_000) -> list[ActivityBucket]:
    found = SqlActivities(world.ledger.database, rows_max=rows_max).of_hours(
        world.environment, hours=hours, width_ms=MINUTE
    )
    assert found.width_ms == MINUTE
    return list(found.buckets)


def at_the_begin_of_a_minute(world: DatabaseWorld) -> int:
    world.clock.advance((MINUTE - world.clock.now_ms() % MINUTE) / 1000)
    return world.clock.now_ms()


def round_now(world: DatabaseWorld, generation: int, *, announced: int = 7) -> None:
    at_ms = world.clock.now_ms()
    world.ledger.rounds.store(round_done(shard(world.environment), generation, at_ms, announced=announced))


def test_an_empty_ledger_is_calm_in_every_minute(database_world: DatabaseWorld) -> None:
    now_ms = at_the_begin_of_a_minute(database_world)
    found = buckets(database_world)
    assert [one.from_ms for one in found] == [now_ms - (59 - n) * MINUTE for n in range(60)]
    calm = ActivityBucket(
        from_ms=0, announced=0, matched=0, losses=0, repairs=0, detection_mean_ms=None, detection_max_ms=None
    )
    assert {replace(one, from_ms=0) for one in found} == {calm}


def test_rounds_are_summed_by_the_minute_that_stored_them(database_world: DatabaseWorld) -> None:
    world = database_world
    at_the_begin_of_a_minute(world)
    round_now(world, 1)
    world.clock.advance(59.999)
    round_now(world, 2, announced=3)
    world.clock.advance(0.001)
    round_now(world, 3, announced=1)
    found = buckets(world)
    # Of each round four keys were matched as they came and two left pending.
    assert [(one.announced, one.matched) for one in found[-3:]] == [(0, 0), (10, 12), (1, 6)]
    assert sum(one.announced or 0 for one in found) == 11


def test_a_round_that_never_happened_and_another_environment_are_not_counted(database_world: DatabaseWorld) -> None:
    world = database_world
    round_now(world, 1)
    round_now(world, 2)
    world.ledger.rounds.void_after(shard(world.environment), epoch="test:one", generation=1)
    other = shard(world.environment + "x")
    world.ledger.rounds.store(round_done(other, 1, world.clock.now_ms()))
    assert sum(one.announced or 0 for one in buckets(world)) == 7


def test_more_rounds_than_may_be_read_are_told_as_unknown_and_not_as_calm(database_world: DatabaseWorld) -> None:
    world = database_world
    at_the_begin_of_a_minute(world)
    for generation in range(1, 5):
        round_now(world, generation)
        world.clock.advance(60)
    found = buckets(world, rows_max=2)
    assert [one.announced for one in found[-4:]] == [None, None, 7, 0]
    assert found[0].announced is None
    assert [one.announced for one in buckets(world, rows_max=9)[-5:]] == [7, 7, 7, 7, 0]


def four_rounds_two_hours_ago(world: DatabaseWorld) -> None:
    """Each in a bucket of its own."""
    at_the_begin_of_a_minute(world)
    for generation in (1, 2, 3, 4):
        round_now(world, generation)
        world.clock.advance(300)
    world.clock.advance(2 * 3_600)


def announced_of(activities: SqlActivities, world: DatabaseWorld) -> list[int | None]:
    """In four hours, of the buckets with rounds."""
    found = activities.of_hours(world.environment, hours=4, width_ms=5 * MINUTE).buckets
    return [one.announced for one in found if one.announced != 0]


def test_what_was_read_is_remembered_and_stays_wrong_for_ever(database_world: DatabaseWorld) -> None:
    """A chart of three days reads hundreds of thousands of rounds; a loss is proved after its bucket was read."""
    world = database_world
    four_rounds_two_hours_ago(world)
    activities = SqlActivities(world.ledger.database)
    assert announced_of(activities, world) == [7, 7, 7, 7]
    with world.ledger.database.writing() as connection:
        connection.execute(sa.update(round_row).values(announced=8))
    assert announced_of(activities, world) == [7, 7, 7, 7]
    seen = [announced_of(activities, world) for _ in range(48 // READ_AGAIN)]
    assert seen[-1] == [8, 8, 8, 8]
    assert announced_of(SqlActivities(world.ledger.database), world) == [8, 8, 8, 8]


def test_what_one_reading_leaves_unknown_the_next_ones_do_not_read_either(database_world: DatabaseWorld) -> None:
    world = database_world
    four_rounds_two_hours_ago(world)
    activities = SqlActivities(world.ledger.database, rows_max=2)
    seen = [[one for one in announced_of(activities, world) if one is not None] for _ in range(6)]
    assert seen == sorted(seen), "what was known is known"
    assert (seen[0], seen[-1]) == ([7], [7, 7, 7, 7])


def test_a_loss_its_proof_and_its_repair_stand_at_their_own_times(database_world: DatabaseWorld) -> None:
    world = database_world
    seen_ms = at_the_begin_of_a_minute(world)
    of, repairs = shard(world.environment), world.ledger.repairs
    for number, late_ms in ((1, 0), (2, 20_000)):
        loss = entry(number, Verdict.LOST_CONFIRM, first_seen_ms=seen_ms + late_ms)
        world.ledger.candidates.record(of, [loss])
    world.ledger.candidates.record(of, [entry(3, Verdict.LAGGING, first_seen_ms=seen_ms)])
    world.clock.advance(60)
    for number in (1, 2):
        repairs.open(world.environment, "ORDERS", key(number), rung=Rung.END)
    world.clock.advance(60)
    row = repairs.of_keys(world.environment, "ORDERS", [key(1)])[key(1)][0]
    mine = repairs.claim(row, token="mine", lease_seconds=60)
    assert mine is not None
    repairs.change(mine, RepairChange(state=RepairState.DONE, rung=Rung.END), token="mine")
    lost, proved, repaired = buckets(world)[-3:]
    assert (lost.losses, lost.repairs, lost.detection_max_ms) == (2, 0, None)
    assert (proved.losses, proved.repairs) == (0, 0)
    assert (proved.detection_mean_ms, proved.detection_max_ms) == (50_000, 60_000)
    assert (repaired.losses, repaired.repairs) == (0, 1)


def test_a_key_that_redis_dates_after_the_proof_was_detected_at_once(database_world: DatabaseWorld) -> None:
    world = database_world
    ahead_ms = world.clock.now_ms() + 5_000
    world.ledger.candidates.record(shard(world.environment), [entry(1, Verdict.LOST_CONFIRM, first_seen_ms=ahead_ms)])
    world.ledger.repairs.open(world.environment, "ORDERS", key(1), rung=Rung.END)
    assert [one.detection_max_ms for one in buckets(world) if one.detection_max_ms is not None] == [0]


def test_a_time_that_is_none_is_in_no_minute(database_world: DatabaseWorld) -> None:
    world = database_world
    if world.ledger.database.engine.dialect.name != "sqlite":
        return  # the others keep numbers only
    round_now(world, 1)
    world.ledger.candidates.record(
        shard(world.environment),
        [entry(1, Verdict.LOST_CONFIRM, first_seen_ms=world.clock.now_ms())],
    )
    world.ledger.repairs.open(world.environment, "ORDERS", key(1), rung=Rung.END)
    with world.ledger.database.writing() as connection:
        connection.execute(sa.text(f"UPDATE {round_row.name} SET stored_at_ms = 'soon', announced = 'many'"))
        connection.execute(sa.text(f"UPDATE {candidate.name} SET first_seen_ms = x'00'"))
    found = buckets(world)
    assert sum(one.announced or 0 for one in found) == sum(one.losses for one in found) == 0
    assert {one.detection_max_ms for one in found} == {None}
