"""A *notice* is what people are told in one message; a *channel* carries it to one receiver.

A *conversation* is what one notifier tells of one kind of trouble, one topic and one group: one row of the ledger, with
what was told and the one message that waits. So nothing is remembered in a process, and nothing can pile up.
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
    """What one message tells, as values: texts and languages are the channel's. All times are milliseconds UTC."""

    #: The same for each try of one message, so that a receiver can drop the second one.
    notice_id: str
    environment: str
    kind: NoticeKind
    #: None: it concerns no single topic.
    topic: str | None
    #: None: it concerns no single group.
    group: str | None
    #: True: the trouble has ended.
    is_over: bool
    #: Of LOSS_PROVED the losses since the last message, of QUARANTINED the keys that are there, of REPAIR_FAILED the
    #: failed repairs, of AUDIT_VIOLATION the audited days; 0 where nothing is counted.
    count: int
    #: When the trouble began.
    since_ms: int
    #: When it ended, or None. Of ACCOUNTED_UNTIL_STALE that is not over: the accounted-until time.
    until_ms: int | None
    #: One line: the breaker's or the outage's reason, the first unique key, the audited day. It comes from outside:
    #: whoever shows it makes it visible. Empty: there is nothing to say.
    detail: str
    #: When it was decided to tell it.
    written_at_ms: int
    #: `detail` as a fact, for receivers in another language; of LEDGER_AWAY in its place. None: no sentence of this
    #: product.
    cause: Fact | None = None
    #: Of `detail`, where that is a unique key, as far as an outbox has told it when it was sent. It comes from outside.
    business_id: str = ""
    #: True: sent by a person who wants to see whether the channel works; nothing has happened.
    is_test: bool = False


class NoticeChannel(Protocol):
    """Carries notices to one receiver. Used by one thread at a time."""

    def send(self, notice: Notice, *, at_ms: int) -> None:
        """Returns once the receiver has taken it, within seconds. `at_ms`: time of this try.

        Raises ChannelAway (tried again, with the same notice_id) or ChannelRefused (a person has to mend something).
        After either, and after a crash, the receiver may have the message or not.
        """
        ...

    @property
    def refusals(self) -> Sequence[str]:
        """Recipients that the receiver refused when it took the last notice for the others: one visible line each."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingNotice:
    """A message that waits to be sent, and what counts as told once it was."""

    notice: Notice
    mark_ms: int
    mark_count: int
    #: False: it only tells an end, which is told at once. True: the next trouble waits for the interval after it.
    is_limited: bool
    #: When it was due first. Neither a try that failed nor more that happened moves it.
    due_ms: int


#: Kind, topic and group of a conversation; None: of no single one.
Place = tuple[NoticeKind, str | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A row of reconciler_notice."""

    environment: str
    notifier: str
    kind: NoticeKind
    topic: str | None
    group: str | None
    #: Grows with every change: a writer replaces only the version that it has read. 0: there is no row yet.
    version: int
    #: What comes at a time: everything until mark_ms was told, and of what came later this many. What stands: the time
    #: of the newest that was told, and how many there were.
    mark_ms: int
    mark_count: int = 0
    #: The receiver knows of the trouble, and not of its end.
    is_open: bool = False
    #: When the trouble began that was told last.
    since_ms: int | None = None
    told_at_ms: int | None = None
    #: When a message was sent last that not only told an end.
    trouble_at_ms: int | None = None
    waiting: WaitingNotice | None = None
    #: The waiting message is not sent before this time.
    next_at_ms: int = 0
    #: Tries since a message was last sent; a try is counted before a byte leaves.
    attempts: int = 0
    #: A process is sending it.
    is_claimed: bool = False
    #: Why the last try failed; None: it did not.
    error: str | None = None
    #: The receiver refused it: a person has to mend something.
    is_refused: bool = False
    #: When the row was made: of a notifier's oldest one, when the notifier began. 0: there is no row yet.
    created_at_ms: int = 0

    @property
    def place(self) -> Place:
        """What it is about."""
        return self.kind, self.topic, self.group


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingTrouble:
    """Troubles of one place that stand in the ledger until someone or something ends them."""

    kind: NoticeKind
    topic: str | None = None
    group: str | None = None
    count: int = 1
    #: When the first of them began.
    since_ms: int
    #: Grows when there is a new one, also where the count stays.
    newest_ms: int = 0
    #: Of ACCOUNTED_UNTIL_STALE: the accounted-until time.
    until_ms: int | None = None
    detail: str = ""
    #: As in Notice.
    cause: Fact | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastTroubles:
    """Troubles of one place that came at a time, and that are told although they have ended."""

    #: Those that came after the conversation's mark.
    count: int
    #: LATE_COMMIT_MS before the count, and those that came after it: the next mark.
    recent_ms: int
    recent_count: int
    #: When the first of them came that was not told; 0: there is none.
    since_ms: int
    #: When the newest of them came, or ended; 0: there is none.
    until_ms: int
    #: One of them is there now.
    is_open: bool
    detail: str


class Notices(Protocol):
    """Conversations of notifiers, and what there is to tell. Shared by threads. Raises DatabaseAway."""

    def now_ms(self) -> int:
        """The ledger's time."""
        ...

    def conversations(self, environment: str) -> Sequence[Conversation]:
        """All rows; damaged ones are left out."""
        ...

    def begin(self, environment: str, notifier: str) -> None:
        """Writes the first row of a notifier that has none, or a damaged one: what came before is not told."""
        ...

    def standing(self, environment: str, subscriptions: Sequence[Subscription]) -> Sequence[StandingTrouble]:
        """Quarantined keys, failed repairs and open breakers."""
        ...

    def past(self, environment: str, marks: Iterable[tuple[Place, int]]) -> Mapping[tuple[Place, int], PastTroubles]:
        """Losses and outages after each mark. Places of another kind are left out."""
        ...

    def write(self, conversation: Conversation) -> bool:
        """Replaces the version that was read. False: another process was faster, or is sending."""
        ...

    def due(self, environment: str, notifier: str, *, gap_seconds: float = 0.0) -> Sequence[Conversation]:
        """Those of a notifier whose message is due, and that nobody sends, the longest due first."""
        ...

    def claim(self, conversation: Conversation, *, token: str, lease_seconds: float) -> Conversation | None:
        """Of several claimants exactly one gets it, once it is due; the try is counted. None: it is not ours."""
        ...

    def told(self, conversation: Conversation, *, token: str) -> bool:
        """The waiting message was sent. After a crash before this it is sent again, with the same id."""
        ...

    def failed(
        self, conversation: Conversation, *, token: str, wait_seconds: float, error: str, is_refused: bool
    ) -> bool:
        """It was not; it is free, and due after the wait."""
        ...
