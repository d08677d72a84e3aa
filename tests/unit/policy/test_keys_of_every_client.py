"""Keys of Go and Rust clients end in lower case: they are found, repaired once and compared as they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.contract.keyspace import SHARDS_DEFAULT
from reconciler.contract.tables import RepairState
from reconciler.policy.evidence import StoredMessage
from tests.unit.contract.keys import GO, JAVA, OF_CLIENTS, RUST
from tests.unit.policy.world import World

OFFSET_ID = "7F00000100002A9F00000000000003E8"


@pytest.mark.parametrize("key", [*OF_CLIENTS, "order-2026_17-debit"])
def test_a_lost_message_is_repaired_once_whichever_client_made_its_key(key: str) -> None:
    world = World(shards=SHARDS_DEFAULT)
    half = world.broker.send_half(key)
    world.commit_locally(key, half)
    world.announce(key)
    world.rounds(world.process(), 30)
    assert world.verdict(key) == "CONSUMED"
    assert len(world.broker.ends) == 1
    assert world.deliveries == [("billing", key)]
    assert world.pending() == []


def test_of_two_keys_that_differ_in_case_alone_one_effect_settles_one() -> None:
    world = World(shards=1)
    delivered = world.broker.send_half(JAVA)
    world.commit_locally(JAVA, delivered)
    world.broker.commit(delivered)
    lost = world.broker.send_half(JAVA.lower(), body=b"another payment")
    world.commit_locally(JAVA.lower(), lost)
    world.announce(JAVA, JAVA.lower())
    world.rounds(world.process(), 30)
    assert len(world.broker.ends) == 1
    assert world.deliveries.count(("billing", JAVA.lower())) == 1
    assert (world.verdict(JAVA), world.verdict(JAVA.lower())) == (None, "CONSUMED")


def delivered_and_noted_under_its_offset_id(world: World, key: str, *, body: bytes = b"body") -> StoredMessage:
    """What a group with a plug-in up to 0.2.0 leaves of a message: a row that has not its unique key."""
    half = world.broker.send_half(key)
    world.commit_locally(key, half)
    copy = replace(world.broker.commit(half), offset_message_id=OFFSET_ID)
    world.broker.copies[-1] = copy
    digest = replace(copy, body=body).digest_under(OFFSET_ID)
    world.inbox.rows["billing", OFFSET_ID] = world.inbox_row("billing", OFFSET_ID, digest)
    world.broker.offsets["billing"] = 1
    return copy


@pytest.mark.parametrize("key", [GO, RUST])
def test_an_effect_that_an_older_plug_in_noted_under_the_offset_id_is_found(key: str) -> None:
    world = World(shards=1)
    delivered_and_noted_under_its_offset_id(world, key)
    world.announce(key)
    world.rounds(world.process(), 10, consume=False)
    assert world.verdict(key) == "CONSUMED"
    assert (world.broker.ends, world.broker.republished) == ([], [])


def test_a_repair_whose_effect_an_older_plug_in_noted_under_the_offset_id_is_done() -> None:
    """Left open, it would send the kept body once the broker has deleted the copy: a second effect."""
    world = World(shards=1)
    half, process = world.broker.send_half(GO), world.process()
    world.commit_locally(GO, half, body=half.body, properties=dict(half.properties))
    world.announce(GO)
    while not world.broker.ends:
        world.rounds(process, 1, consume=False)
    copy = replace(world.broker.copies[-1], offset_message_id=OFFSET_ID)
    world.broker.copies[-1] = copy
    world.inbox.rows["billing", OFFSET_ID] = world.inbox_row("billing", OFFSET_ID, copy.digest_under(OFFSET_ID))
    world.broker.offsets["billing"] = 1
    world.rounds(process, 40, consume=False)
    repair = world.repair(GO)
    assert repair is not None
    assert (repair.state, world.verdict(GO)) == (RepairState.DONE, "CONSUMED")
    world.broker.copies.clear()
    world.rounds(process, 40, consume=False)
    assert (len(world.broker.ends), world.broker.republished) == (1, [])


def test_the_offset_id_of_another_message_is_no_effect_of_this_one() -> None:
    """A broker whose store was made anew gives its offsets a second time."""
    world = World(shards=1)
    delivered_and_noted_under_its_offset_id(world, GO, body=b"what had that offset before")
    world.announce(GO)
    world.rounds(world.process(), 10, consume=False)
    assert world.verdict(GO) == "DELIVERED_NOT_APPLIED"


@pytest.mark.parametrize(("days", "sends"), [(0, 1), (30, 0)])
def test_a_kept_body_is_not_sent_of_a_row_that_waited_for_this_release(days: int, sends: int) -> None:
    """Announced for the first time when no broker has a copy any more: an effect under its offset id is not seen."""
    world = World(shards=1)
    half = world.broker.send_half(GO)
    world.commit_locally(GO, half, body=half.body, properties=dict(half.properties))
    world.broker.halves.clear()
    world.clock.advance(days * 86_400)
    world.announce(GO)
    world.rounds(world.process(), 30)
    assert len(world.broker.republished) == sends
    assert world.verdict(GO) == ("CONSUMED" if sends else "QUARANTINED")
    if not sends:
        candidate = world.candidate(GO)
        assert candidate is not None
        assert "announced late" in str(candidate.evidence["reason"])
