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
    #: COUNTED_MAX + 1 at most.
    count: int
    #: The earliest first_seen_ms among them.
    oldest_ms: int
    #: The unreadable states or verdicts; such rows count as undecided.
    damage: str | None = None

    @property
    def is_open_loss(self) -> bool:
        """True for losses that neither arrived nor were given up."""
        return self.state is CandidateState.OPEN and self.loss_verdict is not None

    @property
    def is_repaired_loss(self) -> bool:
        """True for losses that arrived since; dismissed ones are settled, too.

        Without an inbox what shows the arrival is the group's offset: DELIVERED.
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
    #: How many of the counted rows have started at least one send.
    attempted: int
    #: COUNTED_MAX + 1 at most.
    count: int
    #: The unreadable states or rungs; such rows count as failed.
    damage: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRound:
    """A row of reconciler_round."""

    done: RoundDone
    #: True if Redis fell back behind the round: it does not count.
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
        """Returns the newest round of a shard with the time at which the shard was seen at rest. Returns it unchanged
        if another round was seen: a round came since, or the seen one is void."""
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
    """Everything that the ledger knows about one key, in all topics."""

    #: For each candidate, the round that saw the key first, if it is still stored.
    rounds: Sequence[StoredRound]
    #: Acts by hand on the key, in time order.
    actions: Sequence[OperatorAction] = ()


#: Most other environments that a sentence names.
ENVIRONMENTS_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentTraces:
    """Whether anything ever ran with an environment."""

    #: True if one of its rounds was stored before the given time.
    has_earlier_round: bool
    #: True if it had a round, or a process that noted its use.
    is_known: bool
    #: Other environments of the ledger, at most ENVIRONMENTS_NAMED; empty if the login may not read them.
    others: Sequence[str] = ()


class LedgerReports(Protocol):
    """What commands and pages show of the ledger; it only reads. Raises DatabaseAway.

    Listings have the newest row first, and rows of the same millisecond in a fixed order. `after`: where the page
    before ended; raises InvalidValue for a position of another listing.
    """

    def candidates(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[Candidate]:
        """Pages by the time at which each was first seen."""
        ...

    def repairs(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[Repair]:
        """Pages by the time at which each was created."""
        ...

    def rounds(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[StoredRound]:
        """Pages by the time at which each was stored; void ones are included."""
        ...

    def outages(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[Outage]:
        """Pages by their start."""
        ...

    def quarantined(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[QuarantinedAnnouncement]:
        """Pages by the time at which each was refused."""
        ...

    def actions(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[OperatorAction]:
        """Pages of acts by hand, by their start."""
        ...

    def refused_of(
        self, environment: str, queue: AnnouncementQueue, *, from_offset: int, limit: int
    ) -> Sequence[QuarantinedAnnouncement]:
        """Returns refused announcements of one queue, by offset."""
        ...

    def verdict_counts(self, environment: str) -> Sequence[VerdictCount]:
        """Counts candidates by subscription, state and verdicts, each up to COUNTED_MAX + 1."""
        ...

    def repair_counts(self, environment: str) -> Sequence[RepairCount]:
        """Counts repairs by topic, scope, state and rung, each up to COUNTED_MAX + 1, those that were sent first."""
        ...

    def life(self, environment: str, unique_key: str) -> LedgerLife:
        """Returns all rows of one key."""
        ...

    def last_rounds(self, subscription: Subscription) -> Sequence[StoredRound]:
        """Returns the newest round of every shard that is not void, by shard; with the time at which the shard was seen
        at rest, if it was."""
        ...

    def last_rounds_of(self, subscriptions: Collection[Subscription]) -> Mapping[Subscription, Sequence[StoredRound]]:
        """Does last_rounds() for each together."""
        ...

    def rests_are_hidden(self) -> bool:
        """Returns True if this login may not read rows of rest, so that `last_rounds` and `shards_since` know only
        rounds: a shard at rest has one in half an hour."""
        ...

    def shards_since(self, environment: str, *, since_ms: int) -> Collection[Shard]:
        """Returns shards that had a valid round, or were seen at rest, after this time of the ledger; of very many, not
        all."""
        ...

    def traces(self, environment: str, *, before_ms: int) -> EnvironmentTraces:
        """Returns what processes of the environment, and of others, have left; `before_ms`: by the ledger's time."""
        ...

    def holds(self, environment: str) -> Sequence[HeldTopic]:
        """Returns the topics with stopped repairs."""
        ...

    def floors(self, subscription: Subscription) -> Sequence[Floor]:
        """Returns where announcements would be read from if Redis lost everything."""
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
        """Topics with stopped repairs."""
        ...

    @property
    def brokers(self) -> KnownBrokers:
        """Brokers that were seen in routes."""
        ...

    @property
    def halves(self) -> NotedHalves:
        """Noted halves, from which siblings (with the same business key) are found."""
        ...

    @property
    def outages(self) -> Outages:
        """Times without Redis."""
        ...

    @property
    def announcements(self) -> AnnouncementLedger:
        """What the announcement consumer stores durably."""
        ...

    @property
    def actions(self) -> OperatorActions:
        """Acts by hand."""
        ...

    @property
    def reports(self) -> LedgerReports:
        """Reads for commands and pages."""
        ...
