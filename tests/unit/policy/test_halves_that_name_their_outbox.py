"""A half says which outbox has its row. Where that outbox shows none, the key is no rejection, and a person is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.contract.properties import OUTBOX_MARK
from reconciler.contract.tables import CandidateState, OutboxState
from reconciler.contract.verdicts import Undecided, Verdict
from reconciler.policy.commit_evidence import CommitEvidence, CommitSource
from reconciler.policy.dismissal import Dismissals
from reconciler.policy.evidence import Lookup, OutboxRow, Presence, WitnessAnswer
from reconciler.policy.judging.selection import HALVES_MAX
from reconciler.policy.judging.suspect import undecided_by
from reconciler.policy.ports.closing import KeyInLedger
from reconciler.policy.ports.ledger import Candidate
from reconciler.words import said
from tests.unit.policy.fake_databases import FakeOutbox
from tests.unit.policy.world import ENVIRONMENT, PRODUCER_GROUP, TOPIC, World, key

NAME = "outbox-of-orders"
DATABASE = "postgresql://db.shop/orders"


class NamedFakeOutbox(FakeOutbox):
    """Says which database it is, as real ones do."""

    def __init__(self, identity: str | None = NAME) -> None:
        super().__init__()
        self.identity = identity

    def _answer(self, unique_key: str, not_before_ms: int) -> Lookup[OutboxRow]:
        lookup = super()._answer(unique_key, not_before_ms)
        if not lookup.is_absent:
            return lookup
        detail = f"{DATABASE}: no row"
        answer = WitnessAnswer(witness="outbox", presence=Presence.ABSENT, detail=detail, identity=self.identity)
        return replace(lookup, answers=(answer,))


def world_of(outbox: FakeOutbox) -> World:
    world = World()
    world.outbox = outbox
    return world


def marked_half(world: World, number: int, *, mark: str = NAME, group: str = PRODUCER_GROUP) -> str:
    """A half with a mark, announced, of which the outbox shows no row."""
    half = world.broker.send_half(key(number), group=group)
    world.broker.halves[-1] = replace(half, properties={**half.properties, OUTBOX_MARK: mark})
    world.announce(key(number))
    return key(number)


def row_of(world: World, unique_key: str) -> Candidate:
    row = world.candidate(unique_key)
    assert row is not None
    return row


@pytest.mark.parametrize("identity", [NAME, "another schema", None])
def test_a_key_whose_half_names_an_outbox_without_its_row_is_taken_back_and_told(identity: str | None) -> None:
    """A clone has the name of its original; a search path leads to an outbox of another name, or without a name."""
    world = world_of(NamedFakeOutbox(identity))
    missed, process = marked_half(world, 1), world.process()
    world.rounds(process, 6)
    assert row_of(world, missed).verdict is Verdict.REJECTED
    told: list[str] = []
    for _ in range(30):
        event = world.rounds(process, 1)[0].event
        assert event is not None
        told += map(said, event.problems)
    row = row_of(world, missed)
    assert (row.verdict, row.state) == (Verdict.UNKNOWN, CandidateState.OPEN)
    assert DATABASE in str(row.evidence["reason"])
    by, since_ms = undecided_by(row.evidence)
    assert by is Undecided.CONTRADICTION
    assert since_ms is not None
    assert since_ms < world.clock.now_ms() - 60_000, "since the first look, not the last"
    assert [DATABASE in line and missed in line for line in told] == [True]
    assert world.broker.ends == []


def test_a_person_ends_a_contradiction_that_no_database_will_ever_end() -> None:
    world = world_of(NamedFakeOutbox())
    missed, process = marked_half(world, 1), world.process()
    world.rounds(process, 30)
    life = world.ledger.reports.life(ENVIRONMENT, missed)
    seen = KeyInLedger(candidates=life.candidates, repairs=life.repairs)
    dismissals = Dismissals(closings=world.ledger.closings, configured=world.subscriptions)
    assert dismissals.dismiss(seen, group=None, by="operator anna", reason="rolled back") == {"billing": "dismissed"}
    world.announce(missed)
    world.rounds(process, 60)
    assert row_of(world, missed).state is CandidateState.SETTLED
    assert world.broker.ends == []


def test_brokers_are_asked_about_such_a_half_once() -> None:
    world = world_of(NamedFakeOutbox())
    marked_half(world, 1)
    process = world.process()
    world.rounds(process, 30)
    looked = len(world.broker.look_ups)
    world.rounds(process, 100)
    assert row_of(world, key(1)).verdict is Verdict.UNKNOWN
    assert len(world.broker.look_ups) == looked


@pytest.mark.parametrize("shows", ["row", "tombstone"])
def test_what_the_outbox_shows_at_last_decides(shows: str) -> None:
    world = world_of(NamedFakeOutbox())
    missed, process = marked_half(world, 1), world.process()
    world.rounds(process, 30)
    state = OutboxState.ANNOUNCED if shows == "row" else OutboxState.ROLLED_BACK
    world.commit_locally(missed, world.broker.halves[0], state=state)
    world.rounds(process, 30)
    row = row_of(world, missed)
    if shows == "row":
        assert (row.loss_verdict, row.verdict) == (Verdict.LOST_CONFIRM, Verdict.CONSUMED)
    else:
        assert (row.verdict, row.state) == (Verdict.REJECTED, CandidateState.SETTLED)


def test_a_half_that_names_no_outbox_of_ours_leaves_the_key_rejected() -> None:
    """Neither the group nor the outbox is of this configuration."""
    world = world_of(NamedFakeOutbox())
    forged = marked_half(world, 1, mark="outbox-of-strangers", group="strangers")
    world.rounds(world.process(), 60)
    assert (row_of(world, forged).verdict, row_of(world, forged).state) == (Verdict.REJECTED, CandidateState.SETTLED)


def test_a_half_of_a_group_that_is_not_configured_names_a_configured_outbox_all_the_same() -> None:
    world = world_of(NamedFakeOutbox())
    missed = marked_half(world, 1, group="renamed")
    world.rounds(world.process(), 60)
    assert row_of(world, missed).verdict is Verdict.UNKNOWN


def test_a_half_of_a_group_whose_section_lacks_the_topic_rejects_nothing() -> None:
    """Two services send to the topic. The section of one names its other topic alone, so nobody asks its outbox."""
    world = world_of(NamedFakeOutbox("outbox-of-the-other-service"))
    shop = CommitSource(producer_group="shop", topics=frozenset({"SHIPMENTS"}), url="sqlite:///shop.db")
    every = CommitEvidence((*world.topic.evidence.sources, shop))
    world.topic = replace(world.topic, evidence=every.of_topic(TOPIC))
    missed = marked_half(world, 1, mark="outbox-of-the-shop", group="shop")
    world.rounds(world.process(), 60)
    row = row_of(world, missed)
    assert (row.verdict, row.state) == (Verdict.UNKNOWN, CandidateState.OPEN)
    assert undecided_by(row.evidence)[0] is Undecided.CONTRADICTION
    assert "shop" in str(row.evidence["reason"])
    assert world.broker.ends == []


def test_a_tombstone_of_another_database_ends_nothing_while_the_half_names_one_without_a_row() -> None:
    world = World()
    lost = world.lose(1)
    tombstone = replace(world.outbox.rows.pop(lost), state=OutboxState.ROLLED_BACK)
    half = world.broker.halves[0]
    world.broker.halves[0] = replace(half, properties={**half.properties, OUTBOX_MARK: NAME})
    named = WitnessAnswer(witness="first", presence=Presence.ABSENT, detail=f"{DATABASE}: no row", identity=NAME)
    found = Lookup(presence=Presence.FOUND, records=(tombstone.seen,), answers=(named,))
    world.outbox.look_up = lambda topic, not_before_ms, *, now_ms=None: dict.fromkeys(not_before_ms, found)  # type: ignore[method-assign]
    world.rounds(world.process(), 60)
    assert row_of(world, lost).verdict is Verdict.UNKNOWN


def test_no_round_looks_at_more_halves_than_a_few_and_each_turn_looks_at_others() -> None:
    world = world_of(NamedFakeOutbox())
    forged = [key(number) for number in range(100, 100 + 10 * HALVES_MAX)]
    world.announce(*forged)
    process = world.process()
    world.rounds(process, 6)
    world.clock.advance(55)
    seen: set[str] = set()
    for _ in range(12):
        before = len(world.broker.look_ups)
        world.rounds(process, 1, every=120.0)
        looked = [one for kind, one in world.broker.look_ups[before:]]
        assert len(looked) <= HALVES_MAX
        seen |= set(looked)
    assert len(seen) > 2 * HALVES_MAX
    assert world.broker.snapshot.count("horizon") <= 12, "one probe a round shows that there are no halves"


def test_a_broker_that_is_away_takes_nothing_back() -> None:
    world = world_of(NamedFakeOutbox())
    missed, process = marked_half(world, 1), world.process()
    world.broker.unknown.add("halves")
    world.rounds(process, 30)
    assert row_of(world, missed).verdict is Verdict.REJECTED
    world.broker.unknown.clear()
    world.rounds(process, 60)
    assert row_of(world, missed).verdict is Verdict.UNKNOWN, "it is looked at again"
