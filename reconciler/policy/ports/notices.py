"""A *notice* is what people are told in one message; a *channel* carries it to one receiver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

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
    #: failed repairs, of AUDIT_VIOLATION the findings; 0 where nothing is counted.
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
