"""A check of `reconciler doctor`: whether the floors of announcements would be usable after Redis lost everything."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.commands.diagnosis import Diagnosis
from reconciler.contract.facts import Code, Field
from reconciler.wiring.connections import Connections
from reconciler.wiring.subscriptions import subscription_of

FLOORS_OF = Code("doctor.floors-of", subscription=Field.NAME)
FLOORS_UNPROVED = Code("doctor.floors-unproved", number=Field.NUMBER, total=Field.NUMBER)
KEEP_PROOFS = Code("doctor.keep-proofs")


def check_floors(connections: Connections) -> Sequence[Diagnosis]:
    """Returns a note for each subscription that has unproved floors. Raises DatabaseAway."""
    found: list[Diagnosis] = []
    for configured in connections.settings.subscriptions:
        subscription = subscription_of(connections.settings, configured)
        floors = [one for one in connections.ledger.reports.floors(subscription) if one.queue_offset > 0]
        unproved = sum(one.proof is None for one in floors)
        if unproved:
            found.append(
                Diagnosis(
                    check=FLOORS_OF(subscription=str(subscription)),
                    level="note",
                    found=FLOORS_UNPROVED(number=unproved, total=len(floors)),
                    remedy=KEEP_PROOFS(),
                )
            )
    return found
