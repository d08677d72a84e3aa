"""The port by which the announcement consumer asks brokers, and the consumer's events and states."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from reconciler.announcing.rules import PulledAnnouncement
from reconciler.clock import Clock, utc_text
from reconciler.contract.queue_proof import QueueRecord
from reconciler.contract.subscription import Subscription
from reconciler.policy.ports.announcing import AnnouncementQueue

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PulledBatch:
    """The answer to one pull."""

    #: The list begins with the oldest message. The list is empty if no message has the tag.
    messages: Sequence[PulledAnnouncement]
    #: Offset of the next pull. Messages with other tags lie before it, too.
    next_offset: int
    min_offset: int
    max_offset: int
    #: True if the queue has no such offset (PULL_OFFSET_MOVED, 21). The offset is below min_offset or above max_offset.
    is_offset_illegal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRecord:
    """The record at one offset of a queue, whatever its tag."""

    #: The record. None: the queue has no such offset, or the broker does not show the record.
    record: QueueRecord | None
    min_offset: int
    max_offset: int


class PullUnderWay(Protocol):
    """A pull that its broker may hold until a message comes."""

    @property
    def is_done(self) -> bool:
        """True if the pull was answered or has failed."""
        ...

    def batch(self) -> PulledBatch:
        """Returns the answer of a pull that is done. Raises what AnnouncementSource.pull raises."""
        ...

    def when_done(self, call: Callable[[], None]) -> None:
        """Calls the function when the pull is done, from any thread. If the pull is done already, calls the function at
        once. The function must be short."""
        ...

    def cancel(self) -> None:
        """Gives up waiting for the pull."""
        ...


class AnnouncementSource(Protocol):
    """Reads the unique-key topic, or the half topic. Every call can raise BrokerRefused. Every call can raise
    TransientError, after which a later try can succeed."""

    def queues(self, unique_key_topic: str) -> Sequence[AnnouncementQueue]:
        """Returns the readable queues on every master of the route."""
        ...

    def pull(self, queue: AnnouncementQueue, *, tag: str, offset: int, max_messages: int) -> PulledBatch:
        """Pulls once from the queue's master without waiting. The server or the adapter filters by the tag."""
        ...

    def begin_pull(
        self, queue: AnnouncementQueue, *, offset: int, max_messages: int, hold_seconds: float
    ) -> PullUnderWay:
        """Pulls once from the queue's master without a filter. If there is no message, the broker holds the pull for
        the given time."""
        ...

    def look(self, queue: AnnouncementQueue, *, offset: int) -> SeenRecord:
        """Pulls one record from the queue's master, without a filter."""
        ...

    def earliest(self, queue: AnnouncementQueue) -> int:
        """Returns the lowest offset that the broker still has."""
        ...


class EventKind(StrEnum):
    """The kinds of an AnnouncementEvent."""

    #: `count` announcements were quarantined.
    REFUSED = "REFUSED"
    #: The broker has deleted first_offset to last_offset - 1, or never had these offsets. Keys of these offsets are
    #: announced again from the outbox.
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"
    #: Redis lost an offset that it had, so Redis has lost its memory.
    MEMORY_LOST = "MEMORY_LOST"
    #: Redis has an older offset than this process knew, so Redis has lost its last writes. Pulling continues at
    #: first_offset.
    REWOUND = "REWOUND"
    #: The broker assigned offsets a second time. The queue lost its tail, or the topic was created again. Records from
    #: first_offset to last_offset - 1 are read again.
    OFFSETS_REUSED = "OFFSETS_REUSED"
    SUSPENDED = "SUSPENDED"
    RESUMED = "RESUMED"
    #: The queue's number is not below the number of shards. Its announcements are not consumed.
    EXTRA_QUEUE = "EXTRA_QUEUE"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncementEvent:
    """One event of the announcement consumer. The kinds OFFSET_ILLEGAL, OFFSETS_REUSED, MEMORY_LOST and EXTRA_QUEUE are
    alarms."""

    kind: EventKind
    subscription: Subscription
    queue: AnnouncementQueue
    detail: str = ""
    count: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    #: Only in SUSPENDED and RESUMED: True if a silent broker of the queue is, or was, the cause.
    is_broker_away: bool = False


OnAnnouncementEvent = Callable[[AnnouncementEvent], None]


_ALARMS = frozenset({EventKind.OFFSET_ILLEGAL, EventKind.OFFSETS_REUSED, EventKind.MEMORY_LOST, EventKind.EXTRA_QUEUE})


def log_event(event: AnnouncementEvent) -> None:
    """Logs an event, as the default of `on_event`. Alarms and refusals are logged as warnings."""
    level = logging.WARNING if event.kind in _ALARMS or event.kind is EventKind.REFUSED else logging.INFO
    where = f"{event.queue.unique_key_topic} {event.queue.broker}/{event.queue.queue_id}"
    logger.log(
        level,
        "announcement_event: announcements of %s, %s: %s %s",
        event.subscription,
        where,
        event.kind,
        event.detail,
        extra={"cause": event.kind.value},
    )


class AnnouncementLog:
    """Writes events to the log. A broker that is away has one line, and a broker that is back has one line, however
    many queues the broker has. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: Broker -> the queues that wait for the broker, and the time at which the first queue began to wait.
        self._waiting: dict[str, set[tuple[Subscription, AnnouncementQueue]]] = {}
        self._since: dict[str, str] = {}

    def __call__(self, event: AnnouncementEvent) -> None:
        """Logs the event, or a line about the broker that the event concerns."""
        if not event.is_broker_away or event.kind not in (EventKind.SUSPENDED, EventKind.RESUMED):
            log_event(event)
            return
        broker, queue = event.queue.broker, (event.subscription, event.queue)
        with self._lock:
            waiting = self._waiting.setdefault(broker, set())
            is_first, is_last = not waiting, waiting == {queue}
            if event.kind is EventKind.SUSPENDED:
                waiting.add(queue)
                since = self._since[broker] = self._since[broker] if not is_first else utc_text(self._clock.now_ms())
            else:
                waiting.discard(queue)
                since = self._since.get(broker, "")
        if event.kind is EventKind.SUSPENDED and is_first:
            logger.warning("broker_away", extra={"broker": broker, "since": since, "error": event.detail})
        if event.kind is EventKind.RESUMED and is_last:
            logger.info("broker_back", extra={"broker": broker, "away_since": since})


class StepKind(StrEnum):
    """The kinds of a StepOutcome."""

    #: The offset moved, with or without keys. The step is called again at once.
    MOVED_ON = "MOVED_ON"
    IDLE = "IDLE"
    #: Another consumer holds the queue's lease.
    NOT_MINE = "NOT_MINE"
    #: The offset stays, because Redis, the ledger or the broker is away, the half set is full, or an outage is open.
    SUSPENDED = "SUSPENDED"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """The result of AnnouncementStep.run_once."""

    kind: StepKind
    #: Seconds that pass before the next call, at least.
    wait_seconds: float = 0.0
    #: True if the next call may wait until a reader hands something out.
    is_called_for: bool = False
    detail: str = ""
    #: True if the step is SUSPENDED because the queue's broker does not answer.
    is_broker_away: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncementQueueState:
    """The state of a queue, for `reconciler status`."""

    subscription: Subscription
    queue: AnnouncementQueue
    #: Kind of the last step. None: no step has run yet.
    kind: StepKind | None
    #: The reason why the queue is suspended. Empty: the queue is not suspended.
    detail: str
    position: int | None
    #: Number of messages by which the position was behind the broker's maximum at the last pull. None: the queue was
    #: not pulled yet.
    behind: int | None
    admitted_keys: int
    refused: int
    rewinds: int
