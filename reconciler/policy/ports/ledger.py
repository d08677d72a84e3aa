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

#: A field of the evidence of a key that took effect after a person had dismissed it: the time of the dismissal, by the
#: ledger's clock.
DISMISSED_AT_MS = "dismissed_at_ms"
#: A field of the evidence: true if the loss was proved while the group had no inbox. Later looks keep the field.
LOST_WITHOUT_INBOX = "lost_without_inbox"
#: A field of the evidence: the place of the newest committed copy that this look saw.
COMMITTED_AT = "committed_at"
#: A field of the evidence: true if an earlier look saw a committed copy. Later looks keep the field.
COPY_SEEN = "copy_seen"
#: Hexadecimal digits of the word for the state that a person saw.
SEEN_DIGITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The ledger's row of a judged key, in reconciler_candidate."""

    subscription: Subscription
    unique_key: str
    shard: int
    state: CandidateState
    verdict: Verdict
    loss_verdict: Verdict | None
    #: Values that JSON can hold.
    evidence: Mapping[str, object]
    attempts: int
    first_seen_ms: int
    next_at_ms: int
    updated_at_ms: int
    #: When databases are asked again whether the verdict of a closed row still holds. None: they are never asked again.
    ask_again_at_ms: int | None = None
    #: The unreadable values of the row. Until the next verdict is written, the fields have harmless values. Such a row
    #: closes no key: its key is looked at as long as it is pending.
    damage: str | None = None

    @property
    def is_dismissed(self) -> bool:
        """True if a person closed the key after the reconciler had given it up."""
        return self.state is CandidateState.SETTLED and self.verdict in QUARANTINING

    @property
    def was_lost_without_inbox(self) -> bool:
        """True if the loss was proved while the group had no inbox. Members may have applied a copy since, without a
        row, so a missing row does not prove a missing effect."""
        has_no_inbox = self.evidence.get("weaker") is True and "inbox" not in self.evidence  # an inbox is asked first
        return self.loss_verdict is not None and (has_no_inbox or self.evidence.get(LOST_WITHOUT_INBOX) is True)

    @property
    def saw_copy(self) -> bool:
        """True if a look saw a committed copy. Brokers may have deleted the copy since, also early."""
        return COMMITTED_AT in self.evidence or self.evidence.get(COPY_SEEN) is True

    @property
    def took_effect_dismissed(self) -> bool:
        """True if the key took effect after a person had dismissed it, and now waits for a person again."""
        return self.state is CandidateState.QUARANTINED and DISMISSED_AT_MS in self.evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictEntry:
    """A verdict to be written into the ledger."""

    unique_key: str
    verdict: Verdict
    evidence: Mapping[str, object]
    first_seen_ms: int
    #: Keys that are SETTLED or QUARANTINED leave pending afterwards; OPEN ones stay.
    state: CandidateState
    #: Seconds before the next look. The ledger counts them from database time.
    wait_seconds: float
    #: For a key that leaves pending: seconds before its databases are asked again. None: they are never asked again.
    ask_again_seconds: float | None = None
    #: For UNKNOWN: the cause that keeps the key from a verdict, and its beginning (Redis TIME). None: only time keeps
    #: it.
    undecided_by: Undecided | None = None
    undecided_since_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UndecidedRows:
    """Rows that were counted: OPEN candidates that are UNKNOWN for one cause and have no proved loss, or REJECTED rows
    that no round has reviewed yet."""

    #: Number of these rows, up to the limit of counting.
    count: int
    #: The row with the lowest first_seen_ms, and of equal ones the lowest unique_key.
    oldest: Candidate | None


class Candidates(Protocol):
    """Verdicts with their evidence. Raises DatabaseAway."""

    def of_keys(self, subscription: Subscription, unique_keys: Sequence[str]) -> Mapping[str, Candidate]:
        """Returns the rows that exist, by key."""
        ...

    def record(self, shard: Shard, entries: Sequence[VerdictEntry]) -> None:
        """Inserts or updates rows, and commits before it returns. `attempts` grows by one, and `loss_verdict` is set
        only once.

        The order of states is OPEN < QUARANTINED < SETTLED. A verdict with a lower state leaves the row unchanged,
        because it comes from a slower owner, or Redis fell back. first_seen_ms stays the earliest. Unreadable values of
        a row are replaced.
        """
        ...

    def open_losses(self, subscription: Subscription, *, limit: int) -> Sequence[Candidate]:
        """Returns OPEN candidates with a loss_verdict whose next_at_ms has passed, beginning with the oldest.

        After them come rows of the future (row_rules.is_of_the_future), because the ledger's clock may have been set
        back.
        """
        ...

    def open_due(self, subscription: Subscription, *, shards: Collection[int], limit: int) -> Sequence[Candidate]:
        """Returns the keys to look at again: OPEN candidates with any verdict whose next_at_ms has passed, in the order
        of next_at_ms. After them come rows of the future, as in open_losses.

        Only rows of these shards are returned, because rows of a shard that no process runs must not take the room of
        others. Some of the keys have left pending by a match since; the inbox ends their rows.
        """
        ...

    def due_subscriptions(self, environment: str) -> Collection[Subscription]:
        """Returns the subscriptions with OPEN rows whose time has come."""
        ...

    def undecided(
        self, subscription: Subscription, *, limit: int, after: Candidate | None = None
    ) -> Sequence[Candidate]:
        """Returns OPEN candidates that are UNKNOWN without a proved loss, whether they are due or not. The order is
        (first_seen_ms, unique_key).

        `after`: the last row of the page before.
        """
        ...

    def undecided_rows(
        self,
        subscription: Subscription,
        by: Undecided | None,
        *,
        since_before_ms: int | None = None,
        since_after_ms: int | None = None,
        most: int,
    ) -> UndecidedRows | None:
        """Returns the rows with one cause, of any age. `by` is None for rows that only time keeps undecided, or that an
        older release wrote.

        `since_before_ms`: only rows whose cause exists since an earlier time. `since_after_ms`: since a later time. At
        most `most` rows are counted. For None
        as the cause, they are counted among the oldest `most` rows of all causes. Returns None for the ledger of an
        older release, whose rows do not contain the cause.
        """
        ...

    def unreviewed_rows(self, subscription: Subscription, *, most: int) -> UndecidedRows:
        """Returns the REJECTED rows for which row_rules.is_unreviewed is true. At most `most` rows are counted, those
        first that are asked again first."""
        ...

    def reopen(self, row: Candidate) -> bool:
        """Makes a row that is not OPEN both OPEN and due now. False: the row does not exist, or its state or verdict
        has changed since it was read."""
        ...

    def to_ask_again(self, subscription: Subscription, *, limit: int) -> Sequence[Candidate]:
        """Returns rows whose ask_again_at_ms has passed, in the order of that time. These are REJECTED rows, rows that
        wait for a person, and dismissed rows."""
        ...

    def ask_later(
        self,
        subscription: Subscription,
        unique_keys: Sequence[str],
        *,
        seconds: float | None,
        stays_unreviewed: bool = False,
    ) -> None:
        """Sets when rows are asked again, from database time. None: they are never asked again. Nothing else in the
        rows changes. `stays_unreviewed`: True also sets the time of the last change, as if the verdict were new, so
        that is_unreviewed stays true for a pause of a minute or less.

        A row that is not asked again any more stays so, because a person may have acted on it meanwhile.
        """
        ...

    def take_back(self, shard: Shard, unique_keys: Sequence[str]) -> None:
        """Makes rows that are to be asked again OPEN, due now and of this shard. Verdict and evidence stay.

        A row that a person has dismissed meanwhile does not change.
        """
        ...

    def wake_dismissed(self, subscription: Subscription, entries: Sequence[VerdictEntry]) -> Collection[str]:
        """Makes dismissed rows wait for a person again, with this verdict and evidence. Nothing is sent for them. A row
        that is no longer dismissed does not change. Returns the keys of the changed rows."""
        ...

    def before_since(
        self, subscription: Subscription, loss_verdict: Verdict | None, *, limit: int, after: Candidate | None = None
    ) -> Sequence[Candidate]:
        """Returns SETTLED candidates that are BEFORE_SINCE and had this loss_verdict. The newest come first: the order
        is by descending (first_seen_ms, unique_key). `after`: the last row of the page before."""
        ...

    def answer_for(self, shard: Shard, unique_keys: Sequence[str]) -> None:
        """Makes rows that are SETTLED as BEFORE_SINCE OPEN, due now and of this shard. Verdict and evidence stay."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A row of reconciler_repair. Fields with a default have that value until the repair is worked on."""

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
    #: The time of the first send, which never changes. None is possible for rows that a release before v0002 sent
    #: first.
    first_sent_at_ms: int | None = None
    #: The answer as a fact. None: the text is foreign, or of a newer release.
    answer_fact: Fact | None = None

    @property
    def why(self) -> Fact | None:
        """The answer as a fact, even if only its text is stored. None: there is no answer."""
        return self.answer_fact or (IN_WORDS(text=self.answer) if self.answer else None)

    @property
    def is_dismissed(self) -> bool:
        """True if a person closed the repair."""
        fact = self.answer_fact
        return self.state is RepairState.DONE and fact is not None and fact.code is REPAIR_DISMISSED

    @property
    def is_made_by_dismissal(self) -> bool:
        """True if the dismissal made the row, so that no repair of that scope is opened later."""
        return self.is_dismissed and self.attempts == 0 and self.created_at_ms == self.done_at_ms

    @property
    def is_unsent(self) -> bool:
        """True if nothing was sent. A repair that a person opened again still counts one attempt."""
        return self.attempts == 0 or self.sent_at_ms is None

    @property
    def closed_unsent(self) -> bool:
        """True if the repair became DONE without a send, or after a send without an effect. The settings of that time
        may have been outdated. False for a row that a person dismissed."""
        came_to_nothing = self.answer_fact is not None and self.answer_fact.code is TAKEN_BY_NOBODY
        return self.state is RepairState.DONE and (self.is_unsent or came_to_nothing) and not self.is_dismissed


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairChange:
    """The change that the owner of a claim writes under its token."""

    state: RepairState
    rung: Rung
    #: True: attempts grows by one, and sent_at_ms is set to now. The first send also sets first_sent_at_ms. All this is
    #: committed before a byte is sent.
    counts_as_attempt: bool = False
    #: True: attempts decreases by one, because the counted attempt sent nothing.
    takes_back_attempt: bool = False
    #: None keeps the stored value.
    target: Mapping[str, object] | None = None
    #: None keeps the stored value. A plain text is foreign.
    answer: Fact | str | None = None
    #: Seconds, from database time, in which nobody can claim the row again.
    wait_seconds: float = 0.0
    #: True: token and lease end with this change. With DONE and FAILED they always end.
    releases: bool = False


class Repairs(Protocol):
    """Repair rows and the claims on them. All times are database time. Raises DatabaseAway."""

    def open(self, environment: str, topic: str, unique_key: str, *, rung: Rung) -> None:
        """Inserts an OPEN row of scope '*'. An existing row stays unchanged."""
        ...

    def of_keys(self, environment: str, topic: str, unique_keys: Sequence[str]) -> Mapping[str, Sequence[Repair]]:
        """Returns all rows of each key (scope '*' and groups)."""
        ...

    def claimable(self, environment: str, topic: str, *, scope: str, limit: int) -> Sequence[Repair]:
        """Returns due rows without a living claim that are not DONE or FAILED. The longest due come first, so that each
        row has its turn."""
        ...

    def due_topics(self, environment: str) -> Collection[str]:
        """Returns topics with rows of scope '*' that are not DONE or FAILED and whose time has come."""
        ...

    def claim(self, repair: Repair, *, token: str, lease_seconds: float) -> Repair | None:
        """Claims the row if it can still be claimed. The row's state stays. None: another owner has the row."""
        ...

    def change(self, repair: Repair, change: RepairChange, *, token: str) -> Repair | None:
        """Writes a change under the token. None: the token does not own the row any more, so stop at once."""
        ...

    def renew(self, repair: Repair, *, token: str, lease_seconds: float) -> Repair | None:
        """Extends the lease from now, for handlers that take long. None: the token does not own the row any more."""
        ...

    def reopen(self, repair: Repair, *, rung: Rung) -> bool:
        """Makes a finished row OPEN again on the rung. False: the row has changed since it was read. A send since then
        counts as a change.

        A FAILED row that a person opens again counts one attempt, so that the next step sends at once instead of
        waiting for existing copies. The same holds for a row for every group that a person dismissed for other groups.
        A row that was closed without a send begins like a new row. Other rows stay unchanged.
        """
        ...

    def dismiss(self, repair: Repair, *, answer: Fact | str) -> bool:
        """Makes a FAILED row DONE and empties a hand-over's message. False: the row is not FAILED. Dismissals by a
        person are written by Closings instead."""
        ...

    # ---- many rows in one transaction: all rows or none. Answers are in the order of the arguments

    def open_all(self, environment: str, topic: str, rungs: Mapping[str, Rung]) -> None:
        """Inserts an OPEN row of scope '*' for each key. Existing rows stay unchanged."""
        ...

    def claim_all(self, claims: Sequence[tuple[Repair, str]], *, lease_seconds: float) -> Sequence[Repair | None]:
        """Claims each row under its token if it can still be claimed. None: another owner has the row."""
        ...

    def change_all(self, changes: Sequence[tuple[Repair, RepairChange, str]]) -> Sequence[Repair | None]:
        """Writes each change under its token. None: the token does not own the row any more, so stop at once."""
        ...


class HandOvers(Protocol):
    """Hand-over rows. The daemon inserts them, and a ReplayWorker of the group claims them (Repairs.claim). Raises
    DatabaseAway.

    The daemon claims a row, too, to end it if its effect came another way.
    """

    def insert(
        self,
        environment: str,
        message: StoredMessage,
        *,
        groups: Sequence[str],
        content_digest: bytes | None = None,
    ) -> None:
        """Inserts one OPEN row per group with the message and its expected digest (None: the message's own digest).
        Existing rows stay unchanged, except FAILED rows: they begin again with this message and without attempts."""
        ...

    def message_of(self, repair: Repair) -> StoredMessage | None:
        """Returns the message of a row. None: the message was emptied. Raises MalformedInput for a message that was
        changed."""
        ...

    def finish(self, repair: Repair, *, token: str, answer: str) -> Repair | None:
        """Makes the row DONE and empties its message, under the token. None: the token does not own the row any
        more."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTopic:
    """A row of reconciler_hold."""

    topic: str
    kind: HoldKind
    #: For a BREAKER: when a storm was last seen.
    since_ms: int
    by: str
    reason: str
    #: The unreadable values of the row. The fields have harmless values instead.
    damage: str | None = None
    #: After this time, `reconciler run` lifts the hold. None: a person lifts it.
    until_ms: int | None = None
    #: The reason as a fact. None: the text is a person's, or an older release's.
    reason_fact: Fact | None = None

    @property
    def why(self) -> Fact | str:
        """The reason as a fact, or as a text."""
        return self.reason_fact or self.reason

    @property
    def seen(self) -> str:
        """One word for the hold as a person sees it. A storm that continues does not change this word."""
        since_ms = 0 if self.kind is HoldKind.BREAKER else self.since_ms
        end = [] if self.until_ms is None else [self.until_ms]
        text = json.dumps([self.topic, self.kind, since_ms, self.by, self.reason, *end])
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:SEEN_DIGITS]


class Holds(Protocol):
    """Topics whose repairs are stopped. Raises DatabaseAway."""

    def active(self, environment: str) -> Mapping[str, Sequence[HoldKind]]:
        """Returns topic -> the kinds of hold on it."""
        ...

    def place(
        self, environment: str, topic: str, kind: HoldKind, *, by: str, reason: Fact | str, until_ms: int | None = None
    ) -> bool:
        """Places a hold. False: the hold existed already. Then a HOLD gets the new reason (held_again) and the later
        end (later_end), and a BREAKER gets a new timestamp and the new reason. Raises ConfigurationError if an end is
        given and the ledger was not upgraded."""
        ...

    def renew(self, environment: str, topic: str) -> bool:
        """Gives a BREAKER a new timestamp. False: no BREAKER exists, and none is placed."""
        ...

    def lift(self, environment: str, topic: str, kind: HoldKind, *, calm_seconds: float = 0.0) -> bool:
        """Lifts a hold. False: no hold exists, or it is younger than `calm_seconds` by the ledger's time."""
        ...

    def lift_seen(self, environment: str, *held: HeldTopic) -> frozenset[HoldKind]:
        """Lifts those holds of a topic that a person saw and that still exist, in one transaction. If such a hold has
        changed, no hold is lifted. Returns the kinds of the lifted holds."""
        ...


class KnownBrokers(Protocol):
    """Brokers that may hold messages of a topic, including brokers that have left its route. Raises DatabaseAway."""

    def note(
        self, environment: str, topic: str, seen: Collection[str] | None, *, keep_seconds: float
    ) -> frozenset[str]:
        """Records the brokers of the route. Returns all brokers that count: these, and those that the route has lacked
        for at most keep_seconds.

        A broker is missing from the first call that does not name it, so no broker is forgotten while no process runs.
        `seen` None: the route is unknown, and nothing is recorded. Only changes are written. A broker that is back
        counts as seen again.
        """
        ...


#: The beginning of the name of a half without a usable unique key. The half's place follows.
NAMED_BY_PLACE = "half-at-"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedHalf:
    """A half of a topic whose commits a query proves: a row of reconciler_half."""

    unique_key: str
    broker: str
    #: The digest of the business key. None: the half contains no such key.
    key_digest: bytes | None
    tag_digest: bytes | None
    stored_at_ms: int


class NotedHalves(Protocol):
    """Halves that look-ups saw. Siblings, which have the same business key, are found among these halves. Raises
    DatabaseAway."""

    def note(self, environment: str, topic: str, halves: Sequence[NotedHalf], *, replaces: bool = False) -> bool:
        """Stores all halves before it returns. `replaces`: overwrites stored digests. Otherwise an existing half keeps
        its digest. So a process that reads the key from another place, such as a process with earlier settings, undoes
        nothing. False: this ledger cannot store halves."""
        ...

    def of_keys(
        self, environment: str, topic: str, key_digests: Collection[bytes]
    ) -> Mapping[bytes, Sequence[NotedHalf]] | None:
        """Returns digest -> every half that was recorded with this digest. None: the ledger cannot store halves, or a
        row is damaged."""
        ...

    def noted(self, environment: str, topic: str, unique_keys: Collection[str]) -> Collection[str]:
        """Returns those keys of which a half is recorded. Empty if the ledger cannot store halves: then no half
        announces."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A row of reconciler_outage."""

    environment: str
    started_at_ms: int
    reason: str
    #: JSON: the progress of the scan. `since_ms` is its start; `until_ms` and `rows` have a value for each
    #: subscription. "left_out" says why rows of some subscriptions were left out. "complete" is true once the scan has
    #: ended, and "rounds" once announcement consumers had time to resume.
    scan_position: Mapping[str, object] | None
    scanned: int
    closed_at_ms: int | None

    @property
    def is_scanned(self) -> bool:
        """True once the inbox scan has ended. Announcements resume then."""
        return bool(self.scan_position and self.scan_position.get("complete") is True)

    @property
    def rounds_may_run(self) -> bool:
        """True once announcements have resumed. The next round closes the row."""
        return bool(self.is_scanned and self.scan_position and self.scan_position.get("rounds") is True)

    @property
    def left_out(self) -> Mapping[str, str]:
        """Subscription -> why the scan left some of its rows out. Empty if all rows were scanned."""
        left_out = (self.scan_position or {}).get("left_out")
        return left_out if isinstance(left_out, Mapping) else {}


class Outages(Protocol):
    """Times without Redis, or after Redis lost its memory. Raises DatabaseAway."""

    def current(self, environment: str) -> Outage | None:
        """Returns the open row. None: no outage is open."""
        ...

    def open(self, environment: str, *, reason: str, noticed_by: str) -> Outage:
        """Opens a row unless a row is open. The outage starts at database time, or at the last stored round if that is
        earlier."""
        ...

    def advance(self, outage: Outage, *, scan_position: Mapping[str, object], scanned: int) -> None:
        """Stores the progress of the scan."""
        ...

    def note_reason(self, outage: Outage, reason: str) -> None:
        """Changes the open row's reason to MEMORY_LOST or UNSAFE."""
        ...

    def finish(self, outage: Outage) -> bool:
        """Closes the row. False: another process closed it first."""
        ...
