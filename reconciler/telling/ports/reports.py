"""What commands show of the ledger, and the ledger as a whole."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.policy.ports.announcing import AnnouncementLedger, AnnouncementQueue, Floor, RefusedAnnouncement
from reconciler.policy.ports.closing import Closings, KeyInLedger
from reconciler.policy.ports.ledger import (
    Candidate,
    Candidates,
    HandOvers,
    HeldTopic,
    Holds,
    KnownBrokers,
    NotedHalves,
    Outage,
    Outages,
    Repair,
    Repairs,
)
from reconciler.policy.ports.rounds import RestingShard, RoundDone, Rounds
from reconciler.telling.ports.actions import OperatorAction, OperatorActions
from reconciler.telling.ports.paging import EVERY_ROW, LedgerFilter, Page, Position


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictCount:
    """Candidates of a subscription with the same state and verdicts."""

    subscription: Subscription
    state: CandidateState
    verdict: Verdict
    loss_verdict: Verdict | None
    #: At most COUNTED_MAX + 1.
    count: int
    #: The earliest first_seen_ms of them.
    oldest_ms: int
    #: The unreadable states or verdicts; then they count as undecided.
    damage: str | None = None

    @property
    def is_open_loss(self) -> bool:
        """Lost, and neither arrived nor given up."""
        return self.state is CandidateState.OPEN and self.loss_verdict is not None

    @property
    def is_repaired_loss(self) -> bool:
        """Lost, and arrived since; one that a person has dismissed is settled, too."""
        is_there = self.state is CandidateState.SETTLED and self.verdict is Verdict.CONSUMED
        return is_there and self.loss_verdict is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairCount:
    """Repairs of a topic with the same scope, state and rung."""

    topic: str
    scope: str
    state: RepairState
    rung: Rung
    #: Of those counted, rows of which at least one send was started.
    attempted: int
    #: At most COUNTED_MAX + 1.
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
class StoredRest:
    """The row of rest of a subscription."""

    #: When all its shards were seen at rest, by the ledger's clock.
    at_ms: int
    #: By number.
    shards: Sequence[RestingShard]

    def seen_again(self, stored: StoredRound) -> StoredRound:
        """The newest round of a shard, as if it had been stored when the shard was seen at rest. As it is where another
        one was seen: a round came since, or the one that was seen is void."""
        done, number = stored.done, stored.done.shard.number
        if number >= len(self.shards) or stored.stored_at_ms >= self.at_ms:
            return stored
        seen = self.shards[number]
        if seen.round_at_ms != done.at_ms:
            return stored
        return replace(stored, done=replace(done, offsets=seen.offsets), stored_at_ms=self.at_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedAnnouncement:
    """A row of reconciler_quarantine."""

    environment: str
    refused: RefusedAnnouncement
    seen_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLife(KeyInLedger):
    """Everything the ledger knows of one key, in all topics."""

    #: For each candidate the round that saw the key first, where it is still kept.
    rounds: Sequence[StoredRound]
    #: What was done to it by hand, in time order.
    actions: Sequence[OperatorAction] = ()


#: Other environments that a sentence names.
ENVIRONMENTS_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentTraces:
    """Whether anything ever ran with an environment."""

    #: A round of it was stored before the time that was asked for.
    has_earlier_round: bool
    #: It had a round, or a process that noted its use.
    is_known: bool
    #: Other environments of the ledger, the first ENVIRONMENTS_NAMED; none where the login may not read them.
    others: Sequence[str] = ()


class LedgerReports(Protocol):
    """What commands and pages show of the ledger: reads only. Raises DatabaseAway.

    Listings have the newest row first, and rows of one millisecond in a fixed order. `after`: where the page before
    ended; InvalidValue for that of another listing.
    """

    def candidates(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[Candidate]:
        """By the time that each was first seen."""
        ...

    def repairs(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[Repair]:
        """By the time that each was created."""
        ...

    def rounds(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[StoredRound]:
        """By the time that each was stored; void ones, too."""
        ...

    def outages(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[Outage]:
        """By their start."""
        ...

    def quarantined(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[QuarantinedAnnouncement]:
        """By the time that each was refused."""
        ...

    def actions(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[OperatorAction]:
        """What was done by hand, by its start."""
        ...

    def refused_of(
        self, environment: str, queue: AnnouncementQueue, *, from_offset: int, limit: int
    ) -> Sequence[QuarantinedAnnouncement]:
        """Refused announcements of one queue, by offset."""
        ...

    def verdict_counts(self, environment: str) -> Sequence[VerdictCount]:
        """Candidates by subscription, state and verdicts; of each, the first COUNTED_MAX + 1 at most."""
        ...

    def repair_counts(self, environment: str) -> Sequence[RepairCount]:
        """Repairs by topic, scope, state and rung; of each, COUNTED_MAX + 1 at most, those that were sent first."""
        ...

    def life(self, environment: str, unique_key: str) -> LedgerLife:
        """All rows of one key."""
        ...

    def last_rounds(self, subscription: Subscription) -> Sequence[StoredRound]:
        """The newest round of every shard that is not void, by shard; as if stored when the shard was seen at rest."""
        ...

    def last_rounds_of(self, subscriptions: Collection[Subscription]) -> Mapping[Subscription, Sequence[StoredRound]]:
        """last_rounds() of each, asked together."""
        ...

    def rests_are_hidden(self) -> bool:
        """Whether this login may not read rows of rest, so that `last_rounds` and `shards_since` answered by rounds
        alone: a shard at rest has one in half an hour."""
        ...

    def shards_since(self, environment: str, *, since_ms: int) -> Collection[Shard]:
        """Shards that had a round which is not void, or were seen at rest, after this time of the ledger; of very many,
        not all."""
        ...

    def traces(self, environment: str, *, before_ms: int) -> EnvironmentTraces:
        """What processes of the environment, and of others, have left; `before_ms`: by the ledger's time."""
        ...

    def holds(self, environment: str) -> Sequence[HeldTopic]:
        """Stopped topics."""
        ...

    def floors(self, subscription: Subscription) -> Sequence[Floor]:
        """Where announcements would start if Redis lost everything."""
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
    def closings(self) -> Closings:
        """Acts of a person that end the work on a key."""
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
    def halves(self) -> NotedHalves:
        """Halves that share a key of the business."""
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
