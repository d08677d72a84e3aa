"""A topic with two groups, one with a plug-in up to 0.2.0: it takes each copy of a text key for a new message."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from reconciler.contract.tables import EVERY_GROUP, FORMER_NAMES_TOPIC, RepairState, Rung
from reconciler.policy.round import ReconcileRound
from tests.unit.contract.keys import GO
from tests.unit.policy.repair_rows import ended
from tests.unit.policy.world import ENVIRONMENT, TOPIC, World

#: The group of 0.2.0, and the one whose handler does nothing.
OLD, OTHER = "billing", "shipping"


class TwoReleases(World):
    """Effects of OLD are noted under the offset message id of the copy that brought them."""

    def __init__(self, *order: Rung) -> None:
        super().__init__(groups=(OLD, OTHER), shards=1, repair_order=order)
        self.effects: Counter[str] = Counter()

    def take(self, group: str) -> None:
        """The group acknowledges every copy: OLD with an effect for each name, OTHER without any."""
        for number, copy in enumerate(self.broker.copies):
            name = f"7F00000100002A9F{number:016X}"
            self.broker.copies[number] = named = replace(copy, offset_message_id=name)
            if group == OLD and number >= self.broker.offsets.get(OLD, 0):
                self.effects[OLD] += 1
                self.inbox.rows[OLD, name] = self.inbox_row(OLD, name, named.digest_under(name))
        self.broker.offsets[group] = len(self.broker.copies)

    def run_workers(self, *groups: str) -> None:
        """Replay workers run what was handed over, under the key: OLD's finds no effect there."""
        for group in groups:
            for row in self.ledger.repairs.claimable(ENVIRONMENT, TOPIC, scope=group, limit=100):
                claimed = self.ledger.repairs.claim(row, token="worker", lease_seconds=60)
                message = self.ledger.hand_overs.message_of(row)
                assert claimed is not None
                assert message is not None
                self.apply(group, message)
                self.effects[group] += 1
                self.ledger.hand_overs.finish(claimed, token="worker", answer="applied")

    def ended_in_vain(self) -> ReconcileRound:
        """A loss, and rounds until its END was sent."""
        half, process = self.broker.send_half(GO), self.process()
        self.commit_locally(GO, half, body=half.body, properties=dict(half.properties))
        self.announce(GO)
        while not self.broker.ends:
            self.rounds(process, 1, consume=False)
        return process

    def handed_over(self) -> set[str]:
        """Groups that have a hand-over row."""
        rows = self.ledger.repairs.of_keys(ENVIRONMENT, TOPIC, [GO])[GO]
        return {row.scope for row in rows if row.scope != EVERY_GROUP}


@pytest.mark.parametrize("order", [tuple(Rung), (Rung.END, Rung.HAND_OVER)])
def test_the_group_that_lacks_the_effect_gets_it_and_the_other_one_no_second(order: tuple[Rung, ...]) -> None:
    world = TwoReleases(*order)
    process = world.ended_in_vain()
    for _ in range(40):
        world.take(OLD)
        world.take(OTHER)
        world.rounds(process, 1, consume=False)
        world.run_workers(OLD, OTHER)
    assert world.effects == {OLD: 1, OTHER: 1}
    assert (ended(world, GO).state, ended(world, GO).rung) == (RepairState.DONE, Rung.HAND_OVER)
    assert world.handed_over() == {OTHER}
    assert world.broker.republished == []


def test_what_is_noted_there_for_another_message_of_the_same_content_is_no_effect() -> None:
    """Its broker lost its store, and gave the offset to a message of this release's plug-in before."""
    world = TwoReleases(Rung.END, Rung.HAND_OVER)
    process = world.ended_in_vain()
    for _ in range(40):
        world.take(OLD)
        name = world.broker.copies[0].offset_message_id
        row = world.inbox.rows[OLD, name]
        world.inbox.rows[OLD, name] = replace(row, topic=FORMER_NAMES_TOPIC, duplicate_of=GO[:-1] + "0")
        world.take(OTHER)
        world.rounds(process, 1, consume=False)
    assert world.handed_over() == {OLD, OTHER}


def test_without_a_hand_over_the_repair_is_left_to_a_person() -> None:
    world = TwoReleases(Rung.END, Rung.REPUBLISH)
    process = world.ended_in_vain()
    for _ in range(40):
        world.take(OLD)
        world.take(OTHER)
        world.rounds(process, 1, consume=False)
    assert world.effects == {OLD: 1}
    row = ended(world, GO)
    assert (row.state, row.attempts) == (RepairState.FAILED, 1)
    assert "billing has the effect under a former name" in str(row.answer)


@pytest.mark.parametrize("order", [tuple(Rung), (Rung.END, Rung.HAND_OVER), (Rung.END, Rung.REPUBLISH)])
def test_a_group_that_has_not_come_to_the_copy_is_sent_no_other_one(order: tuple[Rung, ...]) -> None:
    """Its effect by the first copy is still to come."""
    world = TwoReleases(*order)
    process = world.ended_in_vain()
    world.broker.offsets[OLD] = 0
    for _ in range(20):
        world.take(OTHER)
        world.rounds(process, 1, consume=False)
        world.run_workers(OLD, OTHER)
    for _ in range(60):
        world.take(OLD)
        world.take(OTHER)
        world.rounds(process, 1, consume=False)
        world.run_workers(OLD, OTHER)
    can_hand_over = Rung.HAND_OVER in order
    assert world.effects == {OLD: 1, **({OTHER: 1} if can_hand_over else {})}
    assert ended(world, GO).state is (RepairState.DONE if can_hand_over else RepairState.FAILED)


def test_a_hand_over_whose_rows_were_perhaps_not_written_names_the_same_groups_again() -> None:
    world = TwoReleases(Rung.END, Rung.HAND_OVER)
    process = world.ended_in_vain()
    world.take(OLD)
    world.take(OTHER)
    while ended(world, GO).rung is Rung.END:
        world.rounds(process, 1, consume=False)
    row = replace(ended(world, GO), state=RepairState.SENDING, next_at_ms=0, lease_until_ms=None)
    world.ledger.rows.repairs[ENVIRONMENT, TOPIC, EVERY_GROUP, GO] = row
    world.rounds(process, 4, consume=False)
    assert world.handed_over() == {OTHER}
