"""One look at a key, for the tests of verdicts."""

from __future__ import annotations

from reconciler.contract.stored_facts import fact_in
from reconciler.policy.ports.ledger import Verification
from tests.unit.policy.world import World


def judged(world: World, unique_key: str, *, group: str = "billing") -> Verification:
    """One look at a key whose age is beyond doubt."""
    world.clock.advance(60)
    subscription = next(s for s in world.subscriptions if s.group == group)
    return world.process().verify_one(subscription, unique_key, dry_run=True).verification


def reason(verification: Verification) -> str:
    """The English text, which has a known code beside it."""
    assert fact_in(verification.evidence, "reason") is not None
    return str(verification.evidence["reason"])
