"""A broker that has left the route may hold the copy that is looked for."""

from __future__ import annotations

from reconciler.contract.verdicts import Verdict
from reconciler.policy.judging.judge import JudgingRules
from reconciler.policy.round import ReconcileRound
from tests.unit.policy.world import World

BOTH = frozenset({"broker-a", "broker-b"})


def verdict(world: World, unique_key: str) -> Verdict:
    return world.ledger.candidates.of_keys(world.subscriptions[0], [unique_key])[unique_key].verdict


def run_until_due(world: World, process: ReconcileRound) -> None:
    """A round sees the key first, a later one judges it."""
    for _ in range(2):
        world.clock.advance(60)
        process.run(world.subscriptions[0])


def ran_while_both_were_there(world: World) -> None:
    world.broker.route = BOTH
    world.process().run(world.subscriptions[0])
    world.broker.away = frozenset()


def test_a_process_that_starts_after_a_broker_left_republishes_nothing_that_may_lie_there() -> None:
    world = World()
    ran_while_both_were_there(world)
    lost = world.lose(1)
    world.broker.route = frozenset({"broker-a"})
    started_later = world.process(owner="reconciler-2")
    run_until_due(world, started_later)
    assert verdict(world, lost) is Verdict.UNKNOWN
    assert (world.broker.ends, world.broker.republished) == ([], [])
    world.broker.route = BOTH
    world.clock.advance(60)
    started_later.run(world.subscriptions[0])
    assert verdict(world, lost) is Verdict.LOST_CONFIRM


def test_a_command_that_verifies_one_key_knows_the_broker_too() -> None:
    world = World()
    ran_while_both_were_there(world)
    lost = world.lose(1)
    world.clock.advance(60)
    world.broker.route = frozenset({"broker-a"})
    judged = world.process(owner="command").keys_by_hand.judge_one(world.subscriptions[0], lost, dry_run=True)
    assert judged.entry.verdict is Verdict.UNKNOWN


def test_a_broker_that_an_operator_retired_keeps_nothing_waiting() -> None:
    world = World(judging=JudgingRules(skew_margin_seconds=0.5, retired_brokers=frozenset({"broker-b"})))
    ran_while_both_were_there(world)
    lost = world.lose(1)
    world.broker.route = frozenset({"broker-a"})
    run_until_due(world, world.process(owner="reconciler-2"))
    assert verdict(world, lost) is Verdict.LOST_CONFIRM


def test_a_broker_that_was_missed_for_the_whole_retention_is_forgotten_by_itself() -> None:
    world = World(judging=JudgingRules(skew_margin_seconds=0.5, retention_seconds=3600.0))
    ran_while_both_were_there(world)
    lost = world.lose(1)
    world.broker.route = frozenset({"broker-a"})
    process = world.process(owner="reconciler-2")
    run_until_due(world, process)
    world.clock.advance(3500)
    process.run(world.subscriptions[0])
    assert verdict(world, lost) is Verdict.UNKNOWN
    world.clock.advance(100)
    process.run(world.subscriptions[0])
    assert verdict(world, lost) is Verdict.LOST_CONFIRM


def test_name_servers_that_do_not_answer_make_no_broker_missing() -> None:
    world = World(judging=JudgingRules(skew_margin_seconds=0.5, retention_seconds=3600.0))
    ran_while_both_were_there(world)
    world.broker.route = None
    process = world.process(owner="reconciler-2")
    process.run(world.subscriptions[0])
    world.clock.advance(7200)
    lost = world.lose(1)
    world.broker.route = frozenset({"broker-a"})
    run_until_due(world, process)
    assert verdict(world, lost) is Verdict.UNKNOWN
