"""A *notice* is one message to people. A *channel* carries a notice to one receiver.

A *conversation* has all reports of one notifier about one kind of trouble, one topic and one group. A conversation is
one row of the ledger, with a mark of the reported troubles and at most one waiting message. So no process has to
remember anything, and messages cannot pile up.
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
    """The content of one message as values. The channel chooses text and language. Times are milliseconds UTC."""

    #: All tries of one message have the same id, so that a receiver can drop duplicates.
    notice_id: str
    environment: str
    kind: NoticeKind
    #: None: the message concerns no single topic.
    topic: str | None
    #: None: the message concerns no single group.
    group: str | None
    #: True: the trouble has ended.
    is_over: bool
    #: Number of troubles. LOSS_PROVED counts losses since the last message. QUARANTINED counts quarantined keys.
    #: REPAIR_FAILED counts failed repairs. AUDIT_VIOLATION counts audited days. All other kinds have 0.
    count: int
    #: The time at which the trouble began.
    since_ms: int
    #: The time at which the trouble ended. None: the trouble lasts. A lasting ACCOUNTED_UNTIL_STALE has its
    #: accounted-until time here.
    until_ms: int | None
    #: One line, such as the reason of a breaker or an outage, the first unique key, or the audited day. The text comes
    #: from outside, so the channel must make it visible text. Empty: there is no detail.
    detail: str
    #: The time at which the decision to send the message was made.
    written_at_ms: int
    #: `detail` as a fact, for receivers in another language. For LEDGER_AWAY, the fact replaces `detail`. None: this
    #: product has not written the detail.
    cause: Fact | None = None
    #: The business id of the unique key in `detail`, if an outbox has given it. The text comes from outside.
    business_id: str = ""
    #: True: a person sent the message to test the channel, and nothing has happened.
    is_test: bool = False


class NoticeChannel(Protocol):
    """Carries notices to one receiver. Used by one thread at a time."""

    def send(self, notice: Notice, *, at_ms: int) -> None:
        """Sends a notice, and returns within seconds once the receiver has accepted it. `at_ms`: time of this try.

        Raises ChannelAway if a later try with the same notice_id may succeed. Raises ChannelRefused if a person has to
        correct something. After an error or a crash, the receiver may have the message or not.
        """
        ...

    @property
    def refusals(self) -> Sequence[str]:
        """Returns one visible line for each recipient that was refused when others got the last notice."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingNotice:
    """A message that waits to be sent, and the mark up to which troubles count as reported once the message was
    sent."""

    notice: Notice
    mark_ms: int
    mark_count: int
    #: True: after this message, the next one waits for the interval. False: the message only reports an end, and is
    #: sent at once.
    is_limited: bool
    #: The time at which the message was first due. Failed tries and further troubles do not change this time.
    due_ms: int


#: Kind, topic and group of a conversation. None: the conversation concerns no single topic or group.
Place = tuple[NoticeKind, str | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A row of reconciler_notice."""

    environment: str
    notifier: str
    kind: NoticeKind
    topic: str | None
    group: str | None
    #: Grows with every change. A writer replaces only the version that it has read. 0: the row does not exist yet.
    version: int
    #: For troubles that happen at a time: all troubles up to mark_ms and mark_count later ones were reported. For
    #: lasting troubles: the time of the newest reported trouble, and the number of reported troubles.
    mark_ms: int
    mark_count: int = 0
    #: True if the receiver knows of the trouble, but not of the end.
    is_open: bool = False
    #: The time at which the last reported trouble began.
    since_ms: int | None = None
    told_at_ms: int | None = None
    #: The time of the last message that reported more than an end.
    trouble_at_ms: int | None = None
    waiting: WaitingNotice | None = None
    #: The waiting message is not sent before this time.
    next_at_ms: int = 0
    #: Number of tries since a message was last sent. A try is counted before its first byte is sent.
    attempts: int = 0
    #: True: a process is sending the waiting message.
    is_claimed: bool = False
    #: Why the last try failed. None: the last try succeeded.
    error: str | None = None
    #: True if the receiver refused the last try, so that a person has to correct something.
    is_refused: bool = False
    #: The time at which the row was made; 0 without a row. The oldest row of a notifier shows when the notifier began.
    created_at_ms: int = 0

    @property
    def place(self) -> Place:
        """Kind, topic and group."""
        return self.kind, self.topic, self.group


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingTrouble:
    """Troubles of one place that last until an act or a round ends them."""

    kind: NoticeKind
    topic: str | None = None
    group: str | None = None
    count: int = 1
    #: The time at which the first trouble began.
    since_ms: int
    #: Grows with each new trouble, even if the count does not change.
    newest_ms: int = 0
    #: The accounted-until time of an ACCOUNTED_UNTIL_STALE trouble.
    until_ms: int | None = None
    detail: str = ""
    #: As Notice.cause: `detail` as a fact.
    cause: Fact | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastTroubles:
    """Troubles of one place that happened at a time. Such troubles are reported even after their end."""

    #: Number of troubles after the conversation's mark.
    count: int
    #: The next mark, which is LATE_COMMIT_MS before the time of the count, and the number of troubles after that mark.
    recent_ms: int
    recent_count: int
    #: The time at which the first unreported trouble happened. 0: there is none.
    since_ms: int
    #: The time at which the newest trouble happened or ended. 0: there is none.
    until_ms: int
    #: True if one of the troubles has not ended.
    is_open: bool
    detail: str


class Notices(Protocol):
    """The conversations of notifiers, and the troubles to report. Shared by threads. Methods raise DatabaseAway."""

    def now_ms(self) -> int:
        """Returns the ledger's time."""
        ...

    def conversations(self, environment: str) -> Sequence[Conversation]:
        """Returns all conversations whose row is not damaged."""
        ...

    def begin(self, environment: str, notifier: str) -> None:
        """Writes the first row of a notifier that has no row or a damaged row. Earlier events are not reported."""
        ...

    def standing(self, environment: str, subscriptions: Sequence[Subscription]) -> Sequence[StandingTrouble]:
        """Returns quarantined keys, failed repairs and open breakers."""
        ...

    def past(self, environment: str, marks: Iterable[tuple[Place, int]]) -> Mapping[tuple[Place, int], PastTroubles]:
        """Returns the losses and outages after each mark. Places of other kinds are left out."""
        ...

    def write(self, conversation: Conversation) -> bool:
        """Replaces the version that was read. Returns False if another process was faster, or is sending."""
        ...

    def due(self, environment: str, notifier: str, *, gap_seconds: float = 0.0) -> Sequence[Conversation]:
        """Returns a notifier's conversations with a due message that no process is sending.

        The message that has been due for longest comes first.
        """
        ...

    def claim(self, conversation: Conversation, *, token: str, lease_seconds: float) -> Conversation | None:
        """Claims a due conversation, and counts the try. None: this process did not get the claim.

        If several processes try, only one process gets the claim.
        """
        ...

    def told(self, conversation: Conversation, *, token: str) -> bool:
        """Records that the waiting message was sent.

        If the process crashes before this record, the message is sent again with the same id.
        """
        ...

    def failed(
        self, conversation: Conversation, *, token: str, wait_seconds: float, error: str, is_refused: bool
    ) -> bool:
        """Records that sending failed. The claim ends, and the message is due again after the wait."""
        ...
