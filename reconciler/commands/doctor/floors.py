"""Check of `reconciler doctor`: whether the floors of announcements would count if Redis lost everything."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.commands.diagnosis import Diagnosis
from reconciler.wiring.connections import Connections
from reconciler.wiring.subscriptions import subscription_of

REMEDY = (
    "`reconciler db upgrade ledger`, and for the user of `reconciler announcements` the key "
    "~reconciler:v1:{ENV:*}:proofs (docs/reference/rights.md); restart it. Without, nothing is lost: what the brokers "
    "keep is read and compared once more"
)


def check_floors(connections: Connections) -> Sequence[Diagnosis]:
    """A note on each subscription with floors that nothing proves. Raises DatabaseAway."""
    found: list[Diagnosis] = []
    for configured in connections.settings.subscriptions:
        subscription = subscription_of(connections.settings, configured)
        floors = [one for one in connections.ledger.reports.floors(subscription) if one.queue_offset > 0]
        unproved = sum(one.proof is None for one in floors)
        if unproved:
            found.append(
                Diagnosis(
                    check=f"floors of {subscription}",
                    level="note",
                    found=f"{unproved} of {len(floors)} have no proof: if Redis loses everything, these queues are "
                    "read from the earliest announcement on",
                    remedy=REMEDY,
                )
            )
    return found
