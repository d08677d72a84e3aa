"""The lower rungs of the verification ladder: no copy was found; outbox, half, parked half, weaker modes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.contract.tables import CandidateState, OutboxState
from reconciler.contract.verdicts import Verdict
from reconciler.policy.judging.judge import JudgingRules
from tests.unit.policy.judging import judged, reason
from tests.unit.policy.world import World, key

# ---- no copy: the commit


@pytest.mark.parametrize("state", [None, OutboxState.ROLLED_BACK])
def test_announced_without_a_committed_row_is_rejected_without_asking_for_the_half(state: OutboxState | None) -> None:
    world = World()
    half = world.broker.send_half(key(1))
    if state is not None:
        world.commit_locally(key(1), half, state=state)
    entry = judged(world, key(1))
    assert (entry.verdict, entry.state) == (Verdict.REJECTED, CandidateState.SETTLED)
    assert ("halves", key(1)) not in world.broker.look_ups


def test_outbox_that_is_away_leaves_everything_open() -> None:
    world = World()
    lost = world.lose(1)
    world.outbox.away = True
    entry = judged(world, lost)
    assert entry.verdict is Verdict.UNKNOWN
    assert reason(entry).startswith("outbox")


# ---- stage 4


def test_half_of_another_message_is_a_collision() -> None:
    world = World()
    half = world.broker.send_half(key(1), body=b"theirs")
    world.commit_locally(key(1), replace(half, body=b"ours"))
    assert judged(world, key(1)).verdict is Verdict.COLLISION
    for changes in ({"group": "somebody"}, {"topic": "OTHER"}):
        world = World()
        world.commit_locally(key(1), world.broker.send_half(key(1), **changes))  # type: ignore[arg-type]
        entry = judged(world, key(1))
        assert entry.verdict is Verdict.COLLISION, entry


@pytest.mark.parametrize(("age", "verdict"), [(35.9, "UNKNOWN"), (36.1, "LOST_CONFIRM")])
def test_young_half_is_left_to_the_brokers_check_back(age: float, verdict: str) -> None:
    world = World()
    world.broker.check_back_wait = 36.0
    lost = world.lose(1)
    world.clock.advance(age)
    entry = world.process().keys_by_hand.judge_one(world.subscriptions[0], lost, dry_run=True).entry
    assert entry.verdict == verdict
    if verdict == "UNKNOWN":
        assert 0.0 < entry.wait_seconds < 0.2


def test_wait_for_the_check_back_can_be_configured_away() -> None:
    world = World(judging=JudgingRules(skew_margin_seconds=0.5, check_back_wait_seconds=0.0))
    world.broker.check_back_wait = 3_600.0
    lost = world.lose(1)
    assert judged(world, lost).verdict is Verdict.LOST_CONFIRM


def test_single_copy_of_an_old_half_was_rolled_back() -> None:
    world = World()
    world.broker.rollback_evident_after = 50.0
    lost = world.lose(1)
    entry = judged(world, lost)
    assert (entry.verdict, entry.state) == (Verdict.ROLLED_BACK_WRONGLY, CandidateState.OPEN)


@pytest.mark.parametrize("why", ["too young", "put back", "first copy gone", "cannot tell"])
def test_half_that_may_be_open_is_a_lost_confirm(why: str) -> None:
    world = World()
    world.broker.rollback_evident_after = {"too young": 60.5, "cannot tell": None}.get(why, 50.0)
    lost = world.lose(1)
    if why == "put back":
        world.broker.put_back(world.broker.halves[0])
    if why == "first copy gone":
        world.broker.halves = [replace(world.broker.halves[0], check_times=1)]
    assert judged(world, lost).verdict is Verdict.LOST_CONFIRM


@pytest.mark.parametrize(("parked", "verdict"), [("found", "LOST_CONFIRM"), ("unknown", "UNKNOWN")])
def test_single_copy_that_may_be_parked_was_not_rolled_back(parked: str, verdict: str) -> None:
    world = World()
    world.broker.rollback_evident_after = 50.0
    lost = world.lose(1)
    if parked == "found":
        world.broker.parked = [world.broker.halves[0]]
    else:
        world.broker.unknown.add("parked")
    assert judged(world, lost).verdict == verdict


# ---- rungs 5 and 6


def test_parked_half_whose_copies_are_gone_is_parked() -> None:
    world = World()
    lost = world.lose(1)
    world.broker.parked, world.broker.halves = world.broker.halves, []
    assert judged(world, lost).verdict is Verdict.PARKED


def test_parked_copy_of_another_message_is_a_collision() -> None:
    world = World()
    lost = world.lose(1)
    world.broker.parked = [replace(world.broker.halves[0], body=b"theirs")]
    world.broker.halves = []
    assert judged(world, lost).verdict is Verdict.COLLISION


def test_committed_and_nowhere_is_expired() -> None:
    world = World()
    lost = world.lose(1)
    world.broker.halves = []
    assert judged(world, lost).verdict is Verdict.EXPIRED


# ---- weaker modes


def test_without_an_outbox_nothing_is_lost_unless_announcements_are_trusted() -> None:
    for trusts, verdict in ((False, "UNKNOWN"), (True, "LOST_CONFIRM")):
        world = World(trust_announcements=trusts)
        lost = world.lose(1)
        if not trusts:
            world.without_evidence()
        entry = judged(world, lost)
        assert entry.verdict == verdict
        assert entry.evidence["weaker"] is True


@pytest.mark.parametrize("tag", ["paid", "refund"])
@pytest.mark.parametrize(("rung", "loss"), [("half", "LOST_CONFIRM"), ("parked", "PARKED")])
def test_without_an_outbox_the_half_tells_the_tag(rung: str, loss: str, tag: str) -> None:
    world = World(trust_announcements=True, tags={"billing": frozenset({"paid"})})
    half = world.broker.send_half(key(1), tag=tag)
    if rung == "parked":
        world.broker.parked, world.broker.halves = [half], []
    assert judged(world, key(1)).verdict == (loss if tag == "paid" else "FILTERED")


def test_without_an_outbox_only_configured_producer_groups_are_believed() -> None:
    world = World(trust_announcements=True)
    world.broker.send_half(key(1), group="stranger")
    assert judged(world, key(1)).verdict is Verdict.COLLISION


def test_without_an_inbox_effects_are_unknown_and_losses_are_still_found() -> None:
    world = World()
    world.inbox.configured = False
    lost, fine = world.lose(1), world.deliver(2)
    assert judged(world, lost).verdict is Verdict.LOST_CONFIRM
    world.consume(effects=False)
    entry = judged(world, fine)
    assert entry.verdict is Verdict.UNKNOWN
    assert entry.evidence["weaker"] is True
    world.broker.in_group_topic("billing", "dead-letter", world.broker.copies[0], topic="%DLQ%billing")
    assert judged(world, fine).verdict is Verdict.DEAD_LETTERED
