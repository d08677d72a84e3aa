"""An outbox that has come only as far as some time: what it lacks is not absent before that."""

from __future__ import annotations

from reconciler.contract.tables import CandidateState, RepairState
from reconciler.contract.verdicts import Verdict
from tests.unit.policy.world import ENVIRONMENT, TOPIC, World, key


def test_a_key_is_rejected_only_when_the_outbox_has_come_past_its_announcement_and_the_margin() -> None:
    world = World(skew=2.0)
    process = world.process()
    world.announce(key(1))
    world.rounds(process, 1)
    announced_ms = world.clock.now_ms()
    world.outbox.has_come_to_ms = announced_ms + 2_000
    world.rounds(process, 6)
    row = world.candidate(key(1))
    assert row is not None
    assert (row.verdict, row.state) == (Verdict.UNKNOWN, CandidateState.OPEN)
    assert "not proved to be a primary" in str(row.evidence["reason"])
    world.outbox.has_come_to_ms = announced_ms + 2_001
    world.rounds(process, 12)
    row = world.candidate(key(1))
    assert row is not None
    assert row.verdict is Verdict.REJECTED


def test_a_repair_is_not_given_up_because_another_replica_lacks_its_commit() -> None:
    """A proxy sends the second look to a replica that is further behind."""
    world = World()
    process, lost = world.proved_loss()
    committed = world.outbox.rows.pop(lost)
    world.outbox.has_come_to_ms = world.clock.now_ms() - 20_000
    world.rounds(process, 4)
    (repair,) = world.ledger.repairs.of_keys(ENVIRONMENT, TOPIC, [lost])[lost]
    assert repair.state is RepairState.OPEN
    world.outbox.rows[lost] = committed
    world.rounds(process, 12)
    (repair,) = world.ledger.repairs.of_keys(ENVIRONMENT, TOPIC, [lost])[lost]
    assert repair.state is RepairState.DONE


def test_a_key_that_a_person_asks_about_is_no_rejection_on_a_replica() -> None:
    """It was not announced: no time is late enough."""
    world = World()
    world.outbox.has_come_to_ms = world.clock.now_ms() + 3_600_000
    world.clock.advance(60)
    judged = world.process().keys_by_hand.judge_one(world.subscriptions[0], key(1))
    assert judged.entry.verdict is Verdict.UNKNOWN
    world.outbox.has_come_to_ms = None
    judged = world.process().keys_by_hand.judge_one(world.subscriptions[0], key(1))
    assert judged.entry.verdict is Verdict.REJECTED
