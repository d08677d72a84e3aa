"""Redis away, wiped, fallen back: rounds pause, the scan runs, the row is closed, the floor never lies."""

from __future__ import annotations

import pytest

from reconciler.contract.subscription import Shard
from reconciler.contract.verdicts import Verdict
from reconciler.errors import DatabaseAway, InvariantViolation, RedisAway, RedisUnasked, UsageError
from reconciler.policy.events import OutageClosed, OutageOpened, OutageScanned, RoundsVoided, ShardStopped
from reconciler.policy.evidence import as_foreign
from reconciler.policy.round import OUTAGE_OPEN, SUSPENDED
from reconciler.words import said
from tests.unit.policy.world import ENVIRONMENT, World, key


def world_with_history() -> World:
    world = World(shards=1)
    world.deliver(1)
    world.rounds(world.process(), 1)
    return world


def test_first_start_is_no_outage() -> None:
    world = World()
    world.rounds(world.process(), 1)
    assert world.events.of(OutageOpened) == []


def test_wiped_memory_opens_an_outage_scans_and_closes_in_order() -> None:
    world = world_with_history()
    process = world.process()
    for number in range(2, 12):
        world.deliver(number)
    world.consume(records=False)
    world.shards.wipe()
    report = world.rounds(process, 1)[0]
    assert report.suspended is not None
    assert said(report.suspended).startswith("MEMORY_LOST: no epoch marker in ")
    assert world.ledger.announcements.open_outage_reason(ENVIRONMENT)
    assert world.rounds(process, 1)[0].suspended == OUTAGE_OPEN(reason="MEMORY_LOST")
    told: list[int] = []
    recovered = world.recovery(page_rows=4).run(ENVIRONMENT, progress=told.append)
    assert recovered is not None
    assert (recovered.is_scanned, recovered.scanned) == (True, 11)
    assert told == [4, 8, 11]
    # Announcements resume before the rounds, which close the row.
    assert not world.ledger.announcements.open_outage_reason(ENVIRONMENT)
    assert world.ledger.outages.current(ENVIRONMENT) is not None
    again = world.recovery().run(ENVIRONMENT)
    assert again is not None
    assert again.is_scanned
    world.rounds(process, 1)
    assert world.ledger.outages.current(ENVIRONMENT) is None
    assert world.recovery().run(ENVIRONMENT) is None
    kinds = [type(e) for e in world.events.all if isinstance(e, OutageOpened | OutageScanned | OutageClosed)]
    assert kinds == [OutageOpened, OutageScanned, OutageClosed]


def test_scan_begins_a_minute_before_the_start() -> None:
    world = World(shards=1)
    world.deliver(1)
    world.consume()
    world.clock.advance(61)
    world.deliver(2)
    world.consume()
    world.clock.advance(59)
    world.rounds(world.process(), 1, every=0)
    world.shards.wipe()
    world.rounds(world.process(), 1, every=0)
    report = world.recovery().run(ENVIRONMENT)
    assert report is not None
    assert report.scanned == 1


def test_redis_that_is_away_pauses_everything_until_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_with_history()
    process = world.process()

    def away(shard: Shard) -> None:
        raise RedisAway("refused")

    with monkeypatch.context() as patch:
        patch.setattr(world.shards, "state", away)
        world.clock.advance(5)
        assert process.run(world.subscriptions[0]).suspended == SUSPENDED(reason="AWAY", detail=as_foreign("refused"))
        report = world.recovery().run(ENVIRONMENT)
        assert report is not None
        assert (report.is_scanned, report.scanned) == (False, 0)
    report = world.recovery().run(ENVIRONMENT)
    assert report is not None
    assert report.is_scanned
    assert world.rounds(process, 1)[0].suspended is None


def test_a_process_that_cannot_ask_redis_opens_no_outage_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_with_history()
    lacking, other = world.process(), world.process()

    def unasked(shard: Shard) -> None:
        raise RedisUnasked("Too many open files")

    world.clock.advance(5)
    with monkeypatch.context() as patch:
        patch.setattr(world.shards, "state", unasked)
        with pytest.raises(RedisUnasked):
            lacking.run(world.subscriptions[0])
    assert world.ledger.outages.current(ENVIRONMENT) is None
    assert other.run(world.subscriptions[0]).suspended is None


@pytest.mark.parametrize(("wiped", "reason"), [(True, "MEMORY_LOST"), (False, "AWAY")])
def test_memory_that_is_lost_while_redis_is_away_is_told(wiped: bool, reason: str) -> None:
    world = world_with_history()
    world.ledger.outages.open(ENVIRONMENT, reason="AWAY", noticed_by="test")
    if wiped:
        world.shards.wipe()
    world.recovery().run(ENVIRONMENT)
    world.rounds(world.process(), 1)
    (closed,) = world.events.of(OutageClosed)
    assert closed.reason == reason


def test_memory_that_was_lost_is_told_although_a_process_dies_once_its_marker_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = world_with_history()
    world.ledger.outages.open(ENVIRONMENT, reason="AWAY", noticed_by="test")
    world.shards.wipe()
    begin = world.shards.begin_epoch

    def dies(shard: Shard) -> None:
        begin(shard)
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(world.shards, "begin_epoch", dies)
        with pytest.raises(SystemExit):
            world.recovery().run(ENVIRONMENT)
    world.recovery().run(ENVIRONMENT)
    world.rounds(world.process(), 1)
    (closed,) = world.events.of(OutageClosed)
    assert closed.reason == "MEMORY_LOST"


def test_memory_without_rounds_is_none_that_was_lost() -> None:
    world = World(shards=1)
    world.ledger.outages.open(ENVIRONMENT, reason="AWAY", noticed_by="test")
    world.recovery().run(ENVIRONMENT)
    world.rounds(world.process(), 1)
    assert world.events.of(OutageClosed)[0].reason == "AWAY"


def test_memory_that_is_lost_again_after_the_scan_is_scanned_again() -> None:
    world = world_with_history()
    process = world.process()
    world.shards.wipe()
    world.rounds(process, 1)
    world.recovery().run(ENVIRONMENT)
    world.shards.wipe()
    world.rounds(process, 1)
    assert world.ledger.announcements.open_outage_reason(ENVIRONMENT)
    report = world.recovery().run(ENVIRONMENT)
    assert report is not None
    assert report.scanned == 1
    world.rounds(process, 1)
    assert world.ledger.outages.current(ENVIRONMENT) is None


def test_inbox_that_is_away_leaves_the_outage_open_and_one_without_url_is_skipped() -> None:
    world = world_with_history()
    world.shards.wipe()
    world.rounds(world.process(), 1)
    world.inbox.away = True
    with pytest.raises(DatabaseAway):
        world.recovery().run(ENVIRONMENT)
    assert world.ledger.announcements.open_outage_reason(ENVIRONMENT)
    world.inbox.configured = False
    report = world.recovery().run(ENVIRONMENT)
    assert report is not None
    assert (report.is_scanned, report.scanned) == (True, 0)


def test_rebuild_by_hand_needs_a_time_or_an_open_outage() -> None:
    world = world_with_history()
    with pytest.raises(UsageError, match="--since"):
        world.recovery().rebuild(ENVIRONMENT)
    told: list[int] = []
    assert world.recovery().rebuild(ENVIRONMENT, since_ms=0, progress=told.append) == 1
    assert told == [1]
    assert world.recovery().rebuild(ENVIRONMENT, since_ms=world.clock.now_ms() + 1) == 0
    world.shards.wipe()
    world.rounds(world.process(), 1)
    assert world.recovery().rebuild(ENVIRONMENT) == 1
    assert not world.ledger.announcements.open_outage_reason(ENVIRONMENT)
    assert world.recovery().rebuild("elsewhere", since_ms=0) == 0


def test_shard_of_a_wrong_type_is_stopped_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(shards=2)
    keys = [world.deliver(number) for number in range(1, 9)]
    state = world.shards.state

    def wrong(shard: Shard) -> object:
        if shard.number == 0:
            raise InvariantViolation("commit is a string", cause="wrong-type")
        return state(shard)

    monkeypatch.setattr(world.shards, "state", wrong)
    report = world.rounds(world.process(), 1)[0]
    assert report.event is not None
    assert (report.event.shards_run, report.event.shards_skipped) == (1, 1)
    assert "commit is a string" in said(report.event.problems[0])
    assert [stopped.cause for stopped in world.events.of(ShardStopped)] == ["wrong-type"]
    assert keys
    world.ledger.outages.open(ENVIRONMENT, reason="MANUAL", noticed_by="test")
    recovered = world.recovery().run(ENVIRONMENT)
    assert recovered is not None
    assert recovered.is_scanned


def test_shard_that_another_owner_holds_is_skipped_and_given_up_leases_are_free() -> None:
    world = World(shards=1)
    first, second = world.process(owner="first"), world.process(owner="second")
    world.rounds(first, 1)
    report = second.run(world.subscriptions[0])
    assert report.event is not None
    assert (report.event.shards_run, report.event.shards_skipped) == (0, 1)
    first.release()
    report = second.run(world.subscriptions[0])
    assert report.event is not None
    assert report.event.shards_run == 1


# ---- a Redis that lost its tail


def test_rounds_that_redis_forgot_are_void() -> None:
    world = World(shards=1)
    process = world.process()
    world.rounds(process, 1)
    snapshot = world.shards.save()
    for number in (1, 2):
        world.lose(number)
        world.rounds(process, 1)
    world.shards.restore(snapshot)
    world.announce(key(1), key(2))
    world.rounds(process, 12)
    assert [event.rounds for event in world.events.of(RoundsVoided)] == [2]
    assert ("billing", key(1)) in world.inbox.rows


def test_round_of_a_quicker_owner_is_not_taken_for_a_fall_back(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(shards=1)
    process = world.process()
    world.rounds(process, 1)
    shard = world.topic.shards_of(world.subscriptions[0])[0]
    last = world.ledger.rounds.last

    def quicker(asked: Shard) -> object:
        monkeypatch.setattr(world.ledger.rounds, "last", last)
        epoch = world.shards.state(shard).epoch
        assert epoch is not None
        world.clock.advance(1)
        done = world.shards.take_round(shard, epoch=epoch)
        assert done is not None
        world.ledger.rounds.store(done)
        return last(asked)

    monkeypatch.setattr(world.ledger.rounds, "last", quicker)
    world.rounds(process, 1)
    assert world.events.of(RoundsVoided) == []


def test_round_that_nobody_can_tell_of_still_judges_what_is_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(shards=1)
    lost = world.lose(1)
    process = world.process()
    world.rounds(process, 2)
    monkeypatch.setattr(world.shards, "take_round", lambda *_args, **_kwargs: None)
    report = world.rounds(process, 2)[0]
    assert report.event is not None
    assert report.event.shards_run == 0
    candidate = world.candidate(lost)
    assert candidate is not None
    assert candidate.loss_verdict is Verdict.LOST_CONFIRM
