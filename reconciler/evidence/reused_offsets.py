"""Which queues gave offsets a second time, as far as this process saw: there a group's offset proves nothing.

A broker that lost its tail, or whose topic was created again, stores other messages at offsets that a group has passed.
The offset of the group is kept apart from the messages, so it does not fall back with them. contract/queue_proof.py
says how one record is told from another.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from reconciler.clock import Clock
from reconciler.contract.queue_proof import QueueRecord

#: A queue's last record is looked at again after this long at the earliest: one pull of one message, and one more if
#: the queue has grown.
LOOK_SECONDS = 30.0
#: Queues that are remembered; beyond it all are forgotten, as after a restart.
QUEUES_MAX = 20_000

_log = logging.getLogger(__name__)

#: Topic, broker, number.
Place = tuple[str, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What was seen of one queue."""

    end: int
    looked_at: float = -LOOK_SECONDS
    #: One of its last records; None: it was not shown, and proves nothing.
    record: QueueRecord | None = None
    doubtful_below: int = 0


class ReusedOffsets:
    """What queues were at earlier looks. Shared by threads. Nothing is kept over a restart."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[Place, _Known] = {}

    def doubtful_below(
        self, place: Place, *, consumer_offset: int | None, end: int, look: Callable[[int], QueueRecord | None]
    ) -> int:
        """Offsets below this one may have been given twice: 0 where nothing speaks for it.

        `consumer_offset` was read before `end`. `look`: the record at an offset, None if it is not shown.
        """
        now = self._clock.monotonic_seconds()
        with self._lock:
            old = self._known.get(place)
        new = _Known(end=end) if old is None else old
        if old is not None:
            new = replace(old, end=max(end, old.end))
            is_due = now - old.looked_at >= LOOK_SECONDS
            # Another thread may have seen a later end after this one was read: then its last record is there.
            has_lost = end < old.end and look(old.end - 1) is None
            if has_lost or (is_due and _is_another(old.record, look)):
                new = _Known(end=end, doubtful_below=max(old.doubtful_below, old.end))
        if consumer_offset is not None and consumer_offset > end:
            new = replace(new, doubtful_below=max(new.doubtful_below, consumer_offset))
        if end > 0 and now - new.looked_at >= LOOK_SECONDS:
            new = replace(new, record=look(end - 1), looked_at=now)
        with self._lock:
            other = self._known.get(place)
            if other is not None and other is not old:  # another thread looked, too
                new = replace(new, doubtful_below=max(new.doubtful_below, other.doubtful_below))
            if len(self._known) >= QUEUES_MAX:
                self._known.clear()
            self._known[place] = new
        if new.doubtful_below > (0 if old is None else old.doubtful_below):
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


def _is_another(record: QueueRecord | None, look: Callable[[int], QueueRecord | None]) -> bool:
    if record is None:
        return False
    seen = look(record.queue_offset)
    return seen is not None and seen != record
