"""An outbox proves commits, and nothing shows effects: a copy that brokers deleted by age may have had its effect."""

from __future__ import annotations

import pytest

from reconciler.contract.stored_facts import reason_in
from reconciler.contract.tables import CandidateState, RepairState
from reconciler.policy.evidence import StoredMessage
from tests.unit.policy.world import World, key

HOUR, DAYS_4 = 3_600, 4 * 86_400


@pytest.fixture
def world() -> World:
    made = World()
    made.inbox.configured = False
    return made


def committed(world: World, *, announces: bool = True) -> StoredMessage:
    """A message whose body the outbox keeps."""
    half = world.broker.send_half(key(1))
    kept = {name: value for name, value in half.properties.items() if name not in ("TAGS", "KEYS")}
    world.commit_locally(key(1), half, body=half.body, properties=kept)
    if announces:
        world.announce(key(1))
    return half


def rounds(world: World, number: int) -> None:
    process = world.process()
    for _ in range(number):
        world.consume(effects=False)
        world.rounds(process, 1, consume=False)


def everything_is_deleted(world: World) -> None:
    for found in (world.broker.halves, world.broker.copies, world.broker.offsets):
        found.clear()


def verdict(world: World) -> tuple[CandidateState, str, str]:
    row = world.candidate(key(1))
    assert row is not None
    return row.state, str(row.verdict), reason_in(row.evidence).code.name


def test_a_delivered_message_is_not_sent_again_once_brokers_have_deleted_it(world: World) -> None:
    world.broker.commit(committed(world))
    rounds(world, 20)
    assert verdict(world) == (CandidateState.OPEN, "UNKNOWN", "reason.without-inbox")
    world.clock.advance(DAYS_4)
    everything_is_deleted(world)
    rounds(world, 60)
    assert verdict(world) == (CandidateState.QUARANTINED, "QUARANTINED", "reason.given-up")
    assert (world.repair(key(1)), world.broker.republished, len(world.deliveries)) == (None, [], 1)


@pytest.mark.parametrize("away", [False, True], ids=["seen by the last look", "seen before a broker was away"])
def test_a_delivered_message_that_was_seen_is_not_sent_again_where_a_full_disk_makes_brokers_delete_early(
    world: World, away: bool
) -> None:
    world.broker.commit(committed(world))
    rounds(world, 20)
    assert verdict(world) == (CandidateState.OPEN, "UNKNOWN", "reason.without-inbox")
    if away:
        world.broker.unknown.add("copies")
        rounds(world, 60)
        world.broker.unknown.clear()
    everything_is_deleted(world)
    rounds(world, 60)
    assert verdict(world) == (CandidateState.QUARANTINED, "QUARANTINED", "reason.given-up")
    assert (world.repair(key(1)), world.broker.republished, len(world.deliveries)) == (None, [], 1)


def test_a_repaired_message_is_not_repaired_again_where_a_full_disk_makes_brokers_delete_early(world: World) -> None:
    committed(world)
    rounds(world, 40)
    assert len(world.deliveries) == 1
    everything_is_deleted(world)
    rounds(world, 60)
    assert (len(world.broker.ends), world.broker.republished, len(world.deliveries)) == (1, [], 1)


def test_a_message_whose_announcement_came_days_late_is_not_sent_again(world: World) -> None:
    """No row of the ledger tells that it was delivered."""
    half = committed(world, announces=False)
    world.broker.commit(half)
    world.consume(effects=False)
    world.clock.advance(DAYS_4)
    everything_is_deleted(world)
    world.announce(key(1))
    rounds(world, 60)
    assert verdict(world)[:2] == (CandidateState.QUARANTINED, "QUARANTINED")
    assert (world.broker.republished, len(world.deliveries)) == ([], 1)


def test_a_repaired_message_is_not_repaired_again_once_brokers_have_deleted_it(world: World) -> None:
    committed(world)
    rounds(world, 40)
    assert len(world.deliveries) == 1
    world.clock.advance(DAYS_4)
    everything_is_deleted(world)
    rounds(world, 60)
    repair = world.repair(key(1))
    assert repair is not None
    assert repair.why is not None
    assert (repair.state, repair.why.code.name) == (RepairState.FAILED, "reason.seen-copy-gone")
    assert (len(world.broker.ends), world.broker.republished, len(world.deliveries)) == (1, [], 1)
    assert verdict(world)[:2] == (CandidateState.QUARANTINED, "QUARANTINED")


def test_a_half_that_was_put_back_and_outlived_its_copy_is_not_sent(world: World) -> None:
    first = committed(world)
    again = world.broker.put_back(first)
    world.broker.commit(first)
    world.consume(effects=False)
    world.clock.advance(DAYS_4)
    everything_is_deleted(world)
    world.broker.halves.append(again)
    rounds(world, 60)
    assert verdict(world) == (CandidateState.OPEN, "UNKNOWN", "reason.copy-may-be-gone")
    assert (world.broker.ends, world.broker.republished, len(world.deliveries)) == ([], [], 1)


def test_what_a_broker_lost_within_the_hour_is_sent_from_the_kept_body(world: World) -> None:
    committed(world)
    world.clock.advance(HOUR)
    everything_is_deleted(world)
    rounds(world, 40)
    assert ([one.unique_key for one in world.broker.republished], len(world.deliveries)) == ([key(1)], 1)


def test_an_old_open_half_is_ended(world: World) -> None:
    """As long as a broker has its first copy, it has every copy that was made of it."""
    committed(world)
    world.clock.advance(2 * 86_400)
    rounds(world, 40)
    assert (len(world.broker.ends), len(world.deliveries)) == (1, 1)
