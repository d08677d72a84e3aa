"""A loss that nobody has begun to repair is dismissed while its topic is held, and is never sent."""

from __future__ import annotations

from reconciler.contract.tables import CandidateState, HoldKind, RepairState
from reconciler.policy.dismissal import Dismissals, EffectFound, meaning_of
from reconciler.policy.ports.closing import KeyInLedger
from reconciler.words import said
from tests.unit.policy.world import ENVIRONMENT, TOPIC, World, key

REASON = "paid by hand, ticket 4711"


def held(*groups: str) -> World:
    """Key 1 is proved to be lost for each group, under a hold."""
    world = World(shards=1, groups=groups or ("billing",))
    world.ledger.holds.place(ENVIRONMENT, TOPIC, HoldKind.HOLD, by="test", reason="test")
    world.lose(1)
    world.rounds(world.process(), 5)
    return world


def dismissals(world: World, *topics: str) -> Dismissals:
    return Dismissals(closings=world.ledger.closings, configured=world.subscriptions, held=topics)


def seen(world: World) -> KeyInLedger:
    life = world.ledger.reports.life(ENVIRONMENT, key(1))
    return KeyInLedger(candidates=life.candidates, repairs=life.repairs)


def dismissed(world: World, *topics: str, group: str | None = None) -> dict[str, str]:
    return dismissals(world, *topics).dismiss(seen(world), group=group, by="operator anna", reason=REASON)


def after_the_hold(world: World) -> tuple[int, int]:
    """Sends, once the hold is lifted and the reconciler has had its turns."""
    world.ledger.holds.lift(ENVIRONMENT, TOPIC, HoldKind.HOLD)
    world.rounds(world.process(), 40)
    return len(world.broker.ends), len(world.broker.republished)


def test_a_loss_of_a_held_topic_is_dismissed_and_is_never_sent() -> None:
    world = held()
    assert dismissed(world, TOPIC) == {"billing": "dismissed"}
    assert after_the_hold(world) == (0, 0)
    row, repair = world.candidate(key(1)), world.repair(key(1))
    assert row is not None
    assert repair is not None
    assert (row.state, repair.state) == (CandidateState.SETTLED, RepairState.DONE)
    assert (row.is_dismissed, repair.is_dismissed, world.pending()) == (True, True, [])


def test_without_a_hold_it_is_left_to_its_repair() -> None:
    world = held()
    assert dismissed(world, "ANOTHER") == {"billing": "OPEN"}
    assert after_the_hold(world) == (1, 0)


def test_what_was_sent_before_the_hold_is_told_with_its_time_and_is_not_dismissed() -> None:
    world = World(shards=1)
    world.lose(1)
    process = world.process()
    while not world.broker.ends:
        world.rounds(process, 1, consume=False)
    world.ledger.holds.place(ENVIRONMENT, TOPIC, HoldKind.HOLD, by="test", reason="test")
    outcomes = dismissed(world, TOPIC)
    assert outcomes == {"billing": "OPEN"}
    (row,) = seen(world).candidates
    told = meaning_of(outcomes["billing"], row, EffectFound(), seen(world).repairs)
    assert told is not None
    assert said(told).startswith("end was sent at 20")


def test_of_two_groups_that_lack_it_both_are_dismissed_or_none() -> None:
    """Whoever claims the repair for the other group sends a copy that reaches both."""
    world = held("billing", "shipping")
    assert dismissed(world, TOPIC, group="billing") == {"billing": "OPEN"}
    assert dismissed(world, TOPIC) == {"billing": "dismissed", "shipping": "dismissed"}
    assert after_the_hold(world) == (0, 0)


def test_a_repair_that_is_claimed_meanwhile_is_not_ended() -> None:
    world = held()
    as_seen, repair = seen(world), world.repair(key(1))
    assert repair is not None
    assert world.ledger.repairs.claim(repair, token="run", lease_seconds=60) is not None
    outcome = dismissals(world, TOPIC).dismiss(as_seen, group=None, by="operator anna", reason=REASON)
    assert "claimed until" in outcome["billing"]
    assert world.verdict(key(1)) == "LOST_CONFIRM"
