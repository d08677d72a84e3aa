"""The grace period counts from the commit, too: an announcement before it hastens no repair."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Verdict
from reconciler.policy.events import KeysLeft
from reconciler.policy.judging.judgement import OWN_ANNOUNCEMENT_SECONDS_MAX, Judgement, _young
from reconciler.policy.round import ReconcileRound
from tests.unit.policy.world import World, key

#: Seconds; rounds come every second.
GRACE = 10.0


def announced_before_its_commit(
    *, begun: float = 8.0, committed: float = 8.0, is_announced: bool = True
) -> tuple[World, ReconcileRound]:
    """A stranger's announcement; seconds later the row is written, the transaction commits, and END is lost."""
    world = World(shards=1, grace=GRACE)
    half = world.broker.send_half(key(1))
    world.announce(key(1))
    process = world.process()
    world.rounds(process, 1, every=0.0)
    world.clock.advance(begun)
    written_ms = world.clock.now_ms()
    world.clock.advance(committed - begun)
    now_ms = world.clock.now_ms()
    announced_ms = now_ms if is_announced else None
    world.commit_locally(key(1), half, created_at_ms=written_ms, announced_at_ms=announced_ms)
    return world, process


def seconds_to_repair(world: World, process: ReconcileRound) -> float:
    began_ms = world.clock.now_ms()
    for _ in range(100):
        world.rounds(process, 1, every=1.0)
        if world.broker.ends:
            return (world.clock.now_ms() - began_ms) / 1000
    raise AssertionError("never repaired")


def test_a_key_announced_before_its_commit_is_not_repaired_within_the_grace_period_of_the_commit() -> None:
    assert GRACE <= seconds_to_repair(*announced_before_its_commit()) <= GRACE + 3


def test_a_long_transaction_is_counted_from_its_own_announcement() -> None:
    world, process = announced_before_its_commit(begun=1.0, committed=20.0)
    assert GRACE <= seconds_to_repair(world, process) <= GRACE + 3


@pytest.mark.parametrize("committed", [1.0, 20.0, 60.0])
def test_a_long_transaction_that_its_service_has_not_announced_yet_may_have_ended_just_now(committed: float) -> None:
    world, process = announced_before_its_commit(begun=1.0, committed=committed, is_announced=False)
    waited = seconds_to_repair(world, process)
    assert GRACE <= waited <= OWN_ANNOUNCEMENT_SECONDS_MAX + GRACE + 3


def test_an_announcement_that_is_repeated_all_the_time_does_not_put_the_key_off_for_ever() -> None:
    world, process = announced_before_its_commit()
    for _ in range(100):
        world.outbox.rows[key(1)] = replace(world.outbox.rows[key(1)], announced_at_ms=world.clock.now_ms())
        world.rounds(process, 1, every=1.0)
    assert world.broker.ends


def test_a_row_that_was_written_in_the_future_counts_from_the_announcement() -> None:
    """A clock that is further ahead than clocks may differ tells nothing."""
    world = World(shards=1, grace=GRACE)
    half = world.broker.send_half(key(1))
    world.announce(key(1))
    world.commit_locally(key(1), half, created_at_ms=world.clock.now_ms() + 3_600_000)
    assert seconds_to_repair(world, world.process()) <= GRACE + 3


def test_a_message_announced_before_its_commit_and_acknowledged_without_an_effect_is_shown_to_a_person() -> None:
    """A stranger's announcement was rejected; what the ledger then says of the key must not hide what became of it."""
    world = World(shards=1, grace=GRACE)
    half = world.broker.send_half(key(1))
    world.announce(key(1))
    process = world.process()
    world.rounds(process, 10)
    assert world.verdict(key(1)) == "REJECTED"
    world.commit_locally(key(1), half)
    world.broker.commit(half)
    world.announce(key(1))
    world.consume(effects=False)
    world.rounds(process, 20)
    row = world.candidate(key(1))
    assert row is not None
    assert (row.state, row.verdict) == (CandidateState.QUARANTINED, Verdict.DELIVERED_NOT_APPLIED)
    assert world.pending() == []
    left = [key for event in world.events.of(KeysLeft) for key in event.keys]
    assert (left[-1].state, left[-1].verdict) == (row.state, row.verdict)


#: One look at a row: grace period 10 s, clocks may differ by 500 ms.
NOW_MS = 1_000_000


@pytest.mark.parametrize(
    ("written_ms", "announced_ms", "wait_seconds"),
    [
        (NOW_MS - 10_000, NOW_MS - 10_000, None),
        (NOW_MS - 9_999, NOW_MS - 9_999, 0.001),
        # Announced long after it was written: by its own service within a minute, else it is a repetition.
        (NOW_MS - 30_000, NOW_MS - 4_000, 6.0),
        (NOW_MS - 69_999, NOW_MS - 1_000, 0.001),
        (NOW_MS - 70_000, NOW_MS - 1_000, None),
        # Not announced: the commit may have come just now.
        (NOW_MS - 30_000, None, 10.0),
        (NOW_MS - 70_000, None, None),
        # Ahead by as much as clocks may differ, and by more, which proves nothing.
        (NOW_MS + 500, NOW_MS + 500, 10.5),
        (NOW_MS + 501, NOW_MS + 501, None),
        (NOW_MS - 30_000, NOW_MS + 501, None),
    ],
)
def test_a_key_is_judged_a_millisecond_before_its_grace_period_is_over(
    written_ms: int, announced_ms: int | None, wait_seconds: float | None
) -> None:
    look: Any = SimpleNamespace(
        row=SimpleNamespace(message=SimpleNamespace(created_at_ms=written_ms), announced_at_ms=announced_ms),
        now_ms=NOW_MS,
        plan=SimpleNamespace(grace_period_seconds=10.0),
        skew_margin_seconds=0.5,
    )
    judgement = _young(look)
    assert (None if judgement is None else cast(Judgement, judgement).wait_seconds) == wait_seconds
    assert _young(replace_in(look, row=None)) is None, "no row, no commit"
    assert _young(replace_in(look, now_ms=None)) is None, "a person does not wait"


def replace_in(look: Any, **changes: object) -> Any:
    return SimpleNamespace(**{**vars(look), **changes})
