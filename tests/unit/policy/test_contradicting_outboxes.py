"""Committed rows of one key in two databases: one message only if their contents are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from reconciler.contract.tables import HoldKind, RepairState
from reconciler.contract.verdicts import Verdict
from reconciler.policy.evidence import Lookup, OutboxRow
from tests.simulation.outbox_table import TableRow
from tests.unit.policy.world import ENVIRONMENT, TOPIC, World


class TwoOutboxes:
    """Another database that has committed rows, too, beside the world's."""

    def __init__(self, world: World) -> None:
        self._first = world.outbox.look_up
        self.rows: dict[str, TableRow] = {}
        world.outbox.look_up = self.look_up  # type: ignore[method-assign]

    def look_up(
        self, topic: str, not_before_ms: Mapping[str, int], *, now_ms: int | None = None
    ) -> Mapping[str, Lookup[OutboxRow]]:
        return {
            key: replace(found, records=(*found.records, self.rows[key].seen)) if key in self.rows else found
            for key, found in self._first(topic, not_before_ms, now_ms=now_ms).items()
        }


@pytest.mark.parametrize("digest", [b"x" * 32, None])
def test_a_loss_with_two_contents_is_a_collision_and_nothing_is_sent(digest: bytes | None) -> None:
    world = World()
    second = TwoOutboxes(world)
    lost = world.lose(1)
    second.rows[lost] = replace(world.outbox.rows[lost], content_digest=digest)
    world.rounds(world.process(), 4)
    candidate = world.candidate(lost)
    assert candidate is not None
    if digest is None:  # not compared
        assert candidate.loss_verdict is Verdict.LOST_CONFIRM
    else:
        assert candidate.verdict is Verdict.COLLISION
        assert "outboxes" in str(candidate.evidence)
        assert world.repair(lost) is None


def test_a_tag_that_only_one_of_two_outboxes_has_filters_nothing() -> None:
    """A row without a digest tells its tag: settled by the other row's, its message would be forgotten."""
    world = World(tags={"billing": frozenset({"paid"})})
    second = TwoOutboxes(world)
    lost = world.lose(1)
    second.rows[lost] = replace(world.outbox.rows[lost], tag="other", content_digest=b"x" * 32)
    world.outbox.rows[lost] = replace(world.outbox.rows[lost], content_digest=None)
    world.rounds(world.process(), 4)
    candidate = world.candidate(lost)
    assert candidate is not None
    assert candidate.verdict is Verdict.COLLISION
    assert "tags 'other', 'paid'" in str(candidate.evidence["reason"])
    assert world.repair(lost) is None


def test_an_effect_of_one_of_two_contents_is_not_plainly_consumed() -> None:
    world = World()
    second = TwoOutboxes(world)
    delivered = world.deliver(1)
    second.rows[delivered] = replace(world.outbox.rows[delivered], content_digest=b"x" * 32)
    world.consume(records=False)
    world.rounds(world.process(), 4)
    candidate = world.candidate(delivered)
    assert candidate is not None
    assert candidate.verdict is Verdict.COLLISION


def test_a_repair_stops_when_a_second_content_appears() -> None:
    world = World()
    second = TwoOutboxes(world)
    lost = world.lose(1)
    world.ledger.holds.place(ENVIRONMENT, TOPIC, HoldKind.HOLD, by="operator", reason="test")
    world.rounds(world.process(), 4)
    second.rows[lost] = replace(world.outbox.rows[lost], content_digest=b"x" * 32)
    world.ledger.holds.lift(ENVIRONMENT, TOPIC, HoldKind.HOLD)
    world.rounds(world.process(), 4)
    repair = world.repair(lost)
    assert repair is not None
    assert repair.state is RepairState.FAILED
    assert "different contents" in (repair.answer or "")
    assert world.broker.copies == []
