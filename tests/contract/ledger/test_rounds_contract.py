"""ports.Rounds, Outages, Holds and AnnouncementLedger on every backend."""

from __future__ import annotations

from dataclasses import replace

from reconciler.contract.kept_facts import TOO_MANY, TOO_MANY_SO_FAR
from reconciler.contract.queue_proof import QueueProof, QueueRecord
from reconciler.contract.tables import HoldKind
from reconciler.policy.ports.announcing import AnnouncementQueue, RefusedAnnouncement
from reconciler.policy.ports.ledger import HeldTopic
from reconciler.words import said
from tests.contract.ledger.conftest import World
from tests.contract.ledger.rows import round_done, shard, subscription

QUEUE = AnnouncementQueue(unique_key_topic="RECONCILER_UNIQUE_KEY", broker="broker-a", queue_id=3)
EPOCH = "test:one"


def floor(world: World, queue: AnnouncementQueue = QUEUE) -> int | None:
    found = world.ledger.announcements.floor(subscription(world.environment), queue)
    return None if found is None else found.queue_offset


# ---- rounds


def test_a_stored_round_reads_back_whole(world: World) -> None:
    of = shard(world.environment)
    assert world.ledger.rounds.last(of) is None
    done = round_done(of, 1, 1_000, offsets={"broker-a/3": 7, "brök/er/3": 8})
    world.ledger.rounds.store(done)
    world.ledger.rounds.store(done)
    assert world.ledger.rounds.last(of) == done


def test_the_last_round_is_the_newest_over_all_epochs_and_of_the_shard(world: World) -> None:
    of, rounds = shard(world.environment), world.ledger.rounds
    rounds.store(round_done(of, 8, 8_000, epoch="test:zzz"))
    rounds.store(round_done(of, 9, 9_000, epoch="test:zzz"))
    rounds.store(round_done(of, 1, 9_500, epoch="test:aaa"))
    rounds.store(round_done(shard(world.environment, 4), 50, 99_000))
    last = rounds.last(of)
    assert last is not None
    assert (last.epoch, last.generation) == ("test:aaa", 1)


def test_rounds_that_redis_fell_back_behind_are_void_once(world: World) -> None:
    of, rounds = shard(world.environment), world.ledger.rounds
    for generation in range(1, 6):
        rounds.store(round_done(of, generation, generation * 1_000))
    rounds.store(round_done(of, 9, 9_000, epoch="test:other"))
    assert rounds.void_after(of, epoch=EPOCH, generation=5) == 0
    assert rounds.void_after(of, epoch=EPOCH, generation=3) == 2
    assert rounds.void_after(of, epoch=EPOCH, generation=3) == 0
    assert rounds.void_after(of, epoch="test:other", generation=8) == 1
    last = rounds.last(of)
    assert last is not None
    assert last.generation == 3


def test_rounds_of_a_later_time_are_void_where_redis_came_back_with_what_was_undone(world: World) -> None:
    """4 and 5 were undone, 4 ran again; then Redis came back with the first 5: its number alone proves nothing."""
    of, rounds = shard(world.environment), world.ledger.rounds
    for generation in range(1, 6):
        rounds.store(round_done(of, generation, generation * 1_000))
    rounds.void_after(of, epoch=EPOCH, generation=3, at_ms=3_000)
    rounds.store(round_done(of, 4, 9_000))
    assert rounds.void_after(of, epoch=EPOCH, generation=5, at_ms=None) == 0
    assert rounds.void_after(of, epoch=EPOCH, generation=5, at_ms=5_000) == 1
    last = rounds.last(of)
    assert last is not None
    assert (last.generation, last.at_ms) == (3, 3_000)


def test_a_generation_that_ran_again_replaces_the_undone_one_but_never_the_other_way_round(world: World) -> None:
    of, rounds = shard(world.environment), world.ledger.rounds
    undone, again = round_done(of, 4, 4_000, offsets={"broker-a/3": 99}), round_done(of, 4, 5_000)
    rounds.store(undone)
    rounds.void_after(of, epoch=EPOCH, generation=3)
    rounds.store(undone)
    assert rounds.last(of) is None, "a late writer brings no void round back"
    rounds.store(again)
    assert rounds.last(of) == again
    rounds.store(undone)
    assert rounds.last(of) == again


# ---- floors


def test_nothing_told_is_no_floor(world: World) -> None:
    world.ledger.rounds.raise_floor(subscription(world.environment), {})
    assert floor(world) is None


def test_the_floor_never_sinks_whoever_raises_it(world: World) -> None:
    of, rounds = subscription(world.environment), world.ledger.rounds
    rounds.raise_floor(of, {"broker-a/3": 20})
    rounds.raise_floor(of, {"broker-a/3": 7})
    assert floor(world) == 20
    rounds.raise_floor(of, {"broker-a/3": 21})
    assert floor(world) == 21


def test_floors_are_kept_for_each_queue_and_rise_alone(world: World) -> None:
    of, rounds = subscription(world.environment), world.ledger.rounds
    rounds.raise_floor(of, {"broker-a/3": 5, "brök/er/3": 50})
    rounds.raise_floor(of, {"broker-a/3": 9, "brök/er/3": 40})
    assert floor(world) == 9
    assert floor(world, replace(QUEUE, broker="brök/er")) == 50
    assert floor(world, replace(QUEUE, queue_id=4)) is None
    assert world.ledger.announcements.floor(subscription(world.environment, group="other"), QUEUE) is None


def proof(following: int, at_ms: int, record: int | None = None) -> QueueProof:
    """What an announcement consumer saw before it stored this offset."""
    offset = following - 1 if record is None else record
    seen = QueueRecord(queue_offset=offset, stored_at_ms=at_ms, commit_log_offset=at_ms, unique_key=f"{at_ms:032X}")
    return QueueProof(following=following, record=seen)


def proved(world: World) -> tuple[int, QueueProof | None]:
    found = world.ledger.announcements.floor(subscription(world.environment), QUEUE)
    assert found is not None
    assert world.ledger.reports.floors(subscription(world.environment)) == [found]
    return found.queue_offset, found.proof


def test_a_floor_carries_what_proves_it(world: World) -> None:
    of, rounds = subscription(world.environment), world.ledger.rounds
    rounds.raise_floor(of, {"broker-a/3": 20}, {"broker-a/3": proof(20, 1_000)})
    assert proved(world) == (20, proof(20, 1_000))
    rounds.raise_floor(of, {"broker-a/3": 25}, {"broker-a/3": proof(25, 2_000, 21)})
    assert proved(world) == (25, proof(25, 2_000, 21))


def test_a_floor_that_an_older_release_raised_has_the_proof_of_a_lower_one_until_a_round_tells_another(
    world: World,
) -> None:
    of, rounds = subscription(world.environment), world.ledger.rounds
    rounds.raise_floor(of, {"broker-a/3": 20}, {"broker-a/3": proof(20, 1_000)})
    rounds.raise_floor(of, {"broker-a/3": 30})
    assert proved(world) == (30, proof(20, 1_000))
    rounds.raise_floor(of, {"broker-a/3": 30}, {"broker-a/3": proof(30, 2_000)})
    assert proved(world) == (30, proof(30, 2_000))


def test_a_floor_without_a_proof_gets_one_and_does_not_sink(world: World) -> None:
    of, rounds = subscription(world.environment), world.ledger.rounds
    rounds.raise_floor(of, {"broker-a/3": 20})
    rounds.raise_floor(of, {"broker-a/3": 7}, {"broker-a/3": proof(7, 9_000)})
    assert proved(world) == (20, None)
    rounds.raise_floor(of, {"broker-a/3": 20}, {"broker-a/3": proof(20, 9_500)})
    assert proved(world) == (20, proof(20, 9_500))


def test_the_floor_of_a_queue_that_began_anew_sinks_and_what_is_told_of_the_old_one_is_left(world: World) -> None:
    of, rounds = subscription(world.environment), world.ledger.rounds
    rounds.raise_floor(of, {"broker-a/3": 1_000}, {"broker-a/3": proof(1_000, 5_000)})
    rounds.raise_floor(of, {"broker-a/3": 4}, {"broker-a/3": proof(4, 6_000)})
    assert proved(world) == (4, proof(4, 6_000))
    rounds.raise_floor(of, {"broker-a/3": 1_000}, {"broker-a/3": proof(1_000, 5_000)})
    rounds.raise_floor(of, {"broker-a/3": 1_001}, {"broker-a/3": proof(1_001, 5_500)})
    assert proved(world) == (4, proof(4, 6_000))
    rounds.raise_floor(of, {"broker-a/3": 9}, {"broker-a/3": proof(9, 7_000)})
    assert proved(world) == (9, proof(9, 7_000))


def test_a_lower_floor_of_the_same_queue_changes_nothing(world: World) -> None:
    of, rounds = subscription(world.environment), world.ledger.rounds
    rounds.raise_floor(of, {"broker-a/3": 20}, {"broker-a/3": proof(20, 5_000)})
    rounds.raise_floor(of, {"broker-a/3": 12}, {"broker-a/3": proof(12, 4_000)})
    assert proved(world) == (20, proof(20, 5_000))


# ---- outages


def test_an_outage_without_rounds_starts_now_and_is_opened_once(world: World) -> None:
    outages = world.ledger.outages
    assert outages.current(world.environment) is None
    opened = outages.open(world.environment, reason="AWAY", noticed_by="run@host")
    assert (opened.started_at_ms, opened.reason, opened.scanned) == (world.clock.now_ms(), "AWAY", 0)
    assert opened.scan_position is None
    world.clock.advance(9)
    assert outages.open(world.environment, reason="MEMORY_LOST", noticed_by="x") == opened
    assert outages.current(world.environment) == opened
    assert outages.current(world.environment + "x") is None


def test_an_outage_starts_at_the_last_stored_round(world: World) -> None:
    world.ledger.rounds.store(round_done(shard(world.environment, 1), 1, 5))
    world.clock.advance(1)
    last_ms = world.clock.now_ms()
    world.ledger.rounds.store(round_done(shard(world.environment, 2), 1, 5))
    world.clock.advance(30)
    assert world.ledger.outages.open(world.environment, reason="AWAY", noticed_by="x").started_at_ms == last_ms


def test_a_second_outage_before_any_round_gets_a_row_of_its_own(world: World) -> None:
    outages = world.ledger.outages
    world.ledger.rounds.store(round_done(shard(world.environment), 1, 5))
    world.clock.advance(30)
    first = outages.open(world.environment, reason="AWAY", noticed_by="x")
    outages.finish(first)
    second = outages.open(world.environment, reason="AWAY", noticed_by="x")
    assert second.closed_at_ms is None
    assert second.started_at_ms == first.started_at_ms - 1
    assert [one.started_at_ms for one in world.ledger.reports.outages(world.environment, limit=5).rows] == [
        first.started_at_ms,
        second.started_at_ms,
    ]


def test_a_memory_that_was_lost_while_redis_was_away_is_the_reason_of_the_outage(world: World) -> None:
    outages = world.ledger.outages
    opened = outages.open(world.environment, reason="AWAY", noticed_by="run@host")
    outages.note_reason(opened, "MEMORY_LOST")
    assert outages.current(world.environment) == replace(opened, reason="MEMORY_LOST")
    outages.finish(opened)
    later = outages.open(world.environment, reason="AWAY", noticed_by="run@host")
    outages.note_reason(opened, "MEMORY_LOST")
    assert outages.current(world.environment) == later, "a closed row stays"


def test_progress_is_kept_and_announcements_resume_once_the_scan_has_ended(world: World) -> None:
    outages, announcements = world.ledger.outages, world.ledger.announcements
    assert not announcements.open_outage_reason(world.environment)
    announcements.open_outage(world.environment, reason="MEMORY_LOST", noticed_by="announcements@host")
    assert announcements.open_outage_reason(world.environment)
    current = outages.current(world.environment)
    assert current is not None
    outages.advance(current, scan_position={"after": [5, "AB"]}, scanned=1_000)
    assert announcements.open_outage_reason(world.environment)
    outages.advance(current, scan_position={"complete": True, "left_out": {"ORDERS/b": "away"}}, scanned=2_000)
    assert not announcements.open_outage_reason(world.environment)
    current = outages.current(world.environment)
    assert current is not None
    assert (current.is_scanned, current.scanned) == (True, 2_000)
    assert current.left_out == {"ORDERS/b": "away"}
    world.clock.advance(1)
    assert outages.finish(current)
    assert not outages.finish(current), "one of two processes closes it"
    assert outages.current(world.environment) is None
    assert world.ledger.reports.outages(world.environment, limit=1).rows[0].closed_at_ms == world.clock.now_ms()
    outages.advance(current, scan_position={}, scanned=0)
    assert world.ledger.reports.outages(world.environment, limit=1).rows[0].scanned == 2_000, "a closed row stays"


# ---- holds


def test_holds_are_placed_and_lifted_by_kind(world: World) -> None:
    holds, e = world.ledger.holds, world.environment
    assert holds.active(e) == {}
    assert holds.place(e, "ORDERS", HoldKind.HOLD, by="anna", reason="migration")
    (seen,) = world.ledger.reports.holds(e)
    for _ in range(2):
        assert not holds.place(e, "ORDERS", HoldKind.HOLD, by="anna", reason="migration")
        assert world.ledger.reports.holds(e) == [seen], "the same words again"
    for _ in range(2):
        assert not holds.place(e, "ORDERS", HoldKind.HOLD, by="ben", reason="other")
    (again,) = world.ledger.reports.holds(e)
    assert (again.by, again.reason, again.since_ms) == ("anna", "ben: other; migration", seen.since_ms)
    assert not holds.lift_seen(e, seen), "who saw the hold of one person lifts not that of two"
    assert holds.place(e, "ORDERS", HoldKind.BREAKER, by="run@host", reason="1 200 due")
    assert holds.place(e, "PAYMENTS", HoldKind.HOLD, by="anna\x00", reason="x" * 9_000)
    assert {topic: set(kinds) for topic, kinds in holds.active(e).items()} == {
        "ORDERS": {HoldKind.HOLD, HoldKind.BREAKER},
        "PAYMENTS": {HoldKind.HOLD},
    }
    breaker = next(one for one in world.ledger.reports.holds(e) if one.kind is HoldKind.BREAKER)
    assert not holds.lift_seen(e, seen, breaker), "of two brakes one is another one by now: both stay"
    assert holds.active(e + "x") == {}
    assert [(one.topic, one.kind, one.by) for one in world.ledger.reports.holds(e)][:2] == [
        ("ORDERS", HoldKind.BREAKER, "run@host"),
        ("ORDERS", HoldKind.HOLD, "anna"),
    ]
    assert holds.lift(e, "ORDERS", HoldKind.HOLD)
    assert not holds.lift(e, "ORDERS", HoldKind.HOLD)
    assert holds.active(e)["ORDERS"] == [HoldKind.BREAKER]
    assert holds.lift_seen(e, again, breaker) == {HoldKind.BREAKER}, "the other one was lifted by somebody else"


def test_of_two_holds_of_a_topic_the_later_end_counts_and_who_saw_the_earlier_one_lifts_neither(world: World) -> None:
    holds, e = world.ledger.holds, world.environment

    def held() -> HeldTopic:
        (one,) = world.ledger.reports.holds(e)
        return one

    assert holds.place(e, "ORDERS", HoldKind.HOLD, by="anna", reason="release", until_ms=5_000)
    first = held()
    assert first.until_ms == 5_000
    assert not holds.place(e, "ORDERS", HoldKind.HOLD, by="anna", reason="release", until_ms=4_000)
    assert held() == first
    assert not holds.place(e, "ORDERS", HoldKind.HOLD, by="anna", reason="release", until_ms=6_000)
    assert held() == replace(first, until_ms=6_000)
    assert held().seen != first.seen
    assert not holds.lift_seen(e, first)
    assert not holds.place(e, "ORDERS", HoldKind.HOLD, by="ben", reason="other", until_ms=1_000)
    assert (held().until_ms, held().reason) == (6_000, "ben: other; release")
    assert not holds.place(e, "ORDERS", HoldKind.HOLD, by="ben", reason="no end")
    assert held().until_ms is None
    assert not holds.place(e, "ORDERS", HoldKind.HOLD, by="cleo", reason="end", until_ms=9_000)
    assert held().until_ms is None
    assert holds.lift_seen(e, held()) == {HoldKind.HOLD}


def test_a_breaker_that_is_placed_again_counts_from_then_and_is_lifted_only_after_the_calm(world: World) -> None:
    holds, e = world.ledger.holds, world.environment

    def since_ms() -> dict[HoldKind, int]:
        return {one.kind: one.since_ms for one in world.ledger.reports.holds(e)}

    assert holds.place(e, "ORDERS", HoldKind.HOLD, by="anna", reason="migration")
    assert holds.place(e, "ORDERS", HoldKind.BREAKER, by="run@host", reason=TOO_MANY(losses=1_200, ceiling=1_000.0))
    first = since_ms()
    world.clock.advance(60)
    assert not holds.lift(e, "ORDERS", HoldKind.BREAKER, calm_seconds=61)
    storm = TOO_MANY_SO_FAR(losses=1_300, verified=2_000, left_over=500, ceiling=1_234.5)
    assert not holds.place(e, "ORDERS", HoldKind.BREAKER, by="run@other", reason=storm)
    assert not holds.place(e, "ORDERS", HoldKind.HOLD, by="ben", reason="other")
    again = since_ms()
    assert again[HoldKind.HOLD] == first[HoldKind.HOLD]
    assert again[HoldKind.BREAKER] >= first[HoldKind.BREAKER] + 60_000
    reports = {one.kind: (one.by, one.reason, one.why) for one in world.ledger.reports.holds(e)}
    assert reports[HoldKind.BREAKER] == ("run@host", said(storm), storm)
    assert reports[HoldKind.HOLD][2] == "ben: other; migration"
    assert holds.renew(e, "ORDERS")
    assert storm in [one.why for one in world.ledger.reports.holds(e)]
    world.clock.advance(10)
    assert not holds.lift(e, "ORDERS", HoldKind.BREAKER, calm_seconds=60)
    assert holds.lift(e, "ORDERS", HoldKind.BREAKER, calm_seconds=10)
    assert not holds.lift(e, "ORDERS", HoldKind.BREAKER, calm_seconds=10)


def test_a_breaker_that_is_renewed_is_as_young_as_a_new_one_and_none_is_placed(world: World) -> None:
    holds, e = world.ledger.holds, world.environment
    assert not holds.renew(e, "ORDERS")
    assert holds.place(e, "ORDERS", HoldKind.HOLD, by="anna", reason="migration")
    assert not holds.renew(e, "ORDERS")
    assert holds.active(e) == {"ORDERS": [HoldKind.HOLD]}
    assert holds.place(e, "ORDERS", HoldKind.BREAKER, by="run@host", reason="1 200 losses")
    world.clock.advance(60)
    assert holds.renew(e, "ORDERS")
    assert not holds.renew(e + "x", "ORDERS")
    assert not holds.lift(e, "ORDERS", HoldKind.BREAKER, calm_seconds=59)
    of_breaker = [(one.by, one.reason) for one in world.ledger.reports.holds(e) if one.kind is HoldKind.BREAKER]
    assert of_breaker == [("run@host", "1 200 losses")]
    world.clock.advance(59)
    assert holds.lift(e, "ORDERS", HoldKind.BREAKER, calm_seconds=59)
    assert holds.active(e) == {"ORDERS": [HoldKind.HOLD]}


# ---- refused announcements


def test_refused_announcements_are_kept_once_and_bounded(world: World) -> None:
    refused = [
        RefusedAnnouncement(
            queue=QUEUE, queue_offset=offset, reason="MALFORMED", detail="no JSON \x00 \ud800", body=b"\x00" * 9_000
        )
        for offset in (5, 3, 4)
    ]
    announcements, reports = world.ledger.announcements, world.ledger.reports
    announcements.quarantine(world.environment, refused)
    announcements.quarantine(world.environment, [*refused, replace(refused[0], queue_offset=9)])
    announcements.quarantine(world.environment, [])
    rows = reports.quarantined(world.environment, limit=10).rows
    assert [row.refused.queue_offset for row in rows] == [9, 5, 4, 3]
    assert {len(row.refused.body) for row in rows} == {4_096}
    assert rows[0].refused.detail.startswith("no JSON ")
    assert rows[0].seen_at_ms == world.clock.now_ms()
    of_queue = reports.refused_of(world.environment, QUEUE, from_offset=4, limit=2)
    assert [row.refused.queue_offset for row in of_queue] == [4, 5]
    assert reports.refused_of(world.environment, replace(QUEUE, broker="another"), from_offset=0, limit=9) == []
