"""A group that filters by SQL92 passes messages without an effect: whether it wanted them is not known here."""

from __future__ import annotations

import pytest

from reconciler.contract.tables import CandidateState
from reconciler.policy.evidence import FilterKind
from tests.unit.policy.world import World, key


def passed_without_effect(kind: FilterKind) -> World:
    world = World(shards=1)
    world.broker.group_filters = kind
    world.deliver(1)
    world.consume(effects=False)
    world.rounds(world.process(), 6)
    return world


@pytest.mark.set_up("a group with an SQL92 filter")
@pytest.mark.parametrize(
    ("kind", "reason"),
    [(FilterKind.SQL92, "the group filters by SQL92"), (FilterKind.UNKNOWN, "no broker tells how the group filters")],
)
def test_a_message_that_such_a_group_passed_is_no_quarantined_one(kind: FilterKind, reason: str) -> None:
    row = passed_without_effect(kind).candidate(key(1))
    assert row is not None
    assert (row.verdict, row.state) == ("UNKNOWN", CandidateState.OPEN)
    assert reason in str(row.evidence["reason"])


@pytest.mark.parametrize("kind", [FilterKind.TAG, FilterKind.NONE])
def test_where_only_tags_filter_a_message_without_an_effect_is_for_a_person(kind: FilterKind) -> None:
    assert passed_without_effect(kind).verdict(key(1)) == "DELIVERED_NOT_APPLIED"


def test_it_is_looked_at_rarely() -> None:
    world = passed_without_effect(FilterKind.SQL92)
    row = world.candidate(key(1))
    assert row is not None
    assert row.next_at_ms - row.updated_at_ms == 3_600_000


def test_once_its_copy_is_deleted_by_age_the_message_is_not_sent_again() -> None:
    world = passed_without_effect(FilterKind.SQL92)
    world.broker.copies.clear()
    world.broker.halves.clear()
    world.clock.advance(3_700)
    world.rounds(world.process(), 3)
    assert world.verdict(key(1)) == "UNKNOWN"
    assert world.repair(key(1)) is None


def test_a_lost_message_is_sent_to_such_a_group_like_to_every_other() -> None:
    world = World(shards=1)
    world.broker.group_filters = FilterKind.SQL92
    lost = world.lose(1)
    world.rounds(world.process(), 12)
    assert world.repair(lost) is not None
    assert world.verdict(lost) == "CONSUMED"


def test_a_loss_that_was_proved_stays_one_when_every_copy_is_gone() -> None:
    world = World(shards=1)
    process, lost = world.proved_loss()
    world.broker.group_filters = FilterKind.SQL92
    world.broker.halves.clear()
    world.rounds(process, 6)
    row = world.candidate(lost)
    assert row is not None
    assert row.verdict != "UNKNOWN"
    assert row.loss_verdict == "LOST_CONFIRM"
