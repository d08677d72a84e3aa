"""The brake that a person pulls: `reconciler hold` stops a topic's repairs, `reconciler resume` lets them go on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from reconciler.commands.operator_actions import recorded
from reconciler.contract.tables import HoldKind
from reconciler.errors import ChangedMeanwhile
from reconciler.policy.ports import HeldTopic
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


def lift_hold(
    connections: Connections, topic: str, *, breaker: bool, by: str, seen: Collection[str] = ()
) -> LiftedHolds:
    """Lets the repairs go on; with `breaker` closes the circuit breaker, too. A topic that is stopped may have left
    the settings meanwhile.

    `seen`: the brakes that were shown (HeldTopic.seen); none: those that are read first count. Raises ChangedMeanwhile
    for another brake in the place of one of them: all of them stay.
    """
    kinds = (HoldKind.HOLD, HoldKind.BREAKER) if breaker else (HoldKind.HOLD,)
    settings, holds = connections.settings, connections.ledger.holds
    found = held_topic(connections, topic)
    if not found:
        require_topic(settings, topic)
    with recorded(connections, "resume", by=by, topic=topic, detail="--breaker" if breaker else "") as outcome:
        wanted = [held for held in found if held.kind in kinds]
        others = [held for held in wanted if seen and held.seen not in seen]
        done = frozenset() if others else holds.lift_seen(settings.environment, *wanted)
        lifted = tuple(held.kind for held in wanted if held.kind in done)
        left = held_topic(connections, topic)
        # What is gone was lifted by somebody else, as this person wished.
        if others or any(held.kind in kinds for held in left):
            now = {str(held.kind): f"{held.by}: {held.reason}" for held in left}
            raise ChangedMeanwhile(f"what stops the repairs of {topic}", now=now)
        outcome.result = f"lifted {', '.join(lifted)}" if lifted else "was not on hold"
    return LiftedHolds(lifted=lifted, left=tuple(held.kind for held in left))


def held_topic(connections: Connections, topic: str) -> list[HeldTopic]:
    """The brakes of a topic. Raises DatabaseAway."""
    return [held for held in connections.ledger.reports.holds(connections.settings.environment) if held.topic == topic]
