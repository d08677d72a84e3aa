"""One lost message on its way through steps 7 to 10, and what must not be repaired."""

from __future__ import annotations

from reconciler.contract.tables import RepairState
from reconciler.policy.events import RoundFinished
from tests.unit.policy.world import World


def test_lost_confirm_is_found_ended_and_verified() -> None:
    world = World()
    lost, fine = world.lose(1), world.deliver(2)
    process = world.process()
    world.rounds(process, 10)
    row = world.candidate(lost)
    repair = world.repair(lost)
    assert row is not None
    assert (row.verdict, row.loss_verdict, row.state) == ("CONSUMED", "LOST_CONFIRM", "SETTLED")
    assert repair is not None
    assert (repair.state, repair.attempts) == (RepairState.DONE, 1)
    assert world.broker.ends == [(lost, world.broker.halves[0].commit_log_offset, True)]
    assert world.deliveries.count(("billing", lost)) == 1
    assert world.repair(fine) is None
    assert world.pending() == []


def test_every_round_tells_one_event() -> None:
    world = World()
    world.lose(1)
    world.rounds(world.process(), 8)
    events = world.events.of(RoundFinished)
    assert len(events) == 8
    assert sum(event.became_due for event in events) == 1
    assert {verdict for event in events for verdict in event.verdicts} == {"LOST_CONFIRM", "CONSUMED"}


def test_two_groups_are_served_by_one_end() -> None:
    world = World(groups=("billing", "shipping"))
    lost = world.lose(1)
    world.rounds(world.process(), 12)
    assert len(world.broker.ends) == 1
    assert sorted(world.deliveries) == [("billing", lost), ("shipping", lost)]
    assert world.verdict(lost, "shipping") == "CONSUMED"
    repair = world.repair(lost)
    assert repair is not None
    assert repair.state is RepairState.DONE
