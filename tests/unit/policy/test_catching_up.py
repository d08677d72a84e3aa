"""After Redis fell back, or recorders were away, most due keys have arrived long ago, and in a flood of forged
announcements most were never committed: rounds must get through them.
"""

from __future__ import annotations

import pytest

from reconciler.contract.tables import CandidateState
from reconciler.policy.brakes import BreakerRules
from reconciler.policy.events import RoundFinished
from reconciler.policy.judging.selection import SelectionRules
from reconciler.policy.round import CATCH_UP_PASSES, RoundReport
from tests.unit.policy.world import World, key

ROOM = 10


def due_round(arrived: int, lost: int) -> tuple[World, RoundReport]:
    """The round for which so many keys are due, losses last; consumers took the others and recorded none."""
    world = World(selection=SelectionRules(skew_margin_seconds=0.5, candidates_max=ROOM))
    for number in range(arrived):
        world.deliver(number)
    world.consume(records=False)
    process = world.process()
    process.run(world.subscriptions[0])
    world.clock.advance(1)
    for number in range(arrived, arrived + lost):
        world.lose(number)
    process.run(world.subscriptions[0])
    world.clock.advance(60)
    return world, process.run(world.subscriptions[0])


@pytest.mark.parametrize("arrived", [ROOM - 1, ROOM, 3 * ROOM, (CATCH_UP_PASSES - 2) * ROOM])
def test_keys_that_have_arrived_hold_up_nobody_until_the_next_round(arrived: int) -> None:
    world, report = due_round(arrived, lost=0)
    assert world.pending() == []
    assert report.event is not None
    assert (report.event.verified, report.event.settled) == (arrived, arrived)
    assert (report.event.became_due, report.event.verdicts) == (arrived, {"CONSUMED": arrived})


def test_a_loss_behind_many_that_have_arrived_is_repaired_in_the_same_round() -> None:
    world, report = due_round(5 * ROOM, lost=1)
    assert len(world.broker.ends) == 1
    assert report.event is not None
    assert report.event.verdicts == {"CONSUMED": 5 * ROOM, "LOST_CONFIRM": 1}
    # Not one object a key: a round that catches up with a day would not fit in memory.
    assert len(report.judged) <= 2 * ROOM + 1


def test_a_round_ends_however_much_is_left() -> None:
    world, report = due_round((CATCH_UP_PASSES + 2) * ROOM, lost=0)
    assert len(world.pending()) >= 2 * ROOM
    assert report.event is not None
    assert (CATCH_UP_PASSES - 1) * ROOM < report.event.verified <= CATCH_UP_PASSES * ROOM


def test_losses_are_looked_at_no_faster_than_before() -> None:
    """Their look-ups cost the brokers: candidates_max bounds them in each round."""
    world, report = due_round(ROOM, lost=3 * ROOM)
    assert report.event is not None
    assert report.event.verdicts["CONSUMED"] == ROOM
    assert ROOM // 2 < report.event.verdicts["LOST_CONFIRM"] <= ROOM
    assert len(world.events.of(RoundFinished)) == 3


FORGED = 4 * CATCH_UP_PASSES * ROOM


def flooded(
    *, lost: int, after: int = FORGED // 2, forged: int = FORGED, breaker: BreakerRules | None = None, more: int = 0
) -> tuple[World, list[RoundReport], list[str]]:
    """So many real losses in the middle of a flood of keys without a commit, and the rounds until all is known.

    `more`: forged keys that are announced while the others are judged.
    """
    selection = SelectionRules(skew_margin_seconds=0.5, candidates_max=ROOM)
    world = World(selection=selection, shards=1, breaker=breaker)
    world.broker.check_back_wait = 0.0
    process = world.process()
    world.announce(*(key(0x1000 + number) for number in range(after)))
    process.run(world.subscriptions[0])
    world.clock.advance(1)
    losses = [world.lose(number) for number in range(lost)]
    process.run(world.subscriptions[0])
    world.clock.advance(1)
    world.announce(*(key(0x1000 + number) for number in range(after, forged)))
    process.run(world.subscriptions[0])
    reports: list[RoundReport] = []
    world.clock.advance(10)
    while any(world.candidate(one) is None for one in losses):
        world.announce(*(key(0x100000 + number) for number in range(more)))
        reports += world.rounds(process, 1, every=1.0)
        assert len(reports) < 50
    return world, reports, losses


def test_a_loss_in_a_flood_of_forged_keys_waits_for_ten_passes_a_round_and_for_no_broker() -> None:
    world, reports, (lost,) = flooded(lost=1)
    # Half of the flood was announced before the loss.
    assert len(reports) == FORGED // 2 // (CATCH_UP_PASSES * ROOM) + 1
    assert {unique_key for _, unique_key in world.broker.look_ups} == {lost}
    assert world.verdict(lost) == "LOST_CONFIRM"
    row = world.candidate(key(0x1000))
    assert row is not None
    assert (row.state, row.verdict) == (CandidateState.SETTLED, "REJECTED")


def test_a_flood_beside_losses_takes_the_brokers_room_from_none_of_them() -> None:
    """As many losses as one round may look up, behind forged keys in the same round."""
    world, reports, losses = flooded(lost=ROOM, after=ROOM)
    assert len(reports) == 1
    assert [world.verdict(one) for one in losses] == ["LOST_CONFIRM"] * ROOM


def test_forged_keys_open_no_breaker() -> None:
    world, _, _ = flooded(lost=ROOM)
    assert world.ledger.holds.active("test") == {}


def test_forged_keys_do_not_make_room_for_more_losses_below_the_breaker() -> None:
    """The breaker allows a share of what was announced."""
    rules = BreakerRules(candidates_min=ROOM // 2, share=0.05)
    world, _, _ = flooded(lost=ROOM, after=5 * ROOM, forged=5 * ROOM, breaker=rules, more=100 * ROOM)
    assert world.ledger.holds.active("test") != {}


def test_a_round_stops_where_an_outbox_does_not_answer() -> None:
    """Nothing is settled then: ten passes would write ten times as many rows for nothing."""
    world = World(selection=SelectionRules(skew_margin_seconds=0.5, candidates_max=ROOM), shards=1)
    world.outbox.away = True
    world.announce(*(key(number) for number in range(5 * ROOM)))
    report = world.rounds(world.process(), 3)[-1]
    assert report.event is not None
    assert report.event.verdicts == {"UNKNOWN": ROOM}
