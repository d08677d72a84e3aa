"""Events of the policy: frozen values for one sink, which fans out to log, metrics and traces.

A round emits exactly one RoundFinished; every other event is emitted once, when it happens. ShardRoundRan,
ShardsAtRest, VerdictsWritten, KeysLeft and KeysNotTaken are made for the history, and may name thousands of shards or
keys. A crash right after the change that an event reports loses the event. Events carry no message bodies and no
secrets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from reconciler.contract.facts import Fact
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.policy.ports.ledger import VerdictEntry
from reconciler.policy.ports.rounds import RoundDone

#: The state of a subscription's gate. "not asked": no key is old enough, and no row that was taken back is open.
GateState = Literal["open", "shut", "unknown", "not asked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFinished:
    """The canonical event of a subscription's round, over all its shards."""

    subscription: Subscription
    #: Redis TIME in milliseconds of the newest shard round, or of the look at a shard at rest. 0: there was no round
    #: and no look.
    at_ms: int
    #: Number of shards that rested or whose round ran; in the next field, of shards that another owner has or whose
    #: round did not run.
    shards_run: int
    shards_skipped: int
    announced: int
    matched: int
    pending_after: int
    #: Age of the oldest pending key, seconds.
    oldest_pending_seconds: float
    gate: GateState
    #: The watermark's own detail. None: the watermark was not asked, or has none.
    gate_detail: Fact | None
    #: The group's watermark, in milliseconds of broker store time. None: it was not asked, or is unknown.
    watermark_ms: int | None
    #: Number of keys that became due in this round; in the next field, of keys that were judged.
    became_due: int
    verified: int
    #: Keys that left pending with a verdict.
    settled: int
    broker_look_ups: int
    #: Verdict -> number of keys.
    verdicts: Mapping[str, int]
    #: Outcome -> number of the topic's repairs that ended a pass with this outcome.
    repairs: Mapping[str, int]
    #: The kinds of hold that were active: HOLD, BREAKER.
    holds: tuple[str, ...]
    #: True if no outbox or no inbox is configured, so that verdicts rest on weaker evidence.
    weaker: bool
    #: Keys that left pending because the group does not take their tag.
    not_taken: int = 0
    #: By how much Redis' clock is behind its earlier rounds: the clock was set back, or a node with a slower clock took
    #: over.
    clock_behind_seconds: float = 0.0
    #: By how much a broker's clock is at least ahead of Redis' clock. Negative: the broker's clock is behind. 0: the
    #: difference is within the skew margin.
    clocks_apart_seconds: float = 0.0
    #: How long the round took, by the process's monotonic clock.
    duration_seconds: float = 0.0
    #: Why the round ended early, one fact for each cause. Empty if the round ended normally.
    problems: tuple[Fact, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRoundRan:
    """A shard's round ran, and its row is in the ledger, unless the ledger took no row. A round whose reply was lost
    emits no such event."""

    done: RoundDone


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsAtRest:
    """A look found shards at rest whose pending set is empty. The ledger keeps this as rows of rest."""

    #: The last round of each shard, with Redis TIME of the look in milliseconds.
    looks: Sequence[tuple[RoundDone, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLoss:
    """A loss that was proved for the first time."""

    verdict: Verdict
    #: Seconds from the round that first saw the key to the round that judged it, by Redis' clock.
    waited_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictsWritten:
    """Verdicts that are committed in the ledger."""

    shard: Shard
    entries: Sequence[VerdictEntry]
    #: The written losses that the ledger did not have before. A key that a person asked for by hand is left out.
    new_losses: Sequence[NewLoss] = ()
    #: Seconds from the first question about this page of keys until the verdicts were written, by the process's
    #: monotonic clock.
    took_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftKey:
    """One key that was taken out of pending, and the ledger's row that allowed it."""

    unique_key: str
    #: The state of the row: SETTLED or QUARANTINED.
    state: CandidateState
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysLeft:
    """Keys that left pending because of their verdicts. Some keys may have left by a match just before."""

    shard: Shard
    keys: Sequence[LeftKey]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysNotTaken:
    """Keys that left pending because the outbox shows a tag that the group does not take.

    Some of these keys may have left by a match just before. A key that comes back with the next round is reported
    again.
    """

    shard: Shard
    unique_keys: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairStepped:
    """A repair changed its state or its rung, as `repairing.ladder` decided."""

    environment: str
    topic: str
    #: The scope of the repair: EVERY_GROUP, or the group of a hand-over.
    scope: str
    unique_key: str
    rung: Rung
    before: RepairState
    after: RepairState
    attempts: int
    answer: str
    #: The code of the answer.
    answer_code: str
    #: Seconds from the proof of the loss until the repair is DONE, by the ledger's clock. None: the repair is not DONE.
    took_seconds: float | None = None
    #: Seconds from the claim until this state was written, by the process's monotonic clock.
    worked_seconds: float = 0.0
    #: The producing span (contract/trace_context.py). None: the span is not known.
    traceparent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerOpened:
    """Repairs of the topic are stopped, because too many messages became lost at once."""

    environment: str
    topic: str
    #: The rule that opened the breaker, a method of BreakerRules: too-many, too-absent.
    cause: str
    reason: Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerClosed:
    """Calm rounds closed the breaker."""

    environment: str
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardStopped:
    """A shard's memory has a key of a wrong type or belongs to a foreign environment, so a person must look."""

    shard: Shard
    #: The cause of the InvariantViolation.
    cause: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsVoided:
    """Redis fell back behind rounds that had been stored, because it lost its newest acknowledged writes."""

    shard: Shard
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageOpened:
    """Redis is away, or has lost its memory. Rounds pause and announcements are suspended."""

    environment: str
    reason: str
    detail: Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageScanned:
    """Inbox rows were put back into the commit sets, and announcements resume."""

    environment: str
    started_at_ms: int
    since_ms: int
    #: Subscription -> applied_at_ms of the newest row that belongs to the scan, by its inbox's clock.
    until_ms: Mapping[str, int]
    scanned: int
    #: Subscription -> number of scanned rows.
    by_subscription: Mapping[str, int] = field(default_factory=dict)
    #: Subscription -> why some of its rows were left out. Each of their keys costs a look-up in the inbox.
    left_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageClosed:
    """A round closed the outage: no shard is away or has lost its memory, and the recovery let rounds run."""

    environment: str
    started_at_ms: int
    #: MEMORY_LOST also counts an outage that began with Redis away and ended without what Redis had acknowledged.
    reason: str
    scanned: int


Event = (
    RoundFinished
    | ShardRoundRan
    | ShardsAtRest
    | VerdictsWritten
    | KeysLeft
    | KeysNotTaken
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
        """Takes one event."""
        ...
