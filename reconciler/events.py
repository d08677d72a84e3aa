"""What policy tells about itself: frozen values for one sink, which fans out to log, metrics and traces.

A round tells exactly one RoundFinished; everything else is told once, when it happens. Events carry no message
bodies and no secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import RepairState, Rung


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFinished:
    """The canonical event of a subscription's round, over all its shards."""

    subscription: Subscription
    #: Redis TIME of the newest shard round, milliseconds; 0 if none ran.
    at_ms: int
    #: Shards whose round ran, and shards that another owner has or that did not run.
    shards_run: int
    shards_skipped: int
    announced: int
    matched: int
    pending_after: int
    #: Age of the oldest pending key, seconds.
    oldest_pending_seconds: float
    #: "open", "shut", or "not asked" (nothing is old enough).
    gate: str
    gate_detail: str
    #: Keys that became due in this round, and keys verified.
    became_due: int
    verified: int
    broker_look_ups: int
    #: Verdict -> keys.
    verdicts: Mapping[str, int]
    #: Outcome of the topic's repairs that were worked on -> number.
    repairs: Mapping[str, int]
    #: Kinds of hold that were active: HOLD, BREAKER.
    holds: tuple[str, ...]
    #: True: no outbox or no inbox is configured, so verdicts rest on weaker evidence.
    weaker: bool
    #: Why the round ended early, one line each; empty when all went well.
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairStepped:
    """A repair changed its state."""

    environment: str
    topic: str
    unique_key: str
    rung: Rung
    before: RepairState
    after: RepairState
    attempts: int
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerOpened:
    """Repairs of the topic are frozen: too much became lost at once."""

    environment: str
    topic: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerClosed:
    """Calm rounds closed the breaker."""

    environment: str
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardStopped:
    """A shard's memory is not what it must be (wrong key type, foreign environment): a person must look."""

    shard: Shard
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsVoided:
    """Redis fell back behind rounds that had been stored: it lost the end of what it had acknowledged."""

    shard: Shard
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageOpened:
    """Redis is away, or lost its memory: rounds pause, announcements suspend."""

    environment: str
    reason: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageScanned:
    """Inbox rows were put back into the commit sets; announcements resume."""

    environment: str
    started_at_ms: int
    since_ms: int
    #: Subscription -> applied_at_ms of the newest row that belongs to the scan, by its inbox's clock.
    until_ms: Mapping[str, int]
    scanned: int
    #: Subscription -> rows.
    by_subscription: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageClosed:
    """Rounds run again."""

    environment: str
    started_at_ms: int
    scanned: int


Event = (
    RoundFinished
    | RepairStepped
    | BreakerOpened
    | BreakerClosed
    | ShardStopped
    | RoundsVoided
    | OutageOpened
    | OutageScanned
    | OutageClosed
)


class EventSink(Protocol):
    """Takes every event. Must not raise and must not block."""

    def emit(self, event: Event) -> None:
        """Tells one event."""
        ...
