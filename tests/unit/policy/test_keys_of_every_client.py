"""Keys of Go and Rust clients end in lower case: they are found, repaired once and compared as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from reconciler.contract.keyspace import SHARDS_DEFAULT
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import HoldKind, RepairState
from reconciler.policy.evidence import InboxRow, Lookup, StoredMessage
from reconciler.policy.judging.judge import JudgingRules
from reconciler.policy.repairing.repair import RepairRules
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


@pytest.mark.parametrize("is_read", [True, False])
def test_while_the_row_under_the_offset_id_is_not_known_nothing_is_called_unapplied(
    monkeypatch: pytest.MonkeyPatch, *, is_read: bool
) -> None:
    """One damaged row, or another page of keys, beside an inbox that has nothing under the key."""
    world = World(shards=1)
    delivered_and_noted_under_its_offset_id(world, GO)
    look_up = world.inbox.look_up

    def damaged(subscription: Subscription, keys: Sequence[str]) -> Mapping[str, Lookup[InboxRow]]:
        return {**look_up(subscription, keys), OFFSET_ID: Lookup.unknown("inbox", "a damaged row")}

    if not is_read:
        monkeypatch.setattr(world.inbox, "look_up", damaged)
    world.announce(GO)
    world.rounds(world.process(), 10, consume=False)
    assert world.verdict(GO) == ("CONSUMED" if is_read else "UNKNOWN")


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


def lost_with_a_kept_body(world: World) -> None:
    """A text key that was announced at once, of which no broker has a copy of any kind."""
    half = world.broker.send_half(GO)
    world.commit_locally(GO, half, body=half.body, properties=dict(half.properties))
    world.broker.halves.clear()
    world.announce(GO)


def keeping(hours: float) -> World:
    """A world whose brokers keep messages for so long."""
    seconds = hours * 3600
    return World(
        shards=1,
        judging=JudgingRules(skew_margin_seconds=0.5, retention_seconds=seconds),
        repair=RepairRules(verify_after_seconds=4.0, claim_lease_seconds=20.0, retention_seconds=seconds),
    )


@pytest.mark.parametrize(
    ("kept_hours", "hours", "sends"), [(72, 17, 1), (72, 19, 0), (12, 2, 1), (12, 4, 0), (720, 19, 0)]
)
def test_a_kept_body_is_not_sent_once_a_copy_may_have_been_deleted(kept_hours: int, hours: int, sends: int) -> None:
    """A copy tells the name under which a plug-in up to 0.2.0 noted its effect: whoever announced, and however soon."""
    world = keeping(kept_hours)
    lost_with_a_kept_body(world)
    world.clock.advance(hours * 3_600)
    world.rounds(world.process(), 30)
    assert len(world.broker.republished) == sends
    assert world.verdict(GO) == ("CONSUMED" if sends else "QUARANTINED")
    if not sends:
        candidate = world.candidate(GO)
        assert candidate is not None
        assert "looked at late" in str(candidate.evidence["reason"])


@pytest.mark.parametrize(("has_first", "ends"), [(True, 1), (False, 0)])
def test_a_half_is_not_ended_once_a_copy_that_came_of_an_older_one_may_have_been_deleted(
    has_first: bool, ends: int
) -> None:
    """END on the first half copy delivers, and the broker goes on putting the half back: what is left is younger."""
    world = keeping(72)
    half = world.broker.send_half(GO)
    world.commit_locally(GO, half)
    world.broker.put_back(half)
    if not has_first:
        world.broker.halves.remove(half)
    world.announce(GO)
    world.clock.advance(19 * 3_600)
    world.rounds(world.process(), 30)
    assert [commit for _, _, commit in world.broker.ends].count(True) == ends
    assert world.verdict(GO) == ("CONSUMED" if ends else "QUARANTINED")


def test_a_row_of_a_clock_that_was_ahead_is_no_younger_than_its_announcement() -> None:
    world = keeping(72)
    half = world.broker.send_half(GO)
    ahead_ms = world.clock.now_ms() + 86_400_000
    world.commit_locally(GO, half, body=half.body, properties=dict(half.properties), created_at_ms=ahead_ms)
    world.broker.halves.clear()
    world.announce(GO)
    world.clock.advance(5)
    world.process().run(world.subscriptions[0])
    world.clock.advance(30 * 3_600)
    world.rounds(world.process(), 30)
    assert (world.broker.republished, world.verdict(GO)) == ([], "QUARANTINED")


def test_a_proved_loss_that_was_held_for_long_sends_no_kept_body() -> None:
    world = keeping(72)
    lost_with_a_kept_body(world)
    process = world.process()
    world.ledger.holds.place("test", "ORDERS", HoldKind.HOLD, by="anna", reason="a look")
    world.rounds(process, 4)
    assert world.verdict(GO) == "EXPIRED"
    world.clock.advance(19 * 3_600)
    world.ledger.holds.lift("test", "ORDERS", HoldKind.HOLD)
    world.rounds(process, 30)
    repair = world.repair(GO)
    assert repair is not None
    assert (repair.state, world.broker.republished) == (RepairState.FAILED, [])
    assert "sent late" in str(repair.answer)


@pytest.mark.parametrize(("hours", "sent"), [(17, 1), (19, 0)])
def test_where_no_inbox_notes_effects_a_kept_body_is_sent_while_every_copy_is_kept(hours: int, sent: int) -> None:
    """As of any other key."""
    world = keeping(72)
    world.inbox.configured = False
    lost_with_a_kept_body(world)
    world.clock.advance(hours * 3_600)
    world.rounds(world.process(), 30)
    assert len(world.broker.republished) == sent


def test_a_half_that_is_still_there_is_ended_however_late() -> None:
    """What came of it is younger, so no copy of it was deleted by age."""
    world = keeping(72)
    half = world.broker.send_half(GO)
    world.commit_locally(GO, half)
    world.announce(GO)
    world.clock.advance(60 * 3_600)
    world.rounds(world.process(), 30)
    assert (len(world.broker.ends), world.verdict(GO)) == (1, "CONSUMED")
