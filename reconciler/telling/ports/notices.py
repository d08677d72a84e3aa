"""A *notice* is one message to people; a *channel* carries it to one receiver.

A *conversation* is what one notifier reports about one kind of trouble, one topic and one group: one row of the ledger,
with what was reported and the one waiting message. So no process has to remember anything, and messages cannot pile up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from reconciler.contract.facts import Fact
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import NoticeKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """The content of one message as values: the channel chooses text and language. All times are milliseconds UTC."""

    #: The same for each try of one message, so that a receiver can drop duplicates.
    notice_id: str
    environment: str
    kind: NoticeKind
    #: None: it concerns no single topic.
    topic: str | None
    #: None: it concerns no single group.
    group: str | None
    #: True: the trouble has ended.
    is_over: bool
    #: For LOSS_PROVED the losses since the last message, for QUARANTINED the quarantined keys, for REPAIR_FAILED the
    #: failed repairs, for AUDIT_VIOLATION the audited days; 0 for kinds without a count.
    count: int
    #: When the trouble began.
    since_ms: int
    #: When it ended; None: it has not. For ACCOUNTED_UNTIL_STALE that is not over: the accounted-until time.
    until_ms: int | None
    #: One line: the breaker's or the outage's reason, the first unique key, the audited day. It comes from outside, so
    #: the channel must make it visible text. Empty: there is no detail.
    detail: str
    #: When the decision to send it was made.
    written_at_ms: int
    #: `detail` as a fact, for receivers in another language; for LEDGER_AWAY, it replaces `detail`. None: the detail is
    #: no sentence of this product.
    cause: Fact | None = None
    #: The business id if `detail` is a unique key, as far as an outbox has given it. It comes from outside.
    business_id: str = ""
    #: True: a person sent it to test the channel, and nothing has happened.
    is_test: bool = False


class NoticeChannel(Protocol):
    """Carries notices to one receiver. Used by one thread at a time."""

    def send(self, notice: Notice, *, at_ms: int) -> None:
        """Returns once the receiver has accepted it, within seconds. `at_ms`: time of this try.

        Raises ChannelAway (tried again with the same notice_id) or ChannelRefused (a person has to correct something).
        After either, and after a crash, the receiver may have the message or not.
        """
        ...

    @property
    def refusals(self) -> Sequence[str]:
        """Recipients that the receiver refused when it accepted the last notice for the others: one visible line
        each."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingNotice:
    """A message that waits to be sent, and what counts as reported once it was sent."""

    notice: Notice
    mark_ms: int
    mark_count: int
    #: False: it only reports an end, which is sent at once. True: after it, the next trouble waits for the interval.
    is_limited: bool
    #: When it was first due. Failed tries and further troubles do not change this time.
    due_ms: int


#: Kind, topic and group of a conversation; None: no single one.
Place = tuple[NoticeKind, str | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A row of reconciler_notice."""

    environment: str
    notifier: str
    kind: NoticeKind
    topic: str | None
    group: str | None
    #: Grows with every change: a writer replaces only the version that it has read. 0: the row does not exist yet.
    version: int
    #: For troubles that happen at a time: all up to mark_ms were reported, and so many later ones. For troubles that
    #: last: the time of the newest that was reported, and their number.
    mark_ms: int
    mark_count: int = 0
    #: True if the receiver knows of the trouble but not of its end.
    is_open: bool = False
    #: When the trouble began that was last reported.
    since_ms: int | None = None
    told_at_ms: int | None = None
    #: When a message was last sent that reported more than an end.
    trouble_at_ms: int | None = None
    waiting: WaitingNotice | None = None
    #: The waiting message is not sent before this time.
    next_at_ms: int = 0
    #: Tries since a message was last sent; a try is counted before a byte is sent.
    attempts: int = 0
    #: A process is sending it.
    is_claimed: bool = False
    #: Why the last try failed; None: it succeeded.
    error: str | None = None
    #: True if the receiver refused it: a person has to correct something.
    is_refused: bool = False
    #: When the row was made; in a notifier's oldest row, when the notifier began. 0: the row does not exist yet.
    created_at_ms: int = 0

    @property
    def place(self) -> Place:
        """Kind, topic and group."""
        return self.kind, self.topic, self.group


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingTrouble:
    """Troubles of one place that last in the ledger until they are ended."""

    kind: NoticeKind
    topic: str | None = None
    group: str | None = None
    count: int = 1
    #: When the first of them began.
    since_ms: int
    #: Grows with a new one, even if the count does not change.
    newest_ms: int = 0
    #: For ACCOUNTED_UNTIL_STALE: the accounted-until time.
    until_ms: int | None = None
    detail: str = ""
    #: As in Notice.
    cause: Fact | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastTroubles:
    """Troubles of one place that happened at a time, and are reported even after they have ended."""

    #: How many happened after the conversation's mark.
    count: int
    #: LATE_COMMIT_MS before the count, and how many happened after that: the next mark.
    recent_ms: int
    recent_count: int
    #: When the first unreported one happened; 0: there is none.
    since_ms: int
    #: When the newest of them happened or ended; 0: there is none.
    until_ms: int
    #: True if one of them has not ended.
    is_open: bool
    detail: str


class Notices(Protocol):
    """The conversations of notifiers, and the troubles to report. Shared by threads. Raises DatabaseAway."""

    def now_ms(self) -> int:
        """Returns the ledger's time."""
        ...

    def conversations(self, environment: str) -> Sequence[Conversation]:
        """Returns all rows without damaged ones."""
        ...

    def begin(self, environment: str, notifier: str) -> None:
        """Writes the first row of a notifier that has none, or a damaged one: earlier events are not reported."""
        ...

    def standing(self, environment: str, subscriptions: Sequence[Subscription]) -> Sequence[StandingTrouble]:
        """Returns quarantined keys, failed repairs and open breakers."""
        ...

    def past(self, environment: str, marks: Iterable[tuple[Place, int]]) -> Mapping[tuple[Place, int], PastTroubles]:
        """Returns losses and outages after each mark. Places of another kind are left out."""
        ...

    def write(self, conversation: Conversation) -> bool:
        """Replaces the version that was read. False: another process was faster, or is sending."""
        ...

    def due(self, environment: str, notifier: str, *, gap_seconds: float = 0.0) -> Sequence[Conversation]:
        """Returns a notifier's conversations whose message is due and that no process is sending, the longest due
        first."""
        ...

    def claim(self, conversation: Conversation, *, token: str, lease_seconds: float) -> Conversation | None:
        """Claims a due conversation, and counts the try; if several processes try, only one of them gets it. None: this
        process did not get it."""
        ...

    def told(self, conversation: Conversation, *, token: str) -> bool:
        """Notes that the waiting message was sent. After a crash before this, the message is sent again with the same
        id."""
        ...

    def failed(
        self, conversation: Conversation, *, token: str, wait_seconds: float, error: str, is_refused: bool
    ) -> bool:
        """Notes that sending failed: the conversation is free, and due after the wait."""
        ...
