"""When the breaker freezes a topic's repairs, and when it lets them go on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.contract.tables import HoldKind
from reconciler.policy.brakes import BreakerRules, RoundLoad
from reconciler.policy.events import BreakerClosed, BreakerOpened, RoundFinished
from reconciler.policy.judging.selection import SelectionRules
from reconciler.policy.repairing.repair import RepairRules
from reconciler.words import said
from tests.unit.policy.world import ENVIRONMENT, TOPIC, World, key


@pytest.mark.parametrize(
    ("announced", "left_over", "verified", "losses", "opens"),
    [
        *((0, 0, 9_000, losses, losses > 1_000) for losses in (1_000, 1_001)),
        *((40_000, 0, 9_000, losses, losses > 2_000) for losses in (1_001, 2_000, 2_001)),
        # 5 % of what is announced may be more than a round verifies: then no count of losses would reach it.
        (100_000, 8_000, 2_000, 2_000, True),
        (100_000, 8_000, 2_000, 10, False),
        (100_000, 8_000, 0, 0, False),
    ],
)
def test_breaker_counts_what_would_be_repaired(
    announced: int, left_over: int, verified: int, losses: int, opens: bool
) -> None:
    load = RoundLoad(
        announced=announced, left_over=left_over, verified=verified, losses=losses, half_asked=0, found_nowhere=0
    )
    assert (BreakerRules().too_many(load) is not None) == opens


def test_keys_that_were_consumed_and_not_recorded_stop_no_repair() -> None:
    world = World(breaker=BreakerRules(candidates_min=5))
    for number in range(30):
        world.deliver(number)
    world.consume(records=False)
    lost = world.lose(99)
    world.rounds(world.process(), 6)
    assert world.events.of(BreakerOpened) == []
    assert (world.verdict(key(1)), world.verdict(lost)) == ("CONSUMED", "CONSUMED")
    assert len(world.broker.ends) == 1


def test_losses_that_wait_behind_the_open_breaker_do_not_keep_it_open() -> None:
    world = World(breaker=BreakerRules(candidates_min=5), selection=SelectionRules(skew_margin_seconds=0.5))
    for number in range(6):
        world.lose(number)
    process = world.process()
    world.rounds(process, 3)
    verified = [event.verified for event in world.events.of(RoundFinished)]
    world.rounds(process, 6)
    again = [event.verified for event in world.events.of(RoundFinished)][len(verified) :]
    assert (verified[-1], max(again[:3])) == (6, 6), "they are verified in the rounds that count as calm"
    assert len(world.events.of(BreakerClosed)) == 1
    assert len(world.broker.ends) == 6


@pytest.mark.parametrize(("asked", "absent", "opens"), [
    (49, 49, False), (50, 10, False), (50, 11, True), (100, 20, False), (100, 21, True)])  # fmt: skip
def test_breaker_opens_when_too_much_is_nowhere(asked: int, absent: int, opens: bool) -> None:
    assert (BreakerRules().too_absent(asked, absent) is not None) == opens


def test_the_reason_reads_as_0_2_0_writes_it() -> None:
    load = RoundLoad(announced=2_000, left_over=0, verified=1_800, losses=1_500, half_asked=0, found_nowhere=0)
    told = [
        BreakerRules().too_many(load),
        BreakerRules(share=0.05).too_many(replace(load, announced=24_690, left_over=200)),
        BreakerRules(candidates_min=2_000_000).too_many(replace(load, losses=3_000_000)),
        BreakerRules().too_absent(60, 41),
    ]
    assert [said(why) for why in told if why is not None] == [
        "1500 new losses in one round: more than 1000",
        "1500 new losses in one round among 1800 verified keys, with 200 to go: more than 1234.5",
        "3000000 new losses in one round: more than 2e+06",
        "41 of 60 messages were found nowhere: rather the look-ups are wrong",
    ]


def test_breaker_freezes_repairs_and_three_calm_rounds_close_it() -> None:
    world = World(breaker=BreakerRules(candidates_min=5))
    lost = [world.lose(number) for number in range(6)]
    process = world.process()
    world.rounds(process, 3)
    assert list(world.ledger.holds.active(ENVIRONMENT)[TOPIC]) == [HoldKind.BREAKER]
    assert {world.verdict(k) for k in lost} == {"LOST_CONFIRM"}
    assert world.broker.ends == []
    world.rounds(process, 2)
    assert world.broker.ends == []
    world.rounds(process, 3)
    assert len(world.broker.ends) == 6
    assert [opened.cause for opened in world.events.of(BreakerOpened)] == ["too-many"]
    assert len(world.events.of(BreakerClosed)) == 1


def test_known_candidates_do_not_open_the_breaker_again_after_a_restart() -> None:
    world = World(breaker=BreakerRules(candidates_min=5), repair=RepairRules(enabled=False))
    for number in range(6):
        world.lose(number)
    world.rounds(world.process(), 3)
    world.ledger.holds.lift(ENVIRONMENT, TOPIC, HoldKind.BREAKER)
    world.rounds(world.process(owner="reconciler-1"), 4)
    assert world.ledger.holds.active(ENVIRONMENT) == {}


def test_breaker_opens_when_most_messages_are_found_nowhere() -> None:
    world = World()
    for number in range(60):
        world.lose(number)
    world.broker.halves = world.broker.halves[:40]
    process = world.process()
    world.rounds(process, 3)
    assert [opened.cause for opened in world.events.of(BreakerOpened)] == ["too-absent"]
    assert world.broker.ends == []


def test_calm_of_one_group_does_not_close_the_breaker_of_another() -> None:
    world = World(groups=("billing", "shipping"), breaker=BreakerRules(candidates_min=5))
    process = world.process()
    world.ledger.holds.place(ENVIRONMENT, TOPIC, HoldKind.BREAKER, by="other", reason="test")
    for _ in range(5):
        world.clock.advance(5)
        process.run(world.subscriptions[0])
    assert TOPIC in world.ledger.holds.active(ENVIRONMENT)
    for _ in range(3):
        process.run(world.subscriptions[1])
    assert TOPIC not in world.ledger.holds.active(ENVIRONMENT)


def test_storm_that_goes_on_is_told_once() -> None:
    world = World(breaker=BreakerRules(candidates_min=2))
    process = world.process()
    for turn in range(6):
        for number in range(3):
            world.lose(turn * 10 + number)
        world.rounds(process, 1)
    assert len(world.events.of(BreakerOpened)) == 1
