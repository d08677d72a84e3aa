"""The brake that a person pulls: `reconciler hold` stops a topic's repairs, `reconciler resume` lets them go on."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.commands.operator_actions import recorded
from reconciler.contract.tables import HoldKind
from reconciler.wiring.connections import Connections
from reconciler.wiring.subscriptions import require_topic


def place_hold(connections: Connections, topic: str, *, reason: str, by: str) -> bool:
    """Stops the repairs of a topic; False if they were stopped by hand already."""
    settings = connections.settings
    require_topic(settings, topic)
    holds = connections.ledger.holds
    with recorded(connections, "hold", by=by, topic=topic, detail=reason) as outcome:
        placed = holds.place(settings.environment, topic, HoldKind.HOLD, by=by, reason=reason)
        outcome.result = "held" if placed else "was on hold already"
    return placed


@dataclass(frozen=True, slots=True, kw_only=True)
class LiftedHolds:
    """What `reconciler resume` found and did."""

    lifted: tuple[HoldKind, ...]
    #: Brakes that are still on.
    left: tuple[HoldKind, ...]


def lift_hold(connections: Connections, topic: str, *, breaker: bool, by: str) -> LiftedHolds:
    """Lets the repairs go on; with `breaker` closes the circuit breaker, too. A topic that is stopped may have left
    the settings meanwhile."""
    kinds = (HoldKind.HOLD, HoldKind.BREAKER) if breaker else (HoldKind.HOLD,)
    settings, holds = connections.settings, connections.ledger.holds
    if topic not in holds.active(settings.environment):
        require_topic(settings, topic)
    with recorded(connections, "resume", by=by, topic=topic, detail="--breaker" if breaker else "") as outcome:
        lifted = tuple(kind for kind in kinds if holds.lift(settings.environment, topic, kind))
        outcome.result = f"lifted {', '.join(lifted)}" if lifted else "was not on hold"
    return LiftedHolds(lifted=lifted, left=tuple(holds.active(settings.environment).get(topic, ())))
