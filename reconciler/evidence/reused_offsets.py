"""Which queues gave offsets a second time: there a group's offset proves nothing.

A broker that lost its tail, or whose topic was created again, stores other messages at offsets that a group has passed.
The offset of the group is kept apart from the messages, so it does not fall back with them. contract/queue_proof.py
says how one record is told from another. What was seen of a queue is kept over restarts, so that none comes between
the queue's accident and the next look.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from reconciler.clock import Clock
from reconciler.contract.queue_proof import QueueRecord
from reconciler.errors import ReconcilerError
from reconciler.policy.ports import SeenQueue, SeenQueues

#: A queue's last record is looked at again after this long at the earliest: one pull of one message, and one more if
#: the queue has grown.
LOOK_SECONDS = 30.0
#: What was seen of a topic is kept this often at most; a doubt at once.
KEEP_SECONDS = 10.0
#: Queues that are remembered; beyond it all are forgotten.
QUEUES_MAX = 20_000

_log = logging.getLogger(__name__)

#: Topic, broker, number.
Place = tuple[str, str, int]

_NOT_YET = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What was seen of one queue."""

    seen: SeenQueue
    looked_at: float = _NOT_YET


class ReusedOffsets:
    """What queues were at earlier looks. Shared by threads."""

    def __init__(self, clock: Clock, *, kept: SeenQueues | None = None, environment: str = "") -> None:
        """`kept`: where it is read from at the first look at a topic; None: this process begins with nothing."""
        self._clock = clock
        self._kept = kept
        self._environment = environment
        self._lock = threading.Lock()
        self._known: dict[Place, _Known] = {}
        #: Topics whose queues were read, and when they were written last.
        self._written_at: dict[str, float] = {}
        self._written: dict[Place, SeenQueue] = {}
        self._may_write = False
        #: The ledger is not asked before this.
        self._recall_at = _NOT_YET
        self._is_told = False

    def begin_to_keep(self) -> None:
        """From now on what is seen is written, too: by processes that run rounds."""
        self._may_write = True

    def doubtful_below(
        self, place: Place, *, consumer_offset: int | None, end: int, look: Callable[[int], QueueRecord | None]
    ) -> int:
        """Offsets below this one may have been given twice: 0 where nothing speaks for it.

        `consumer_offset` was read before `end`. `look`: the record at an offset, None if it is not shown.
        """
        self._recall(place[0])
        now = self._clock.monotonic_seconds()
        with self._lock:
            old = self._known.get(place)
        new = SeenQueue(end=end) if old is None else old.seen
        looked_at = _NOT_YET if old is None else old.looked_at
        if old is not None:
            before = old.seen
            new = replace(new, end=max(end, before.end))
            is_due = now - old.looked_at >= LOOK_SECONDS
            # Another thread may have seen a later end after this one was read: then its last record is there.
            has_lost = end < before.end and look(before.end - 1) is None
            if has_lost or (is_due and _is_another(before.record, look)):
                new = SeenQueue(end=end, doubtful_below=max(before.doubtful_below, before.end))
                looked_at = _NOT_YET
        if consumer_offset is not None and consumer_offset > end:
            new = replace(new, doubtful_below=max(new.doubtful_below, consumer_offset))
        if end > 0 and now - looked_at >= LOOK_SECONDS:
            new, looked_at = replace(new, record=look(end - 1)), now
        with self._lock:
            other = self._known.get(place)
            if other is not None and other is not old:  # another thread looked, too
                new = replace(new, doubtful_below=max(new.doubtful_below, other.seen.doubtful_below))
            if len(self._known) >= QUEUES_MAX:
                self._known.clear()
            self._known[place] = _Known(seen=new, looked_at=looked_at)
        if new.doubtful_below > (0 if old is None else old.seen.doubtful_below):
            _log.warning(
                "offsets_reused: %s queue %d on %s ends at %d and gives offsets below %d a second time: it lost its "
                "tail, or was created again; offsets of groups prove nothing there",
                place[0],
                place[2],
                place[1],
                end,
                new.doubtful_below,
            )
        return new.doubtful_below

    def keep(self, topics: Iterable[str]) -> None:
        """Writes what was seen of these topics, where it has changed. Without the ledger it is tried again later."""
        if self._kept is None or not self._may_write:
            return
        now = self._clock.monotonic_seconds()
        for topic in sorted(set(topics)):
            with self._lock:
                if topic not in self._written_at:
                    continue  # what was kept could not be read yet: it is not replaced
                changed = {
                    place: known.seen
                    for place, known in self._known.items()
                    if place[0] == topic and self._written.get(place) != known.seen
                }
                has_doubt = any(
                    seen.doubtful_below > (0 if (was := self._written.get(place)) is None else was.doubtful_below)
                    for place, seen in changed.items()
                )
                if not changed or (now - self._written_at[topic] < KEEP_SECONDS and not has_doubt):
                    continue
                self._written_at[topic] = now
            try:
                self._kept.keep(self._environment, topic, {place[1:]: seen for place, seen in changed.items()})
            except ReconcilerError as error:
                self._tell(f"it is forgotten when this process ends: {error}")
                continue
            with self._lock:
                self._written.update(changed)

    def _recall(self, topic: str) -> None:
        now = self._clock.monotonic_seconds()
        if self._kept is None or topic in self._written_at or now < self._recall_at:
            return
        try:
            found = self._kept.of_topic(self._environment, topic)
        except ReconcilerError as error:
            self._recall_at = now + KEEP_SECONDS
            self._tell(f"what earlier processes saw is not known yet: {error}")
            return
        with self._lock:
            if topic in self._written_at:
                return
            self._written_at[topic] = _NOT_YET
            for (broker, number), seen in found.items():
                place = (topic, broker, number)
                self._written[place] = seen
                known = self._known.get(place)
                below = 0 if known is None else known.seen.doubtful_below
                seen = replace(seen, doubtful_below=max(seen.doubtful_below, below))
                if len(self._known) < QUEUES_MAX:
                    self._known[place] = _Known(seen=seen, looked_at=_NOT_YET)  # compared at the next look

    def _tell(self, what: str) -> None:
        if not self._is_told:
            self._is_told = True
            _log.warning("offsets_not_kept: what was seen of queues cannot be kept in the ledger: %s", what)


def _is_another(record: QueueRecord | None, look: Callable[[int], QueueRecord | None]) -> bool:
    if record is None:
        return False
    seen = look(record.queue_offset)
    return seen is not None and seen != record
