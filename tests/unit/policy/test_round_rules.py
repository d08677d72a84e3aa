"""Whatever rounds are apart: what counts them is worth in seconds, or a second, what it is at five seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.clock import ManualClock
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import HoldKind
from reconciler.policy.brakes import CircuitBreaker, RoundLoad
from reconciler.policy.events import BreakerOpened
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from reconciler.testing.memory_shards import MemoryShards
from reconciler.wiring.round_rules import breaker_rules, commit_generations, history_generations, selection_rules
from reconciler.words import said
from tests.contract.ledger.shards import QUEUE
from tests.unit.policy.world import ENVIRONMENT, TOPIC, World

EXAMPLE = Path("config/reconciler.toml")
INTERVALS = (1.0, 2.0, 5.0)


def settings_at(interval_seconds: float, **rounds: object) -> Settings:
    given = {"rounds": {"interval_seconds": interval_seconds, **rounds}, "history": {"path": "/h"}}
    return load_settings(EXAMPLE, {}, given)


@pytest.mark.parametrize(
    ("interval_seconds", "older_sets", "of_history", "candidates", "scanned", "halves"),
    [
        (0.5, 10, 4, 400, 4_000, 2),
        (1.0, 10, 4, 400, 4_000, 2),
        (2.0, 5, 4, 800, 8_000, 4),
        (5.0, 2, 2, 2_000, 20_000, 10),
        (30.0, 2, 2, 2_000, 20_000, 10),
    ],
)
def test_numbers_of_a_round_are_those_of_rounds_every_five_seconds(
    interval_seconds: float, older_sets: int, of_history: int, candidates: int, scanned: int, halves: int
) -> None:
    settings = settings_at(interval_seconds)
    rules = selection_rules(settings)
    assert (commit_generations(settings), history_generations(settings)) == (older_sets, of_history)
    assert (rules.candidates_max, rules.scan_max, rules.halves_max) == (candidates, scanned, halves)


def test_an_operator_s_own_number_is_that_of_five_seconds_too() -> None:
    settings = settings_at(2.0, commit_generations=4, candidates_max=500)
    assert (commit_generations(settings), selection_rules(settings).candidates_max) == (10, 200)


@pytest.mark.parametrize("interval_seconds", INTERVALS)
@pytest.mark.parametrize(("late_seconds", "is_pending"), [(9.9, False), (16.0, True)])
def test_an_announcement_that_comes_ten_seconds_late_still_finds_its_match(
    interval_seconds: float, late_seconds: float, is_pending: bool
) -> None:
    clock = ManualClock()
    shards = MemoryShards(clock, commit_generations=commit_generations(settings_at(interval_seconds)))
    shard = Shard(subscription=Subscription(environment="test", topic="ORDERS", group="billing"), number=0)
    epoch = shards.begin_epoch(shard)
    late = "AB" * 16
    shards.record(shard.subscription, [late], shards=1)
    passed = 0.0
    while passed + interval_seconds <= late_seconds:
        clock.advance(interval_seconds)
        passed += interval_seconds
        assert shards.take_round(shard, epoch=epoch) is not None
    shards.admit(shard, QUEUE, expected=None, following=1, unique_keys=[late])
    clock.advance(interval_seconds)
    done = shards.take_round(shard, epoch=epoch)
    assert done is not None
    assert (done.counts.pending_after == 1) == is_pending


class Braked:
    """A breaker under rounds whose losses are given."""

    def __init__(self, interval_seconds: float) -> None:
        self.world = World()
        self.interval_seconds = interval_seconds
        self.of = self.world.subscriptions[0]
        self.breaker = CircuitBreaker(
            holds=self.world.ledger.holds,
            rules=breaker_rules(settings_at(interval_seconds)),
            owner="one",
            clock=self.world.clock,
            events=self.world.events,
        )

    @property
    def is_open(self) -> bool:
        return HoldKind.BREAKER in self.world.ledger.holds.active(ENVIRONMENT).get(TOPIC, {})

    def round(self, losses: float, *, nowhere: int = 0, left_over: int = 0) -> None:
        """As ReconcileRound does it."""
        self.world.clock.advance(self.interval_seconds)
        began = self.world.clock.monotonic_seconds()
        load = RoundLoad(
            announced=0,
            left_over=left_over,
            verified=10_000,
            losses=round(losses),
            half_asked=nowhere,
            found_nowhere=nowhere,
        )
        self.breaker.ceiling(self.of, load)
        self.breaker.open_if(self.of, self.breaker.implausible(self.of, load))
        self.breaker.round_ended(
            self.of, load, began_seconds=began, has_shards=True, is_open=self.is_open, siblings=[self.of]
        )


@pytest.mark.parametrize("interval_seconds", INTERVALS)
@pytest.mark.parametrize(("a_second", "opens"), [(190, False), (250, True)])
def test_as_many_losses_a_second_open_the_breaker(interval_seconds: float, a_second: int, opens: bool) -> None:
    braked = Braked(interval_seconds)
    for _ in range(round(20 / interval_seconds)):
        braked.round(a_second * interval_seconds)
    assert braked.is_open == opens


@pytest.mark.parametrize(
    ("interval_seconds", "left_over", "said_of_it"),
    [
        (1.0, 0, "1250 new losses in the rounds of 5 s: more than 1000"),
        (2.0, 0, "1500 new losses in the rounds of 6 s: more than 1200"),
        (2.0, 30, "1500 new losses in the rounds of 6 s among 30000 verified keys, with 30 to go: more than 1200"),
    ],
)
def test_the_breaker_says_of_rounds_that_are_judged_together_how_many_seconds_they_are(
    interval_seconds: float, left_over: int, said_of_it: str
) -> None:
    braked = Braked(interval_seconds)
    while not braked.is_open:
        braked.round(250 * interval_seconds, left_over=left_over)
    assert [said(opened.reason) for opened in braked.world.events.of(BreakerOpened)] == [said_of_it]


@pytest.mark.parametrize("interval_seconds", INTERVALS)
def test_losses_of_one_moment_open_it_where_they_are_too_many(interval_seconds: float) -> None:
    for losses, opens in ((900, False), (1_001, True)):
        braked = Braked(interval_seconds)
        braked.round(losses)
        braked.round(0)
        assert braked.is_open == opens


@pytest.mark.parametrize("interval_seconds", INTERVALS)
def test_messages_that_are_nowhere_open_it_by_as_many_questions(interval_seconds: float) -> None:
    braked = Braked(interval_seconds)
    for _ in range(round(10 / interval_seconds)):
        braked.round(0, nowhere=round(12 * interval_seconds))
    assert braked.is_open


@pytest.mark.parametrize("interval_seconds", INTERVALS)
def test_it_closes_after_fifteen_calm_seconds(interval_seconds: float) -> None:
    braked = Braked(interval_seconds)
    braked.round(5_000)
    opened = braked.world.clock.monotonic_seconds()
    while braked.is_open:
        braked.round(0)
    assert 15 <= braked.world.clock.monotonic_seconds() - opened < 15 + interval_seconds


@pytest.mark.parametrize("interval_seconds", INTERVALS)
def test_a_storm_opens_it_once_though_a_person_lifts_it_at_once(interval_seconds: float) -> None:
    braked = Braked(interval_seconds)
    braked.round(5_000)
    braked.world.ledger.holds.lift(ENVIRONMENT, TOPIC, HoldKind.BREAKER)
    for _ in range(3):
        braked.round(0)
        assert not braked.is_open


def test_rounds_that_lie_apart_are_not_judged_together() -> None:
    braked = Braked(1.0)
    for _ in range(3):
        braked.round(900)
        braked.world.clock.advance(20)
    assert not braked.is_open
