"""One inbox, or one shard, that cannot be scanned after an outage must not stop the reconciliation of all others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from reconciler.contract.subscription import Subscription
from reconciler.errors import (
    ConfigurationError,
    DatabaseAway,
    InvariantViolation,
    ReconcilerError,
    RedisAway,
    TransientError,
)
from reconciler.policy.events import OutageScanned
from reconciler.policy.evidence import InboxRow
from reconciler.policy.outage import INBOX_WAIT_SECONDS, OutageRecovery
from tests.unit.policy.fake_databases import FakeInbox
from tests.unit.policy.world import ENVIRONMENT, World, key

AWAY = DatabaseAway("its machine is gone")
GONE = ConfigurationError("no such table: reconciler_inbox")
HELD_UP_BY = "ORDERS/other"


class PartlyAway(FakeInbox):
    """The inbox of one group raises."""

    def __init__(self, error: ReconcilerError | None, *, pages_only: bool = False) -> None:
        super().__init__()
        self.error = error
        self.pages_only = pages_only

    def newest_ms(self, subscription: Subscription) -> int | None:
        """The newest row of the group."""
        self._raise_for(subscription, is_page=False)
        return super().newest_ms(subscription)

    def applied_since(
        self, subscription: Subscription, *, since_ms: int, after: tuple[int, str] | None, limit: int
    ) -> Sequence[InboxRow]:
        """A page."""
        self._raise_for(subscription, is_page=True)
        return super().applied_since(subscription, since_ms=since_ms, after=after, limit=limit)

    def _raise_for(self, subscription: Subscription, *, is_page: bool) -> None:
        if self.error is not None and subscription.group == "other" and (is_page or not self.pages_only):
            raise self.error


def world_after_a_blip(inbox: PartlyAway) -> World:
    """Both groups have consumed a message while Redis was away."""
    world = World(shards=1, groups=("billing", "other"))
    world.inbox = inbox
    world.rounds(world.process(), 1)
    world.deliver(1)
    world.consume(records=False)
    world.ledger.outages.open(ENVIRONMENT, reason="AWAY", noticed_by="test")
    return world


def turns(world: World, recovery: OutageRecovery, seconds: float) -> list[str]:
    """Turns as the daemon runs them; what they raised."""
    raised = []
    ends = world.clock.monotonic_seconds() + seconds
    while world.clock.monotonic_seconds() < ends:
        world.clock.advance(1)
        try:
            recovery.run(ENVIRONMENT)
        except TransientError as error:
            raised.append(str(error))
    return raised


def rounds_may_run(world: World) -> bool:
    outage = world.ledger.outages.current(ENVIRONMENT)
    assert outage is not None
    return outage.rounds_may_run


def left_out(world: World) -> list[str]:
    """Of the only scan, told and written down alike."""
    (scanned,) = world.events.of(OutageScanned)
    (outage,) = world.ledger.reports.outages(ENVIRONMENT, limit=9).rows
    assert outage.left_out == scanned.left_out
    return list(scanned.left_out)


@pytest.mark.parametrize("pages_only", [False, True])
def test_an_inbox_that_stays_away_stops_the_others_for_a_minute_only(*, pages_only: bool) -> None:
    world = world_after_a_blip(PartlyAway(AWAY, pages_only=pages_only))
    recovery = world.recovery()
    raised = turns(world, recovery, INBOX_WAIT_SECONDS - 10)
    assert not rounds_may_run(world)
    assert raised
    assert all(HELD_UP_BY in said and "its machine is gone" in said for said in raised)
    turns(world, recovery, 30)
    assert rounds_may_run(world)
    assert left_out(world) == [HELD_UP_BY]
    world.lose(2)
    world.rounds(world.process(), 6)
    assert ("billing", key(2)) in world.inbox.rows


def test_an_inbox_that_was_away_for_a_moment_is_scanned_with_the_others() -> None:
    inbox = PartlyAway(AWAY)
    world = world_after_a_blip(inbox)
    recovery = world.recovery()
    turns(world, recovery, INBOX_WAIT_SECONDS / 2)
    inbox.error = None
    turns(world, recovery, 10)
    assert rounds_may_run(world)
    assert left_out(world) == []
    assert world.events.of(OutageScanned)[0].scanned == 2


def test_each_outage_waits_anew_for_an_inbox_that_is_away() -> None:
    """Redis blips again and again while an inbox comes and goes: the second time it is back within seconds."""
    inbox = PartlyAway(AWAY)
    world = world_after_a_blip(inbox)
    process, recovery = world.process(), world.recovery()
    for _ in range(2):
        inbox.error = AWAY
        with pytest.raises(DatabaseAway):
            recovery.run(ENVIRONMENT)
        world.clock.advance(INBOX_WAIT_SECONDS)
        inbox.error = None
        recovery.run(ENVIRONMENT)
        world.rounds(process, 1)
        assert world.ledger.outages.current(ENVIRONMENT) is None
        world.ledger.outages.open(ENVIRONMENT, reason="AWAY", noticed_by="test")
    assert [event.left_out for event in world.events.of(OutageScanned)] == [{}, {}]


def test_the_wait_for_an_outage_that_another_process_ended_does_not_count_for_the_next() -> None:
    world = world_after_a_blip(PartlyAway(AWAY))
    recovery = world.recovery()
    with pytest.raises(DatabaseAway):
        recovery.run(ENVIRONMENT)
    current = world.ledger.outages.current(ENVIRONMENT)
    assert current is not None
    world.ledger.outages.finish(current)
    world.clock.advance(INBOX_WAIT_SECONDS * 2)
    world.rounds(world.process(), 1)
    world.ledger.outages.open(ENVIRONMENT, reason="AWAY", noticed_by="test")
    with pytest.raises(DatabaseAway):
        recovery.run(ENVIRONMENT)


def test_an_inbox_whose_service_was_retired_neither_ends_the_daemon_nor_holds_up_the_others() -> None:
    """Its table is gone: rounds call that UNKNOWN and go on; the scan raised what stops the daemon, at each start."""
    world = world_after_a_blip(PartlyAway(GONE))
    report = world.recovery().run(ENVIRONMENT)
    assert report is not None
    assert (report.is_scanned, report.scanned) == (True, 1)
    assert rounds_may_run(world)
    assert left_out(world) == [HELD_UP_BY]


def test_a_shard_of_a_wrong_type_costs_its_own_keys_only(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_after_a_blip(PartlyAway(None))
    record = world.shards.record

    def wrong(subscription: Subscription, unique_keys: Sequence[str], *, shards: int) -> None:
        if subscription.group == "other":
            raise InvariantViolation("Redis key of a wrong type")
        record(subscription, unique_keys, shards=shards)

    monkeypatch.setattr(world.shards, "record", wrong)
    turns(world, world.recovery(), 1)
    assert rounds_may_run(world)
    assert left_out(world) == [HELD_UP_BY]


def test_the_ledger_that_is_away_ends_the_turn_and_no_subscription_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = world_after_a_blip(PartlyAway(None))
    recovery = world.recovery()

    def away(*_args: object, **_kwargs: object) -> None:
        raise DatabaseAway("ledger")

    with monkeypatch.context() as patch:
        patch.setattr(world.ledger.outages, "advance", away)
        assert set(turns(world, recovery, INBOX_WAIT_SECONDS * 2)) == {"ledger"}
    turns(world, recovery, 1)
    assert left_out(world) == []


@pytest.mark.parametrize("error", [AWAY, GONE])
def test_by_hand_the_others_are_scanned_before_a_refusal_is_raised(error: ReconcilerError) -> None:
    world = world_after_a_blip(PartlyAway(error))
    told: list[int] = []
    with pytest.raises(type(error)):
        world.recovery().rebuild(ENVIRONMENT, since_ms=0, progress=told.append)
    assert told == [1]


def test_by_hand_an_open_outage_goes_on_and_what_was_left_out_is_raised() -> None:
    world = world_after_a_blip(PartlyAway(GONE))
    with pytest.raises(ConfigurationError, match="no such table"):
        world.recovery().rebuild(ENVIRONMENT)
    assert rounds_may_run(world)


def test_redis_that_goes_away_during_the_scan_leaves_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_after_a_blip(PartlyAway(None))

    def away(*_args: object, **_kwargs: object) -> None:
        raise RedisAway("refused")

    with monkeypatch.context() as patch:
        patch.setattr(world.shards, "record", away)
        report = world.recovery().run(ENVIRONMENT)
    assert report is not None
    assert not report.is_scanned
    turns(world, world.recovery(), 1)
    assert left_out(world) == []
