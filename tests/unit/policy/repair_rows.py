"""What tests of repairs read, and what they let a broker answer."""

from __future__ import annotations

from collections import Counter

from reconciler.contract.tables import Rung
from reconciler.policy.evidence import EndOutcome, SendAnswer
from reconciler.policy.ports.ledger import Repair
from tests.unit.policy.world import World

END_ONLY = (Rung.END,)


def ended(world: World, unique_key: str) -> Repair:
    row = world.repair(unique_key)
    assert row is not None
    return row


def copies(world: World, unique_key: str) -> int:
    return Counter(copy.unique_key for copy in world.broker.copies)[unique_key]


def say(outcome: EndOutcome, code: int | None = None) -> SendAnswer:
    return SendAnswer(outcome=outcome, code=code, detail="scripted")
