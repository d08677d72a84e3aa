"""Asks brokers for messages that a group has passed, on which an effect query is tried."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.contract.subscription import Subscription
from reconciler.halves.values import HalfCopy
from reconciler.policy.evidence import Lookup, StoredMessage
from reconciler.policy.inquiry.delivery import reach
from reconciler.policy.ports.asked import Asked, heard
from reconciler.policy.ports.evidence import Horizon
from reconciler.wiring.connections import Connections
from reconciler.wiring.evidence import broker_evidence
from reconciler.wiring.rounds import topic_plans


def delivered_messages(
    connections: Connections, subscription: Subscription, committed: Iterable[HalfCopy]
) -> dict[str, StoredMessage]:
    """Returns unique key -> a committed copy, for halves that ended in commit. The group takes these messages, and all
    their copies lie below the offsets that the group has stored."""
    brokers = connections.shared(broker_evidence)
    plans = (plan for topic in topic_plans(connections.settings) for plan in topic.subscriptions)
    plan = next(plan for plan in plans if plan.subscription == subscription)
    positions, unproved = brokers.positions(subscription), Horizon(at_ms={})

    def copies_of(half: HalfCopy) -> Asked[Lookup[StoredMessage]]:
        return brokers.committed_copies(subscription.topic, half.unique_key, horizon=unproved, not_before_ms=0)

    taken = [half for half in committed if half.unique_key and plan.accepts(half.tags or None)]
    return {
        half.unique_key: copies.records[0]
        for half, copies in zip(taken, heard(copies_of, taken), strict=True)
        if copies.is_found and reach(positions, copies.records) is None
    }
