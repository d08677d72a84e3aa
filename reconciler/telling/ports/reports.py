"""The port through which commands read the ledger, and the port of the whole ledger."""

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
    #: COUNTED_MAX + 1 at most.
    count: int
    #: The earliest first_seen_ms of the counted candidates.
    oldest_ms: int
    #: Unreadable states or verdicts. Rows that have these count as undecided.
    damage: str | None = None

    @property
    def is_open_loss(self) -> bool:
        """True for proved losses that neither arrived nor were given up."""
        return self.state is CandidateState.OPEN and self.loss_verdict is not None

    @property
    def is_repaired_loss(self) -> bool:
        """True for losses that have arrived since. False for dismissed losses, which are settled, too.

        Without an inbox, only the group's offset shows the arrival (DELIVERED).
        """
        is_there = self.state is CandidateState.SETTLED and self.verdict in (Verdict.CONSUMED, Verdict.DELIVERED)
        return is_there and self.loss_verdict is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairCount:
    """Repairs of a topic with the same scope, state and rung."""

    topic: str
    scope: str
    state: RepairState
    rung: Rung
    #: Number of counted repairs that have started at least one send.
    attempted: int
    #: COUNTED_MAX + 1 at most.
    count: int
    #: Unreadable states or rungs. Rows that have these count as failed.
    damage: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRound:
    """A row of reconciler_round."""

    done: RoundDone
    #: True if Redis fell back to a state before the round, so that the round does not count.
    is_void: bool
    stored_at_ms: int
    #: The time by the ledger's clock at which the shard was seen at rest after the round. None: it was not.
    rested_at_ms: int | None = None

    @property
    def looked_at_ms(self) -> int:
        """The time of the last look at the shard: of its round, or of a look that found the shard at rest."""
        return self.done.at_ms if self.rested_at_ms is None else self.rested_at_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRest:
    """The row of rest of a subscription."""

    #: The time by the ledger's clock at which the shards of the row were seen at rest.
    at_ms: int
    #: The shards at rest, ordered by number.
    shards: Sequence[RestingShard]

    def seen_again(self, stored: StoredRound) -> StoredRound:
        """Returns the newest round of a shard with the time at which the shard was seen at rest.

        Returns the round unchanged if the row of rest saw another round: a later round has run since, or the seen round
        is void.
        """
        done, number = stored.done, stored.done.shard.number
        if number >= len(self.shards) or stored.stored_at_ms >= self.at_ms:
            return stored
        seen = self.shards[number]
        if seen.round_at_ms != done.at_ms:
            return stored
        return replace(
            stored, done=replace(done, offsets=seen.offsets), stored_at_ms=self.at_ms, rested_at_ms=self.at_ms
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedAnnouncement:
    """A row of reconciler_quarantine."""

    environment: str
    refused: RefusedAnnouncement
    seen_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLife(KeyInLedger):
    """All rows of the ledger about one key, in all topics."""

    #: The rounds that first saw the key: one for each candidate whose round is still stored.
    rounds: Sequence[StoredRound]
    #: Acts by hand on the key, in the order of time.
    actions: Sequence[OperatorAction] = ()


#: Maximum number of other environments that a sentence names.
ENVIRONMENTS_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentTraces:
    """The traces that processes with an environment have left in the ledger."""

    #: True if a round of the environment was stored before the given time.
    has_earlier_round: bool
    #: True if the environment had a round, or a process that recorded its use.
    is_known: bool
    #: At most ENVIRONMENTS_NAMED other environments of the ledger. Empty if the login may not read these.
    others: Sequence[str] = ()


class LedgerReports(Protocol):
    """Reads the ledger for commands and pages. Methods raise DatabaseAway.

    A listing begins with the newest row. Rows of one millisecond have a fixed order. `after`: the end of the previous
    page. A listing raises InvalidValue for the end of a page of another listing.
    """

    def candidates(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[Candidate]:
        """Returns a page of candidates, ordered by the time at which a key was first seen."""
        ...

    def repairs(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[Repair]:
        """Returns a page of repairs, ordered by the time of their creation."""
        ...

    def rounds(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[StoredRound]:
        """Returns a page of rounds, ordered by the time at which a round was stored. Void rounds are included."""
        ...

    def outages(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[Outage]:
        """Returns a page of outages, ordered by their start."""
        ...

    def quarantined(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[QuarantinedAnnouncement]:
        """Returns a page of refused announcements, ordered by the time of the refusal."""
        ...

    def actions(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[OperatorAction]:
        """Returns a page of acts by hand, ordered by their start."""
        ...

    def refused_of(
        self, environment: str, queue: AnnouncementQueue, *, from_offset: int, limit: int
    ) -> Sequence[QuarantinedAnnouncement]:
        """Returns the refused announcements of one queue from an offset on, ordered by offset."""
        ...

    def verdict_counts(self, environment: str) -> Sequence[VerdictCount]:
        """Counts candidates by subscription, state and verdicts. A count ends at COUNTED_MAX + 1."""
        ...

    def repair_counts(self, environment: str) -> Sequence[RepairCount]:
        """Counts repairs by topic, scope, state and rung. A count ends at COUNTED_MAX + 1, and takes sent repairs
        first."""
        ...

    def life(self, environment: str, unique_key: str) -> LedgerLife:
        """Returns all rows of one key."""
        ...

    def last_rounds(self, subscription: Subscription) -> Sequence[StoredRound]:
        """Returns the newest valid round of every shard, ordered by shard.

        If a shard was seen at rest since its round, the round has the time of that sight.
        """
        ...

    def last_rounds_of(self, subscriptions: Collection[Subscription]) -> Mapping[Subscription, Sequence[StoredRound]]:
        """Returns subscription -> what last_rounds() returns. All subscriptions are read together."""
        ...

    def rests_are_hidden(self) -> bool:
        """Returns True if this login may not read rows of rest.

        With such a login, `last_rounds` and `shards_since` know only rounds, and a shard at rest may have only one
        round in half an hour.
        """
        ...

    def shards_since(self, environment: str, *, since_ms: int) -> Collection[Shard]:
        """Returns the shards that had a valid round, or were seen at rest, after this time of the ledger.

        If there are very many shards, some are left out.
        """
        ...

    def traces(self, environment: str, *, before_ms: int) -> EnvironmentTraces:
        """Returns the traces that processes of this environment and of other environments have left.

        `before_ms`: a time of the ledger. An earlier round has to be older than this.
        """
        ...

    def holds(self, environment: str) -> Sequence[HeldTopic]:
        """Returns the topics whose repairs are stopped."""
        ...

    def floors(self, subscription: Subscription) -> Sequence[Floor]:
        """Returns the floors of a subscription, from which announcements are read again if Redis lost everything."""
        ...


class Ledger(Protocol):
    """All ports of one ledger. They are implemented in ledger/sql_ledger.py and testing/memory.py."""

    @property
    def candidates(self) -> Candidates:
        """Candidates and their verdicts."""
        ...

    @property
    def repairs(self) -> Repairs:
        """Repairs and claims."""
        ...

    @property
    def hand_overs(self) -> HandOvers:
        """Messages that are handed over to groups' own handlers."""
        ...

    @property
    def closings(self) -> Closings:
        """Acts by which a person ends the work on a key."""
        ...

    @property
    def rounds(self) -> Rounds:
        """Rounds and floors."""
        ...

    @property
    def holds(self) -> Holds:
        """Topics with stopped repairs."""
        ...

    @property
    def brokers(self) -> KnownBrokers:
        """Brokers that were seen in routes."""
        ...

    @property
    def halves(self) -> NotedHalves:
        """Noted halves, among which siblings are found: halves with the same business key."""
        ...

    @property
    def outages(self) -> Outages:
        """Outages, which are times without Redis."""
        ...

    @property
    def announcements(self) -> AnnouncementLedger:
        """The durable rows of the announcement consumer."""
        ...

    @property
    def actions(self) -> OperatorActions:
        """Acts by hand."""
        ...

    @property
    def reports(self) -> LedgerReports:
        """Listings, counts and rows for commands and pages."""
        ...
