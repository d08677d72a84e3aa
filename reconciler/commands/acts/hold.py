"""`reconciler hold` stops a topic's repairs, `reconciler resume` lets them continue.

A hold may have an end. `reconciler run` lifts the hold at its end. Release 0.2.0 lifts no hold.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from reconciler.clock import utc_text
from reconciler.commands.acts.operator_actions import recorded
from reconciler.contract.tables import HoldKind
from reconciler.errors import ChangedMeanwhile, InvalidValue
from reconciler.policy.ports.ledger import HeldTopic
from reconciler.wiring.connections import Connections
from reconciler.wiring.subscriptions import require_topic

logger = logging.getLogger(__name__)

#: Maximum number of days until the end of a hold. A person who wants a longer hold gives no end.
HELD_DAYS_MAX = 366
#: Pause between two looks of `run` for holds whose end has passed.
ENDS_SECONDS = 5.0


def place_hold(
    connections: Connections,
    topic: str,
    *,
    reason: str,
    by: str,
    until_ms: int | None = None,
    for_seconds: float | None = None,
) -> bool:
    """Stops the repairs of a topic. Returns False if a person had stopped these repairs before.

    If there was a hold before, the later end of both holds counts. A hold without an end counts as the later one.
    `until_ms`: the time at which `run` lifts the hold. `for_seconds`: instead of `until_ms`, the length of the hold by
    the ledger's time. Raises InvalidValue for an end that has passed, or is too far away.
    """
    settings = connections.settings
    require_topic(settings, topic)
    if for_seconds is not None:
        until_ms = connections.ledger_now_ms() + round(for_seconds * 1000)
    if until_ms is not None:
        _require_ahead(connections, until_ms)
    holds = connections.ledger.holds
    detail = reason if until_ms is None else f"until {utc_text(until_ms)}: {reason}"
    with recorded(connections, "hold", by=by, topic=topic, detail=detail) as outcome:
        placed = holds.place(settings.environment, topic, HoldKind.HOLD, by=by, reason=reason, until_ms=until_ms)
        outcome.result = "held" if placed else "was on hold already"
    return placed


def _require_ahead(connections: Connections, until_ms: int) -> None:
    ahead_ms = until_ms - max(connections.ledger_now_ms(), connections.clock.now_ms())
    if not 0 < ahead_ms <= HELD_DAYS_MAX * 86_400_000:
        told = f"a time ahead, {HELD_DAYS_MAX} days at most; without an end a person lifts the hold"
        raise InvalidValue("until", utc_text(until_ms), told)


def end_of_hold(connections: Connections, topic: str) -> int | None:
    """Returns the end of a person's hold of the topic. None: there is no hold, or the hold has no end."""
    held = (one for one in held_topic(connections, topic) if one.kind is HoldKind.HOLD)
    return next((one.until_ms for one in held), None)


def lift_ended(connections: Connections, *, by: str) -> None:
    """Lifts each hold whose end has passed both by the ledger's clock and by this host's clock.

    Either clock may be ahead, so both have to agree. If several processes run, one process lifts the hold. Raises
    DatabaseAway.
    """
    environment = connections.settings.environment
    ends = [held for held in connections.ledger.reports.holds(environment) if held.until_ms is not None]
    if not ends:
        return
    now_ms = min(connections.ledger_now_ms(), connections.clock.now_ms())
    for held in ends:
        if held.until_ms is None or held.until_ms > now_ms:
            continue
        until = utc_text(held.until_ms)
        with recorded(connections, "resume", by=by, topic=held.topic, detail=f"its end has passed: {until}") as outcome:
            lifted = connections.ledger.holds.lift_seen(environment, held)
            outcome.result = f"lifted {', '.join(lifted)}" if lifted else "was lifted or prolonged by somebody else"
        if lifted:
            told = {"topic": held.topic, "held_by": held.by, "until": until, "reason": held.reason}
            logger.info("hold_ended", extra=told)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiftedHolds:
    """What `reconciler resume` found and did."""

    lifted: tuple[HoldKind, ...]
    #: Holds that are still in force.
    left: tuple[HeldTopic, ...]


def lift_hold(
    connections: Connections, topic: str, *, breaker: bool, by: str, seen: Collection[str] = ()
) -> LiftedHolds:
    """Lifts a person's hold. With `breaker` this function closes only the circuit breaker.

    A person who closes the breaker may not know why a colleague holds the topic. The settings need not have the topic.
    `seen`: the holds that the person saw (HeldTopic.seen). Without `seen`, the holds that are read first count. Raises
    ChangedMeanwhile if another hold has replaced a hold that was seen. Then every hold stays.
    """
    kind = HoldKind.BREAKER if breaker else HoldKind.HOLD
    settings, holds = connections.settings, connections.ledger.holds
    found = held_topic(connections, topic)
    if not found:
        require_topic(settings, topic)
    with recorded(connections, "resume", by=by, topic=topic, detail="--breaker" if breaker else "") as outcome:
        wanted = [held for held in found if held.kind is kind]
        others = [held for held in wanted if seen and held.seen not in seen]
        done = frozenset() if others else holds.lift_seen(settings.environment, *wanted)
        lifted = tuple(held.kind for held in wanted if held.kind in done)
        left = held_topic(connections, topic)
        # Another person has lifted the missing holds, which is what this person wanted.
        if others or any(held.kind is kind for held in left):
            now = {str(held.kind): f"{held.by}: {held.reason}" for held in left}
            raise ChangedMeanwhile(f"what stops the repairs of {topic}", now=now)
        outcome.result = f"lifted {', '.join(lifted)}" if lifted else "was not on hold"
    return LiftedHolds(lifted=lifted, left=tuple(left))


def held_topic(connections: Connections, topic: str) -> list[HeldTopic]:
    """Returns the holds of a topic. Raises DatabaseAway."""
    return [held for held in connections.ledger.reports.holds(connections.settings.environment) if held.topic == topic]
