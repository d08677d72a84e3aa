"""Which keys one walk over pending and the ledger chooses."""

from __future__ import annotations

from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Verdict
from reconciler.evidence.watermark import CONSUMED
from reconciler.policy.evidence import Watermark, WatermarkState
from reconciler.policy.judging.selection import SelectionRules, SuspectSelection, SuspectSelector, gate_of
from reconciler.policy.ports.ledger import VerdictEntry
from tests.unit.policy.world import World, key

AWAY = Watermark(state=WatermarkState.UNKNOWN, at_ms=0, detail=CONSUMED())


def pending(world: World, *numbers: int) -> None:
    """Keys that a round has taken into pending, and that are older than the grace period."""
    [plan] = world.topic.subscriptions
    world.announce(*(key(number) for number in numbers))
    for shard in world.topic.shards_of(plan.subscription):
        assert world.shards.take_round(shard, epoch=world.shards.begin_epoch(shard)) is not None
    world.clock.advance(60)


def selected(world: World, watermark: Watermark | None = None, *, keys_max: int = 10) -> SuspectSelection:
    """One walk, without a trickle."""
    [plan] = world.topic.subscriptions
    rules = SelectionRules(skew_margin_seconds=0.5)
    now_ms = world.clock.now_ms()
    mark = watermark or Watermark(state=WatermarkState.KNOWN, at_ms=now_ms, detail=CONSUMED())
    return SuspectSelector(memory=world.shards, candidates=world.ledger.candidates, rules=rules).select(
        world.topic,
        plan,
        world.topic.shards_of(plan.subscription),
        gate_of(now_ms, mark, plan=plan, rules=rules),
        trickle=0,
        count_until=100,
        keys_max=keys_max,
    )


def test_a_proved_loss_waits_while_the_gate_is_shut() -> None:
    """It was proved already: that its group lags says nothing more about it."""
    world = World(shards=1)
    [plan] = world.topic.subscriptions
    [shard] = world.topic.shards_of(plan.subscription)
    world.ledger.candidates.record(
        shard,
        [
            VerdictEntry(
                unique_key=key(number),
                verdict=verdict,
                evidence={},
                first_seen_ms=world.clock.now_ms(),
                state=CandidateState.OPEN,
                wait_seconds=0.0,
            )
            for number, verdict in ((1, Verdict.LOST_CONFIRM), (2, Verdict.UNKNOWN))
        ],
    )
    world.clock.advance(60)
    assert {s.unique_key: s.gate_open for s in selected(world, AWAY).due} == {key(1): True, key(2): False}


def test_a_walk_without_room_stops_counting_before_the_breaker_has_its_figure() -> None:
    world = World(shards=1)
    pending(world, *range(1, 301))
    assert selected(world, keys_max=1).became_due > 100


def test_a_walk_that_saw_everything_asks_for_another_one() -> None:
    world = World(shards=1)
    pending(world, 1, 2)
    assert [(len(one.due), one.has_more) for one in (selected(world), selected(world, keys_max=1))] == [
        (2, False),
        (1, True),
    ]
