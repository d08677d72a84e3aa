"""The ledger in SQL: verdicts, repairs and claims, hand-overs, holds, outages."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from reconciler.contract.facts import Fact
from reconciler.contract.kept_facts import IN_WORDS, REPAIR_DISMISSED, TAKEN_BY_NOBODY
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState, HoldKind, RepairState, Rung
from reconciler.contract.verdicts import QUARANTINING, Undecided, Verdict
from reconciler.policy.evidence import StoredMessage

#: Evidence of a key that took effect after a person had dismissed it: when that was, by the ledger's clock.
DISMISSED_AT_MS = "dismissed_at_ms"
#: Hexadecimal digits of the word for what a person saw.
SEEN_DIGITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What the ledger keeps of a judged key: a row of reconciler_candidate."""

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
    #: When the databases are asked once more whether a closed row's verdict still holds; None: they are not.
    ask_again_at_ms: int | None = None
    #: The unreadable values of the row; harmless ones take their place until the next verdict is written.
    #: Such a row closes nothing: its key is looked at as long as it is pending.
    damage: str | None = None

    @property
    def is_dismissed(self) -> bool:
        """True: given up, and closed by a person."""
        return self.state is CandidateState.SETTLED and self.verdict in QUARANTINING

    @property
    def took_effect_dismissed(self) -> bool:
        """True: it was dismissed, took effect all the same, and waits for a person again."""
        return self.state is CandidateState.QUARANTINED and DISMISSED_AT_MS in self.evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictEntry:
    """A verdict to be written into the ledger."""

    unique_key: str
    verdict: Verdict
    evidence: Mapping[str, object]
    first_seen_ms: int
    #: SETTLED or QUARANTINED leave pending afterwards; OPEN stays.
    state: CandidateState
    #: Wait before the next look, from database time.
    wait_seconds: float
    #: For a key that leaves pending: the wait before its databases are asked once more. None: they are not asked.
    ask_again_seconds: float | None = None
    #: UNKNOWN: what keeps it from a verdict, and since when (Redis TIME). None: nothing but time.
    undecided_by: Undecided | None = None
    undecided_since_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UndecidedRows:
    """OPEN candidates that are UNKNOWN without a proved loss, of one cause."""

    #: As far as they were counted.
    count: int
    #: By first_seen_ms, then unique_key.
    oldest: Candidate | None


class Candidates(Protocol):
    """Verdicts with their evidence. Raises DatabaseAway."""

    def of_keys(self, subscription: Subscription, unique_keys: Sequence[str]) -> Mapping[str, Candidate]:
        """Rows that exist, by key."""
        ...

    def record(self, shard: Shard, entries: Sequence[VerdictEntry]) -> None:
        """Inserts or updates; attempts grow by one; loss_verdict is set once and kept; committed when it returns.

        OPEN < QUARANTINED < SETTLED: a verdict of a lower state leaves the row as it is (a slower owner, a Redis
        that fell back). first_seen_ms keeps the earliest. Unreadable values of a row are overwritten.
        """
        ...

    def open_losses(self, subscription: Subscription, *, limit: int) -> Sequence[Candidate]:
        """OPEN candidates whose loss_verdict is set and next_at_ms has passed, oldest first.

        Behind them come rows of the future (row_rules.is_of_the_future): the ledger's clock was set back.
        """
        ...

    def open_due(self, subscription: Subscription, *, shards: Collection[int], limit: int) -> Sequence[Candidate]:
        """OPEN candidates of any verdict whose next_at_ms has passed, by next_at_ms: keys to be looked at again. Behind
        them come rows of the future, as in open_losses.

        Only of these shards: rows of a shard that no process runs must not take the others' room. Also those that
        have left pending by a match since: their rows end by the inbox.
        """
        ...

    def due_subscriptions(self, environment: str) -> Collection[Subscription]:
        """Those with OPEN rows whose time has come."""
        ...

    def undecided(
        self, subscription: Subscription, *, limit: int, after: Candidate | None = None
    ) -> Sequence[Candidate]:
        """OPEN candidates that are UNKNOWN without a proved loss, due or not, by (first_seen_ms, unique_key).

        `after`: the last one of the page before.
        """
        ...

    def undecided_rows(
        self, subscription: Subscription, by: Undecided | None, *, since_before_ms: int | None = None, most: int
    ) -> UndecidedRows | None:
        """Those of one cause, of whichever age. None as cause: nothing but time, or written by an older release.

        `since_before_ms`: only those that it has kept from a verdict since an earlier time. `most` rows are counted; of
        no cause, among as many of the oldest of all. None: the ledger is an older release's, whose rows do not tell.
        """
        ...

    def reopen(self, row: Candidate) -> bool:
        """A row that is not OPEN is OPEN again and due now. False: there is none, or state or verdict have changed
        since it was read."""
        ...

    def to_ask_again(self, subscription: Subscription, *, limit: int) -> Sequence[Candidate]:
        """Rows whose ask_again_at_ms has passed, by that time: REJECTED ones, those that wait for a person, and those
        that a person has dismissed."""
        ...

    def ask_later(self, subscription: Subscription, unique_keys: Sequence[str], *, seconds: float | None) -> None:
        """Puts off when rows are asked again, from database time; None: for good. Nothing else of them changes.

        Rows that are not asked again stay so: a person may have acted on one since.
        """
        ...

    def take_back(self, shard: Shard, unique_keys: Sequence[str]) -> None:
        """Rows that are to be asked again are OPEN, due now and of this shard. Verdict and evidence stay.

        A row that a person has dismissed since is left alone.
        """
        ...

    def wake_dismissed(self, subscription: Subscription, entries: Sequence[VerdictEntry]) -> Collection[str]:
        """Rows that a person has dismissed wait for a person again, with this verdict and evidence; nothing is sent for
        them. Returns their keys: a row that is not dismissed any more is left alone."""
        ...

    def before_since(
        self, subscription: Subscription, loss_verdict: Verdict | None, *, limit: int, after: Candidate | None = None
    ) -> Sequence[Candidate]:
        """SETTLED candidates that are BEFORE_SINCE and had this loss_verdict, newest first: by (first_seen_ms,
        unique_key), falling. `after`: the last one of the page before.
        """
        ...

    def answer_for(self, shard: Shard, unique_keys: Sequence[str]) -> None:
        """Rows that are SETTLED as BEFORE_SINCE are OPEN, due now and of this shard. Verdict and evidence stay."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A row of reconciler_repair. What has a default is so while nobody has worked on it."""

    environment: str
    topic: str
    #: EVERY_GROUP, or the group of a hand-over.
    scope: str
    unique_key: str
    state: RepairState
    rung: Rung
    token: str | None = None
    lease_until_ms: int | None = None
    attempts: int = 0
    next_at_ms: int
    target: Mapping[str, object] | None = None
    answer: str | None = None
    created_at_ms: int
    sent_at_ms: int | None = None
    done_at_ms: int | None = None
    #: Time of the first send; never changed. May be None for rows first sent by a release before v0002.
    first_sent_at_ms: int | None = None
    #: What the answer says. None: somebody else's text, or a newer release's.
    answer_fact: Fact | None = None

    @property
    def why(self) -> Fact | None:
        """The answer, in whatever words. None: there is none."""
        return self.answer_fact or (IN_WORDS(text=self.answer) if self.answer else None)

    @property
    def is_dismissed(self) -> bool:
        """True: closed by a person."""
        fact = self.answer_fact
        return self.state is RepairState.DONE and fact is not None and fact.code is REPAIR_DISMISSED

    @property
    def is_made_by_dismissal(self) -> bool:
        """True: there was none before, and none may be opened after it."""
        return self.is_dismissed and self.attempts == 0 and self.created_at_ms == self.done_at_ms

    @property
    def is_unsent(self) -> bool:
        """True: nothing was sent. One that a person opened again has an attempt all the same."""
        return self.attempts == 0 or self.sent_at_ms is None

    @property
    def closed_unsent(self) -> bool:
        """True: DONE without a send, or with one that came to nothing, by settings that may have been outdated. A row
        that a person dismissed is not meant."""
        came_to_nothing = self.answer_fact is not None and self.answer_fact.code is TAKEN_BY_NOBODY
        return self.state is RepairState.DONE and (self.is_unsent or came_to_nothing) and not self.is_dismissed


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairChange:
    """What an owner writes under its token."""

    state: RepairState
    rung: Rung
    #: True: attempts grow by one and sent_at_ms is now, first_sent_at_ms too if it is the first; written and committed
    #: before a byte leaves.
    counts_as_attempt: bool = False
    #: True: attempts fall by one: what was counted did not come to what it was counted for.
    takes_back_attempt: bool = False
    #: None keeps what is written.
    target: Mapping[str, object] | None = None
    #: None keeps what is written. A text is somebody else's.
    answer: Fact | str | None = None
    #: Not claimable again before, from database time.
    wait_seconds: float = 0.0
    #: True: token and lease are given up with this change; DONE and FAILED give them up always.
    releases: bool = False


class Repairs(Protocol):
    """Repair rows and claims on them; all times are database time. Raises DatabaseAway."""

    def open(self, environment: str, topic: str, unique_key: str, *, rung: Rung) -> None:
        """Inserts an OPEN row of scope '*'; a row that exists is left as it is."""
        ...

    def of_keys(self, environment: str, topic: str, unique_keys: Sequence[str]) -> Mapping[str, Sequence[Repair]]:
        """All rows of each key (scope '*' and groups)."""
        ...

    def claimable(self, environment: str, topic: str, *, scope: str, limit: int) -> Sequence[Repair]:
        """Rows that are not DONE or FAILED, are due, and have no living claim; longest due first: none starves."""
        ...

    def due_topics(self, environment: str) -> Collection[str]:
        """Those with rows of scope '*' that are not DONE or FAILED and whose time has come."""
        ...

    def claim(self, repair: Repair, *, token: str, lease_seconds: float) -> Repair | None:
        """Takes the row if it is still claimable; the state is taken over as it is. None: another owner has it."""
        ...

    def change(self, repair: Repair, change: RepairChange, *, token: str) -> Repair | None:
        """Writes under the token. None: the token is no longer the owner; stop at once."""
        ...

    def renew(self, repair: Repair, *, token: str, lease_seconds: float) -> Repair | None:
        """Extends the lease from now, for handlers that take long. None: the token is no longer the owner."""
        ...

    def reopen(self, repair: Repair, *, rung: Rung) -> bool:
        """A finished row is OPEN again on the rung. False if it has changed since it was read.

        A FAILED row, by an operator's wish, counts one attempt: the copies that exist have been waited for, so the
        next step sends again; it has changed if it was sent since. One of every group that a
        person dismissed for others does the same. A row that was closed unsent begins as a new one does. Other rows are
        left as they are.
        """
        ...

    def dismiss(self, repair: Repair, *, answer: Fact | str) -> bool:
        """A FAILED row is DONE, a hand-over's message emptied. False if it is not FAILED. What a person dismisses is
        closed by Closings."""
        ...

    # ---- many rows in one transaction: all or nothing, answers in the order asked

    def open_all(self, environment: str, topic: str, rungs: Mapping[str, Rung]) -> None:
        """Inserts an OPEN row of scope '*' for each key; rows that exist are left as they are."""
        ...

    def claim_all(self, claims: Sequence[tuple[Repair, str]], *, lease_seconds: float) -> Sequence[Repair | None]:
        """Takes each row under its token if it is still claimable. None: another owner has it."""
        ...

    def change_all(self, changes: Sequence[tuple[Repair, RepairChange, str]]) -> Sequence[Repair | None]:
        """Writes each change under its token. None: the token is no longer the owner; stop at once."""
        ...


class HandOvers(Protocol):
    """Hand-over rows: the daemon inserts, a ReplayWorker of the group claims (Repairs.claim). Raises DatabaseAway.

    The daemon claims, too: to end a row whose effect came another way.
    """

    def insert(
        self,
        environment: str,
        message: StoredMessage,
        *,
        groups: Sequence[str],
        content_digest: bytes | None = None,
    ) -> None:
        """One OPEN row a group with the message and the digest that it must have (None: the message's own). Rows that
        exist are left as they are, except FAILED ones: they begin again, with this message and no attempts."""
        ...

    def message_of(self, repair: Repair) -> StoredMessage | None:
        """The message of a row; None once it was emptied. Raises MalformedInput for one that was changed."""
        ...

    def finish(self, repair: Repair, *, token: str, answer: str) -> Repair | None:
        """DONE and the message emptied, under the token. None: no longer the owner."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTopic:
    """A row of reconciler_hold."""

    topic: str
    kind: HoldKind
    #: Of a BREAKER: when a storm was last seen.
    since_ms: int
    by: str
    reason: str
    #: The unreadable values of the row, for which harmless ones stand here.
    damage: str | None = None
    #: `reconciler run` lifts it after this; None: a person does.
    until_ms: int | None = None
    #: What the reason says. None: a person's text, or an older release's.
    reason_fact: Fact | None = None

    @property
    def why(self) -> Fact | str:
        """The reason, in whatever words."""
        return self.reason_fact or self.reason

    @property
    def seen(self) -> str:
        """What a person sees of it, as one word; a storm that goes on changes it not."""
        since_ms = 0 if self.kind is HoldKind.BREAKER else self.since_ms
        end = [] if self.until_ms is None else [self.until_ms]
        text = json.dumps([self.topic, self.kind, since_ms, self.by, self.reason, *end])
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:SEEN_DIGITS]


class Holds(Protocol):
    """Stopped topics. Raises DatabaseAway."""

    def active(self, environment: str) -> Mapping[str, Sequence[HoldKind]]:
        """Topic -> kinds that hold it."""
        ...

    def place(
        self, environment: str, topic: str, kind: HoldKind, *, by: str, reason: Fact | str, until_ms: int | None = None
    ) -> bool:
        """False if it was there already: a HOLD gets the new words, too (held_again), and the later end (later_end), a
        BREAKER a fresh timestamp and the new reason. Raises ConfigurationError for an end in a ledger that was not
        upgraded."""
        ...

    def renew(self, environment: str, topic: str) -> bool:
        """Gives a BREAKER a fresh timestamp. False: there is none, and none is placed."""
        ...

    def lift(self, environment: str, topic: str, kind: HoldKind, *, calm_seconds: float = 0.0) -> bool:
        """False if there was none, or one that is younger than that by the ledger's time."""
        ...

    def lift_seen(self, environment: str, *held: HeldTopic) -> frozenset[HoldKind]:
        """Lifts these holds of a topic, by the wish of a person who saw them: all that are still there, in one
        transaction. None of them where one is another one by now. Returns the kinds that were lifted."""
        ...


class KnownBrokers(Protocol):
    """Brokers that may hold messages of a topic, those included that have left its route. Raises DatabaseAway."""

    def note(
        self, environment: str, topic: str, seen: Collection[str] | None, *, keep_seconds: float
    ) -> frozenset[str]:
        """Notes the brokers of the route and returns all that count: these, and those missed for at most keep_seconds.

        A broker is missed from the first call that does not name it, so none is forgotten while no process runs. None:
        the route is not known, nothing is noted. Writes only what changed; a broker that is back counts as seen again.
        """
        ...


#: A half without a unique key that could be followed is noted by its place, behind this word.
NAMED_BY_PLACE = "half-at-"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedHalf:
    """A half of a topic whose commits a query proves: a row of reconciler_half."""

    unique_key: str
    broker: str
    #: Of the business's key; None: the half does not give it.
    key_digest: bytes | None
    tag_digest: bytes | None
    stored_at_ms: int


class NotedHalves(Protocol):
    """Halves that look-ups saw, for which of them share a key of the business. Raises DatabaseAway."""

    def note(self, environment: str, topic: str, halves: Sequence[NotedHalf], *, replaces: bool = False) -> bool:
        """All of them are there when it returns. `replaces`: with these digests; else one that is there keeps its own:
        what takes its key from another place, such as an earlier process, does not undo them. False: the ledger cannot
        keep them."""
        ...

    def of_keys(
        self, environment: str, topic: str, key_digests: Collection[bytes]
    ) -> Mapping[bytes, Sequence[NotedHalf]] | None:
        """Digest -> every half that was noted with it. None: the ledger cannot keep them, or a row is damaged."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A row of reconciler_outage."""

    environment: str
    started_at_ms: int
    reason: str
    #: JSON: progress of the scan: since_ms, and a subscription's until_ms and rows, "left_out": why rows of some
    #: subscriptions were; "complete": true once it has ended, "rounds": true once announcement consumers had the time
    #: to resume.
    scan_position: Mapping[str, object] | None
    scanned: int
    closed_at_ms: int | None

    @property
    def is_scanned(self) -> bool:
        """The inbox scan has ended: announcements resume."""
        return bool(self.scan_position and self.scan_position.get("complete") is True)

    @property
    def rounds_may_run(self) -> bool:
        """Announcements have resumed: the next round closes the row."""
        return bool(self.is_scanned and self.scan_position and self.scan_position.get("rounds") is True)

    @property
    def left_out(self) -> Mapping[str, str]:
        """Subscription -> why the scan left rows of it out; empty where all were scanned."""
        left_out = (self.scan_position or {}).get("left_out")
        return left_out if isinstance(left_out, Mapping) else {}


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

    def note_reason(self, outage: Outage, reason: str) -> None:
        """The open row's reason becomes MEMORY_LOST or UNSAFE, whatever it was opened for."""
        ...

    def finish(self, outage: Outage) -> bool:
        """Closes the row; False: another process was quicker."""
        ...
