"""A clock is set back, or a node that is behind takes over: losses are found and repaired no later than otherwise."""

from __future__ import annotations

import pytest

from reconciler.contract.tables import RepairState
from reconciler.policy.brakes import BreakerRules
from reconciler.policy.events import BreakerOpened, RoundFinished
from reconciler.policy.judging.selection import SelectionRules
from tests.unit.policy.world import World, key


@pytest.mark.parametrize("step", [0.0, -90.0, -3_600.0, -86_400.0 * 300])
def test_a_loss_after_the_clock_was_set_back_waits_for_its_grace_period_only(step: float) -> None:
    world = World(shards=1, grace=10.0)
    process = world.process()
    world.rounds(process, 3)
    world.redis_clock.wrong_by_seconds = step
    world.lose(1)
    world.rounds(process, 2, every=4.0)
    assert world.broker.ends == []
    world.rounds(process, 3, every=4.0)
    assert len(world.broker.ends) == 1


def test_a_key_that_was_pending_when_the_clock_was_set_back_begins_its_grace_period_again() -> None:
    world = World(shards=1, grace=10.0)
    process = world.process()
    world.lose(1)
    world.rounds(process, 1)
    world.redis_clock.wrong_by_seconds = -3_600.0
    world.rounds(process, 1, every=1.0)
    world.rounds(process, 2, every=4.0)
    assert world.broker.ends == []
    world.rounds(process, 2, every=4.0)
    assert len(world.broker.ends) == 1


@pytest.mark.parametrize("ahead", [90.0, 3_600.0, 86_400.0 * 365])
def test_a_loss_that_was_looked_at_while_redis_was_ahead_is_repaired_once_it_was_set_right(ahead: float) -> None:
    """The ledger had dated it: the gate and the brokers' horizon waited until that time would come."""
    world = World(shards=1, grace=10.0)
    process = world.process()
    world.rounds(process, 3)
    world.redis_clock.wrong_by_seconds = ahead
    world.lose(1)
    world.rounds(process, 4)
    assert (world.verdict(key(1)), world.broker.ends) == ("UNKNOWN", [])
    world.redis_clock.wrong_by_seconds = 0.0
    world.rounds(process, 12)
    assert len(world.broker.ends) == 1
    known = world.candidate(key(1))
    assert known is not None
    assert known.first_seen_ms <= world.clock.now_ms()


def test_the_round_tells_that_the_clock_is_behind_and_by_how_much() -> None:
    world = World(shards=1)
    process = world.process()
    world.rounds(process, 1)
    world.redis_clock.wrong_by_seconds = -3_600.0
    world.rounds(process, 1)
    finished = [event for event in world.events.all if isinstance(event, RoundFinished)]
    assert [round(event.clock_behind_seconds) for event in finished] == [0, 3595]
    assert finished[1].problems == ()


@pytest.mark.parametrize("wrong_by_seconds", [0.0, -3_600.0])
def test_the_grace_period_counts_from_the_commit_by_whatever_clock_redis_has(wrong_by_seconds: float) -> None:
    """Announced before its commit, as a stranger can: nothing is repaired while its own END may be on its way."""
    world = World(shards=1, grace=10.0)
    process = world.process()
    world.rounds(process, 3)
    world.redis_clock.wrong_by_seconds = wrong_by_seconds
    half = world.broker.send_half(key(1))
    world.announce(key(1))
    world.rounds(process, 1, every=1.0)
    world.clock.advance(10.5)
    world.commit_locally(key(1), half)
    world.rounds(process, 9, every=1.0)
    assert (world.verdict(key(1)), world.broker.ends) == ("UNKNOWN", [])
    world.rounds(process, 9, every=1.0)
    assert len(world.broker.ends) == 1


@pytest.mark.parametrize("wrong_by_seconds", [0.0, -3_600.0])
def test_a_storm_of_losses_opens_the_breaker_by_whatever_clock_redis_has(wrong_by_seconds: float) -> None:
    """More becomes due at once than a round has room for: what is left over counts, too."""
    rules = SelectionRules(skew_margin_seconds=0.5, candidates_max=20)
    world = World(shards=1, selection=rules, breaker=BreakerRules(candidates_min=25))
    process = world.process()
    world.lose(900)
    world.rounds(process, 6)
    world.redis_clock.wrong_by_seconds = wrong_by_seconds
    for number in range(300):
        world.lose(number)
    world.rounds(process, 6)
    assert len(world.events.of(BreakerOpened)) == 1


@pytest.mark.parametrize(("wrong_by_seconds", "told"), [(0.0, 0), (0.4, 0), (-0.4, 0), (60.0, -60), (-60.0, 60)])
def test_clocks_that_differ_by_more_than_the_margin_are_told_by_the_round(wrong_by_seconds: float, told: int) -> None:
    """While Redis is ahead of a broker, nothing is proved for as long: the reason must not have to be guessed."""
    world = World(shards=1, grace=10.0)
    process = world.process()
    world.redis_clock.wrong_by_seconds = wrong_by_seconds
    world.lose(1)
    world.rounds(process, 3)
    finished = world.events.of(RoundFinished)
    assert {round(event.clocks_apart_seconds) for event in finished} == {0, told}


def test_a_loss_waits_until_a_broker_that_is_behind_redis_has_caught_up() -> None:
    world = World(shards=1, grace=10.0)
    process = world.process()
    world.redis_clock.wrong_by_seconds = 60.0
    world.lose(1)
    world.rounds(process, 3)
    assert (world.verdict(key(1)), world.broker.ends) == ("UNKNOWN", [])
    world.rounds(process, 15)
    assert len(world.broker.ends) == 1


@pytest.mark.parametrize("step", [0.0, -3_600.0, -86_400.0])
def test_a_repair_whose_effect_is_there_ends_although_the_ledger_was_set_back_after_its_send(step: float) -> None:
    """It waited for put-back copies until the time of its send had come again."""
    world = World(shards=1, grace=10.0)
    process = world.process()
    world.lose(1)
    world.rounds(process, 4, consume=False)
    repair = world.repair(key(1))
    assert repair is not None
    assert repair.state is RepairState.SENT
    world.ledger_clock.wrong_by_seconds = step
    world.rounds(process, 3, every=2.5)
    repair = world.repair(key(1))
    assert repair is not None
    assert (repair.state, repair.attempts) == (RepairState.DONE, 1)


@pytest.mark.parametrize("step", [0.0, -3_600.0])
def test_a_lost_copy_is_sent_again_after_the_same_patience_although_the_ledger_was_set_back(step: float) -> None:
    world = World(shards=1, grace=10.0)
    process = world.process()
    world.lose(1)
    world.rounds(process, 4, consume=False)
    assert len(world.broker.ends) == 1
    world.ledger_clock.wrong_by_seconds = step
    world.broker.copies.clear()
    world.rounds(process, 3, consume=False)
    assert world.broker.republished == []
    world.rounds(process, 6, consume=False)
    assert len(world.broker.ends) + len(world.broker.republished) == 2
