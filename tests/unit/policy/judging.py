"""One look at a key, for the tests of verdicts."""

from __future__ import annotations

from reconciler.contract.stored_facts import fact_in
from reconciler.policy.ports.ledger import VerdictEntry
from tests.unit.policy.world import World


def judged(world: World, unique_key: str, *, group: str = "billing") -> VerdictEntry:
    """One look at a key whose age is beyond doubt."""
    world.clock.advance(60)
    subscription = next(s for s in world.subscriptions if s.group == group)
    return world.process().keys_by_hand.judge_one(subscription, unique_key, dry_run=True).entry


def reason(entry: VerdictEntry) -> str:
    """The English text, which has a known code beside it."""
    assert fact_in(entry.evidence, "reason") is not None
    return str(entry.evidence["reason"])
