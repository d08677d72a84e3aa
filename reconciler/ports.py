"""All ports: what the policy (rounds, gate, verification, repair, outage) asks of the outside world.

Every call has one effect and says what a crash in its middle leaves. Ports raise only TransientError (nothing is
lost, the next round tries again) or PermanentError; "not found" and "don't know" are values (evidence.py).
Adapters: reconciler/ledger (Redis, SQL), reconciler/rocketmq (brokers), producers/outbox_reader.py and
consumers/inbox_reader.py (evidence tables). bootstrap.py is the only module that puts them together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState, HoldKind, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.evidence import InboxRow, Lookup, OutboxRow, QueuePosition, SendAnswer, StoredMessage, Watermark

# --------------------------------------------------------------------------- step 6: announcements into half sets


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncementQueue:
    """One queue of the unique-key topic on one broker; its number is the shard."""

    unique_key_topic: str
    broker: str
    queue_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Answer of HalfSets.admit."""

    #: False: the stored offset was another one, nothing was written.
    admitted: bool
    #: The offset stored now; None: none is stored (Redis lost it, or it is new).
    offset: int | None


class HalfSets(Protocol):
    """Announced keys of a subscription's shards, with the consumer's offset beside them. Raises RedisAway."""

    def position(self, shard: Shard, queue: AnnouncementQueue) -> int | None:
        """The stored next offset of the queue; None if there is none."""
        ...

    def admit(
        self,
        shard: Shard,
        queue: AnnouncementQueue,
        *,
        expected: int | None,
        following: int,
        unique_keys: Sequence[str],
    ) -> Admission:
        """One atomic step: if the stored offset is `expected` (None: none), add the keys and store `following`.

        Else nothing is written and the stored offset is returned: seek there. Adding a key twice is harmless.
        """
        ...

    def size(self, shard: Shard) -> int:
        """Keys in the half set: above a ceiling the announcement consumer suspends."""
        ...

    def take_lease(self, shard: Shard, queue: AnnouncementQueue, *, token: str, lease_seconds: float) -> bool:
        """Takes or renews the lease of the queue; False if another token holds it. Saves work, proves nothing."""
        ...

    def release_lease(self, shard: Shard, queue: AnnouncementQueue, *, token: str) -> None:
        """Gives the lease up if the token holds it."""
        ...


class CommitSets(Protocol):
    """Consumed keys. Raises RedisAway; the business never waits for it longer than the recorder allows."""

    def record(self, subscription: Subscription, unique_keys: Sequence[str], *, shards: int) -> None:
        """Adds keys to the commit sets of their shards. Adding twice is harmless; a crash in the middle leaves some."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedAnnouncement:
    """A message of the unique-key topic that was not admitted."""

    queue: AnnouncementQueue
    queue_offset: int
    #: MALFORMED, VERSION, ENVIRONMENT, TOPIC, SIGNATURE, SIZE or SHAPE.
    reason: str
    detail: str
    body: bytes


class AnnouncementLedger(Protocol):
    """Durable side of the announcement consumer. Raises DatabaseAway."""

    def floor(self, subscription: Subscription, queue: AnnouncementQueue) -> int | None:
        """Where to start when Redis has no offset; None: at the queue's earliest offset, never its last."""
        ...

    def quarantine(self, environment: str, refused: Sequence[RefusedAnnouncement]) -> None:
        """Keeps refused announcements. Doing it twice is harmless."""
        ...

    def has_open_outage(self, environment: str) -> bool:
        """True while an outage row is open that is not yet scanned (Outage.is_scanned): announcement consumers
        stay suspended. They resume before the rounds do, which close the row."""
        ...

    def open_outage(self, environment: str, *, reason: str, noticed_by: str) -> None:
        """Opens an outage row unless one is open. Starts at database time, or at the last stored round if earlier."""
        ...


# --------------------------------------------------------------------------- step 7: the round, one shard


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCounts:
    """What one round moved. announced - matched - (pending_after_union - pending_before) were pending already."""

    announced: int
    #: Announced keys whose consumption was recorded already.
    matched: int
    pending_before: int
    #: Keys new in pending.
    pending_added: int
    #: Keys that left pending because their consumption was recorded.
    pending_matched: int
    pending_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundDone:
    """A round that ran."""

    shard: Shard
    epoch: str
    #: The fence after the round.
    generation: int
    #: Redis TIME of the round in milliseconds: the score of keys it saw first.
    at_ms: int
    #: "<broker>/<queue>" -> next offset of the unique-key topic, read in the same atomic step.
    offsets: Mapping[str, int]
    counts: RoundCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardState:
    """What a shard's memory says before a round."""

    #: None: no epoch marker, Redis is new or lost its memory.
    epoch: str | None
    generation: int
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingKey:
    """One unmatched key."""

    unique_key: str
    first_seen_ms: int


class ShardMemory(Protocol):
    """The Redis half of step 7. Raises RedisAway; InvariantViolation for a key of a wrong type or a foreign epoch."""

    def state(self, shard: Shard) -> ShardState:
        """Reads epoch and generation and checks the type of every key and the epoch's environment."""
        ...

    def begin_epoch(self, shard: Shard) -> str:
        """Writes a new epoch marker unless there is one; returns the marker that stands."""
        ...

    def take_round(self, shard: Shard, *, epoch: str, not_before_ms: int = 0) -> RoundDone | None:
        """Runs the atomic step once (reference: WATCH generation, epoch, pending; one MULTI).

        None: it did not run, or nobody can tell whether it ran (another owner was quicker, the reply was lost, the
        epoch is another one). Either way pending holds every unmatched key and the next round is right.
        `not_before_ms`: at_ms of the last stored round + 1, so that ages never run backwards after a fail-over.
        """
        ...

    def due(
        self, shard: Shard, *, first_seen_until_ms: int, limit: int, after: PendingKey | None = None
    ) -> list[PendingKey]:
        """Pending keys first seen at or before the time, oldest first, ties by key; `after` pages on."""
        ...

    def forget(self, shard: Shard, unique_keys: Sequence[str]) -> int:
        """Removes keys from pending: only after their ledger rows are committed. Returns how many were there."""
        ...

    def pending_size(self, shard: Shard) -> tuple[int, int | None]:
        """Number of pending keys and the lowest first_seen_ms (None: empty)."""
        ...


class RoundLeases(Protocol):
    """Right to run a shard's rounds: saves work, correctness rests on the fence and the claims. Raises RedisAway."""

    def take(self, shard: Shard, *, token: str, lease_seconds: float) -> bool:
        """Takes or renews; False if another token holds it."""
        ...

    def release(self, shard: Shard, *, token: str) -> None:
        """Gives up if the token holds it."""
        ...


# --------------------------------------------------------------------------- steps 8 and 9: witnesses


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """How far each broker's index had come when a probe was found in it."""

    #: Broker -> store time of the probe, ms; a broker that is missing did not prove anything.
    at_ms: Mapping[str, int]

    def covers(self, brokers: Iterable[str], time_ms: int) -> bool:
        """True if every broker's index had passed the time."""
        return all(self.at_ms.get(broker, -1) > time_ms for broker in brokers)


class BrokerEvidence(Protocol):
    """What brokers know. A broker that fails is UNKNOWN in the answer, never an exception."""

    def watermark(self, subscription: Subscription) -> Watermark:
        """Low watermark of the group over all queues of topic and %RETRY%, minus the skew margin."""
        ...

    def positions(self, subscription: Subscription) -> Sequence[QueuePosition] | None:
        """Offsets of the group in every queue; None if a broker did not answer."""
        ...

    def horizon(self, topic: str) -> Horizon:
        """Sends a probe to every master of the topic's route and waits until its index has it."""
        ...

    def committed_copies(
        self, topic: str, unique_key: str, *, horizon: Horizon, not_before_ms: int
    ) -> Lookup[StoredMessage]:
        """Committed (or republished) copies under the real topic. ABSENT only if the horizon covers not_before_ms."""
        ...

    def half_copies(
        self, topic: str, unique_key: str, *, horizon: Horizon, not_before_ms: int, outbox: OutboxRow | None
    ) -> Lookup[StoredMessage]:
        """All half copies, oldest first (commit-log order per broker). 3.2.6 uses the outbox row's offsets too."""
        ...

    def parked_copies(
        self, topic: str, unique_key: str, *, horizon: Horizon, not_before_ms: int
    ) -> Lookup[StoredMessage]:
        """Copies in TRANS_CHECK_MAX_TIME_TOPIC (4.5.2 and newer)."""
        ...

    def group_copies(
        self, subscription: Subscription, unique_key: str, *, horizon: Horizon
    ) -> Mapping[str, Lookup[StoredMessage]]:
        """Copies in the group's own topics: {"retry": ..., "dead-letter": ...}."""
        ...

    def check_back_wait_seconds(self, half: StoredMessage) -> float:
        """How long to leave a half to the broker's own check-back (decisions.md); 0 if nobody could answer it."""
        ...

    def rollback_evident_after_seconds(self, half: StoredMessage) -> float | None:
        """Age at which an open half would have a put-back copy: time-out + 2 check intervals, at least its immunity.

        None: the half's broker cannot tell (up to 4.2, or its configuration was not answered).
        """
        ...


class OutboxEvidence(Protocol):
    """Producers' outboxes, by SELECT only."""

    def read(self, topic: str, unique_keys: Sequence[str]) -> Mapping[str, Lookup[OutboxRow]]:
        """For every key: FOUND with its row (tombstones too), ABSENT if every outbox answered, else UNKNOWN."""
        ...

    def is_configured(self, topic: str) -> bool:
        """False: no outbox URL for the topic; the announcement is the only evidence, which every report says."""
        ...


class InboxEvidence(Protocol):
    """Consumers' inboxes, by SELECT only."""

    def read(self, subscription: Subscription, unique_keys: Sequence[str]) -> Mapping[str, Lookup[InboxRow]]:
        """For every key: FOUND with its row, ABSENT, or UNKNOWN (away, or no inbox URL configured)."""
        ...

    def applied_since(
        self, subscription: Subscription, *, since_ms: int, after: tuple[int, str] | None, limit: int
    ) -> Sequence[InboxRow]:
        """Page of rows with applied_at_ms >= since_ms, ordered by (applied_at_ms, unique_key). Raises DatabaseAway."""
        ...

    def is_configured(self, subscription: Subscription) -> bool:
        """False: no inbox URL; effects are UNKNOWN and nothing can be settled by them."""
        ...


# --------------------------------------------------------------------------- step 10: repairing


class BrokerRepairs(Protocol):
    """The acts. Each sends at most one request that can have an effect."""

    def end_transaction(self, half: StoredMessage, *, expected: OutboxRow, commit: bool) -> SendAnswer:
        """Reads the half copy again at its offset, checks the guards (half topic or PREPARED bits, REAL_TOPIC, PGROUP,
        UNIQ_KEY, digest), then sends END_TRANSACTION two-way with fromTransactionCheck=true."""
        ...

    def republish(self, message: StoredMessage) -> SendAnswer:
        """Sends an ordinary message with the half's topic, body, TAGS, KEYS, UNIQ_KEY, flag and user properties."""
        ...


# --------------------------------------------------------------------------- the ledger (SQL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A row of reconciler_candidate."""

    subscription: Subscription
    unique_key: str
    shard: int
    state: CandidateState
    verdict: Verdict
    loss_verdict: Verdict | None
    #: JSON-ready.
    evidence: Mapping[str, object]
    attempts: int
    first_seen_ms: int
    next_at_ms: int
    updated_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """A verdict to be written down."""

    unique_key: str
    verdict: Verdict
    evidence: Mapping[str, object]
    first_seen_ms: int
    #: SETTLED or QUARANTINED leave pending afterwards; OPEN stays.
    state: CandidateState
    #: Wait before the next look, from database time.
    wait_seconds: float


class Candidates(Protocol):
    """Verdicts with their evidence. Raises DatabaseAway."""

    def read(self, subscription: Subscription, unique_keys: Sequence[str]) -> Mapping[str, Candidate]:
        """Rows that exist, by key."""
        ...

    def record(self, shard: Shard, verifications: Sequence[Verification]) -> None:
        """Inserts or updates; attempts grow by one; loss_verdict is set once and kept; committed when it returns.

        OPEN < QUARANTINED < SETTLED: a verdict of a lower state leaves the row as it is (a slower owner, a Redis
        that fell back). first_seen_ms keeps the earliest.
        """
        ...

    def open_losses(self, subscription: Subscription, *, limit: int) -> Sequence[Candidate]:
        """OPEN candidates whose loss_verdict is set and next_at_ms has passed, oldest first."""
        ...

    def open_due(self, subscription: Subscription, *, limit: int) -> Sequence[Candidate]:
        """OPEN candidates of any verdict whose next_at_ms has passed, by next_at_ms: keys to be looked at again.

        Also those that have left pending by a match since: their rows end by the inbox.
        """
        ...

    def reopen(self, subscription: Subscription, unique_key: str) -> bool:
        """An operator's wish: a row that is not OPEN is OPEN again and due now. False if there is none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A row of reconciler_repair."""

    environment: str
    topic: str
    #: EVERY_GROUP, or the group of a hand-over.
    scope: str
    unique_key: str
    state: RepairState
    rung: Rung
    token: str | None
    lease_until_ms: int | None
    attempts: int
    next_at_ms: int
    target: Mapping[str, object] | None
    answer: str | None
    created_at_ms: int
    sent_at_ms: int | None
    done_at_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairChange:
    """What an owner writes under its token."""

    state: RepairState
    rung: Rung
    #: True: attempts grow by one and sent_at_ms is now; written and committed before a byte leaves.
    counts_as_attempt: bool = False
    #: None keeps what is written.
    target: Mapping[str, object] | None = None
    #: None keeps what is written.
    answer: str | None = None
    #: Not claimable again before, from database time.
    wait_seconds: float = 0.0
    #: True: token and lease are given up with this change; DONE and FAILED give them up always.
    releases: bool = False


class Repairs(Protocol):
    """Repair rows and claims on them; all times are database time. Raises DatabaseAway."""

    def open(self, environment: str, topic: str, unique_key: str, *, rung: Rung) -> None:
        """Inserts an OPEN row of scope '*'; a row that exists is left as it is."""
        ...

    def read(self, environment: str, topic: str, unique_keys: Sequence[str]) -> Mapping[str, Sequence[Repair]]:
        """All rows of each key (scope '*' and groups)."""
        ...

    def claimable(self, environment: str, topic: str, *, scope: str, limit: int) -> Sequence[Repair]:
        """Rows that are not DONE or FAILED, are due, and have no living claim; oldest first."""
        ...

    def claim(self, repair: Repair, *, token: str, lease_seconds: float) -> Repair | None:
        """Takes the row if it is still claimable; the state is taken over as it is. None: somebody else has it."""
        ...

    def change(self, repair: Repair, change: RepairChange, *, token: str) -> Repair | None:
        """Writes under the token. None: the token is no longer the owner; stop at once."""
        ...

    def renew(self, repair: Repair, *, token: str, lease_seconds: float) -> Repair | None:
        """Extends the lease from now, for handlers that take long. None: the token is no longer the owner."""
        ...

    def reopen(self, repair: Repair, *, rung: Rung) -> bool:
        """An operator's wish: a FAILED row is OPEN again on the rung, with no attempts. False if it is not FAILED."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """A message to be run by a group's own handler."""

    repair: Repair
    message: StoredMessage


class HandOvers(Protocol):
    """Hand-over rows: the daemon inserts, a ReplayWorker of the group claims (Repairs.claim). Raises DatabaseAway."""

    def insert(self, environment: str, message: StoredMessage, *, groups: Sequence[str]) -> None:
        """One OPEN row a group with the message; rows that exist are left as they are."""
        ...

    def message_of(self, repair: Repair) -> StoredMessage | None:
        """The message of a row; None once it was emptied."""
        ...

    def finish(self, repair: Repair, *, token: str, answer: str) -> Repair | None:
        """DONE and the message emptied, under the token. None: no longer the owner."""
        ...


class Rounds(Protocol):
    """Durable record of rounds, and the floor that follows from them. Raises DatabaseAway."""

    def store(self, done: RoundDone) -> None:
        """One row; doing it twice is harmless."""
        ...

    def void_after(self, shard: Shard, *, epoch: str, generation: int) -> int:
        """Marks rounds of the epoch above the generation as void: Redis fell back behind them. Returns how many."""
        ...

    def last(self, shard: Shard) -> RoundDone | None:
        """The newest round that is not void."""
        ...

    def raise_floor(
        self, shard: Shard, *, epoch: str, oldest_pending_ms: int | None, up_to_generation: int | None = None
    ) -> None:
        """floor = max(floor, offsets of the newest non-void round of the epoch older than every pending key).

        `oldest_pending_ms` is read after round `up_to_generation` was stored: later rounds, by another owner, are
        left out, because their keys were not asked for.
        """
        ...


class Holds(Protocol):
    """Stopped topics. Raises DatabaseAway."""

    def active(self, environment: str) -> Mapping[str, Sequence[HoldKind]]:
        """Topic -> kinds that hold it."""
        ...

    def place(self, environment: str, topic: str, kind: HoldKind, *, by: str, reason: str) -> bool:
        """False if it was there already."""
        ...

    def lift(self, environment: str, topic: str, kind: HoldKind) -> bool:
        """False if there was none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A row of reconciler_outage."""

    environment: str
    started_at_ms: int
    reason: str
    #: JSON: progress of the scan; {"complete": true, ...} once it has ended.
    scan_position: Mapping[str, object] | None
    scanned: int
    closed_at_ms: int | None

    @property
    def is_scanned(self) -> bool:
        """The inbox scan has ended: announcements resume, and the next round closes the row."""
        return bool(self.scan_position and self.scan_position.get("complete") is True)


class Outages(Protocol):
    """Times without Redis, or after it lost its memory. Raises DatabaseAway."""

    def current(self, environment: str) -> Outage | None:
        """The open row, if any."""
        ...

    def open(self, environment: str, *, reason: str, noticed_by: str) -> Outage:
        """Opens a row unless one is open; starts at database time or at the last stored round if that is earlier."""
        ...

    def advance(self, outage: Outage, *, scan_position: Mapping[str, object], scanned: int) -> None:
        """Notes progress of the scan."""
        ...

    def close(self, outage: Outage) -> None:
        """Closes the row."""
        ...


# --------------------------------------------------------------------------- what commands show


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerFilter:
    """Rows to be shown; None leaves a field open. Fields that a table lacks are ignored."""

    topic: str | None = None
    group: str | None = None
    candidate_state: CandidateState | None = None
    verdict: Verdict | None = None
    #: True: only rows with a loss_verdict, False: only rows without.
    is_loss: bool | None = None
    repair_state: RepairState | None = None
    rung: Rung | None = None
    #: EVERY_GROUP, or the group of a hand-over.
    scope: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictCount:
    """Candidates of a subscription with the same state and verdicts."""

    subscription: Subscription
    state: CandidateState
    verdict: Verdict
    loss_verdict: Verdict | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairCount:
    """Repairs of a topic with the same scope, state and rung."""

    topic: str
    scope: str
    state: RepairState
    rung: Rung
    #: Rows of which at least one send was started.
    attempted: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRound:
    """A row of reconciler_round."""

    done: RoundDone
    #: Redis fell back behind it: it never happened.
    is_void: bool
    stored_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedAnnouncement:
    """A row of reconciler_quarantine."""

    environment: str
    refused: RefusedAnnouncement
    seen_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTopic:
    """A row of reconciler_hold."""

    topic: str
    kind: HoldKind
    since_ms: int
    by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """A row of reconciler_floor."""

    subscription: Subscription
    broker: str
    queue_id: int
    queue_offset: int
    updated_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLife:
    """Everything the ledger knows of one key."""

    candidates: Sequence[Candidate]
    repairs: Sequence[Repair]
    #: For each candidate the round that saw the key first, where it is still kept.
    rounds: Sequence[StoredRound]


class KeyReports(Protocol):
    """What commands and pages show of keys: reads only. Raises DatabaseAway.

    Lists page by key: `after` is the identity of the last row of the page before.
    """

    def candidates(
        self, environment: str, *, only: LedgerFilter, limit: int, after: tuple[str, str, str] | None = None
    ) -> Sequence[Candidate]:
        """Ordered by (topic, group, unique key), which is what `after` holds."""
        ...

    def repairs(
        self, environment: str, *, only: LedgerFilter, limit: int, after: tuple[str, str, str] | None = None
    ) -> Sequence[Repair]:
        """Ordered by (topic, scope, unique key), which is what `after` holds."""
        ...

    def verdict_counts(self, environment: str) -> Sequence[VerdictCount]:
        """Candidates by subscription, state and verdicts."""
        ...

    def repair_counts(self, environment: str) -> Sequence[RepairCount]:
        """Repairs by topic, scope, state and rung."""
        ...

    def life(self, environment: str, unique_key: str) -> LedgerLife:
        """All rows of one key."""
        ...


class OperationReports(Protocol):
    """What commands and pages show of rounds, refusals and stops: reads only. Raises DatabaseAway."""

    def last_rounds(self, subscription: Subscription) -> Sequence[StoredRound]:
        """The newest round of every shard that is not void, by shard."""
        ...

    def quarantined(
        self, environment: str, *, limit: int, after: AnnouncementQueue | None = None, after_offset: int = -1
    ) -> Sequence[QuarantinedAnnouncement]:
        """Refused announcements by (topic, broker, queue, offset)."""
        ...

    def holds(self, environment: str) -> Sequence[HeldTopic]:
        """Stopped topics."""
        ...

    def floors(self, subscription: Subscription) -> Sequence[Floor]:
        """Where announcements would start if Redis lost everything."""
        ...

    def outages(self, environment: str, *, limit: int) -> Sequence[Outage]:
        """The newest outages first."""
        ...


class LedgerReports(KeyReports, OperationReports, Protocol):
    """All that commands and pages show of the ledger."""


class Ledger(Protocol):
    """All SQL ports of one database, as ledger/sql_ledger.py and ledger/memory.py put them together."""

    @property
    def candidates(self) -> Candidates:
        """Verdicts."""
        ...

    @property
    def repairs(self) -> Repairs:
        """Repairs and claims."""
        ...

    @property
    def hand_overs(self) -> HandOvers:
        """Messages for groups' own handlers."""
        ...

    @property
    def rounds(self) -> Rounds:
        """Rounds and floors."""
        ...

    @property
    def holds(self) -> Holds:
        """Stopped topics."""
        ...

    @property
    def outages(self) -> Outages:
        """Times without Redis."""
        ...

    @property
    def announcements(self) -> AnnouncementLedger:
        """The announcement consumer's durable side."""
        ...

    @property
    def reports(self) -> LedgerReports:
        """Reads for commands and pages."""
        ...
