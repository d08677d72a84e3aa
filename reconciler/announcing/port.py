"""What the announcement consumer asks of the broker, and what it tells about itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from reconciler.announcing.rules import PulledAnnouncement
from reconciler.contract.subscription import Subscription
from reconciler.policy.ports import AnnouncementQueue

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PulledBatch:
    """Answer to one pull."""

    #: Oldest first; empty if there was nothing, or nothing with the tag.
    messages: Sequence[PulledAnnouncement]
    #: Where to go on; moves past messages with other tags too.
    next_offset: int
    min_offset: int
    max_offset: int
    #: The queue has no such offset (PULL_OFFSET_MOVED, 21): below min_offset or above max_offset.
    is_offset_illegal: bool = False


class AnnouncementSource(Protocol):
    """The unique-key topic. Raises TransientError (try again) or BrokerRefused."""

    def queues(self, unique_key_topic: str) -> Sequence[AnnouncementQueue]:
        """Readable queues on every master of the route."""
        ...

    def pull(self, queue: AnnouncementQueue, *, tag: str, offset: int, max_messages: int) -> PulledBatch:
        """One pull from the queue's master without waiting; the server filters by the tag's hash."""
        ...

    def earliest(self, queue: AnnouncementQueue) -> int:
        """The lowest offset the broker still has."""
        ...


class EventKind(StrEnum):
    """What is worth telling."""

    #: Announcements were quarantined; `count` of them.
    REFUSED = "REFUSED"
    #: first_offset to last_offset - 1 were deleted by the broker, or never existed there: the outbox announces again.
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"
    #: An offset that Redis had is gone.
    MEMORY_LOST = "MEMORY_LOST"
    #: Redis has an older offset than this process knew: it lost its last writes; first_offset is read again.
    REWOUND = "REWOUND"
    SUSPENDED = "SUSPENDED"
    RESUMED = "RESUMED"
    #: A queue whose number is not below the number of shards: nobody consumes it.
    EXTRA_QUEUE = "EXTRA_QUEUE"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncementEvent:
    """One event; alarms are OFFSET_ILLEGAL, MEMORY_LOST and EXTRA_QUEUE."""

    kind: EventKind
    subscription: Subscription
    queue: AnnouncementQueue
    detail: str = ""
    count: int = 0
    first_offset: int | None = None
    last_offset: int | None = None


OnAnnouncementEvent = Callable[[AnnouncementEvent], None]


_ALARMS = frozenset({EventKind.OFFSET_ILLEGAL, EventKind.MEMORY_LOST, EventKind.EXTRA_QUEUE})


def log_event(event: AnnouncementEvent) -> None:
    """The default for on_event: alarms and refusals are warnings."""
    level = logging.WARNING if event.kind in _ALARMS or event.kind is EventKind.REFUSED else logging.INFO
    where = f"{event.queue.unique_key_topic} {event.queue.broker}/{event.queue.queue_id}"
    logger.log(
        level,
        "announcement_event: announcements of %s, %s: %s %s",
        event.subscription,
        where,
        event.kind,
        event.detail,
    )


class StepKind(StrEnum):
    """What a step did."""

    #: Keys or at least the offset moved on: call again at once.
    MOVED_ON = "MOVED_ON"
    IDLE = "IDLE"
    #: Another consumer holds the queue's lease.
    NOT_MINE = "NOT_MINE"
    #: Stays at its offset: Redis, ledger or broker is away, the half set is full, or an outage is open.
    SUSPENDED = "SUSPENDED"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """Result of AnnouncementStep.run_once."""

    kind: StepKind
    #: Do not call again before.
    wait_seconds: float = 0.0
    admitted_keys: int = 0
    refused: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncementQueueState:
    """A queue as status shows it."""

    subscription: Subscription
    queue: AnnouncementQueue
    #: Last step's kind; None before the first.
    kind: StepKind | None
    #: Why it is suspended.
    detail: str
    position: int | None
    #: Messages behind the broker's maximum at the last pull; None: not pulled yet.
    behind: int | None
    admitted_keys: int
    refused: int
    rewinds: int
