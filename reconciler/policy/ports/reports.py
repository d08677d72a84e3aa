"""What commands show of the ledger, and the ledger as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import CandidateState, HoldKind, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.policy.ports.actions import OperatorAction, OperatorActions
from reconciler.policy.ports.announcing import AnnouncementLedger, AnnouncementQueue, RefusedAnnouncement
from reconciler.policy.ports.ledger import (
    Candidate,
    Candidates,
    HandOvers,
    Holds,
    KnownBrokers,
    Outage,
    Outages,
    Repair,
    Repairs,
)
from reconciler.policy.ports.rounds import RoundDone, Rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerFilter:
    """Rows to be shown; None leaves a field open. Fields that a table lacks are ignored."""

    topic: str | None = None
    group: str | None = None
    unique_keys: tuple[str, ...] | None = None
    candidate_state: CandidateState | None = None
    verdict: Verdict | None = None
    #: True: only rows with a loss_verdict, False: only rows without.
    is_loss: bool | None = None
    repair_state: RepairState | None = None
    #: True: only repairs that are DONE, False: only the others, also those with an unreadable state.
    is_done: bool | None = None
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
    #: The earliest first_seen_ms of them.
    oldest_ms: int
    #: The unreadable states or verdicts; then they count as undecided.
    damage: str | None = None


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
    #: The unreadable states or rungs; then they count as failed.
    damage: str | None = None


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
    #: What was done to it by hand, in time order.
    actions: Sequence[OperatorAction] = ()


class LedgerReports(Protocol):
    """What commands and pages show of the ledger: reads only. Raises DatabaseAway.

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

    def actions(self, environment: str, *, only: LedgerFilter, limit: int) -> Sequence[OperatorAction]:
        """What was done by hand, the newest first; of the filter, topic, group and unique keys count."""
        ...


class Ledger(Protocol):
    """All SQL ports of one database, as ledger/sql_ledger.py and testing/memory.py put them together."""

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
    def brokers(self) -> KnownBrokers:
        """Brokers that were seen in routes."""
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
    def actions(self) -> OperatorActions:
        """What is done by hand."""
        ...

    @property
    def reports(self) -> LedgerReports:
        """Reads for commands and pages."""
        ...
