"""Finds queues that assigned offsets a second time. In such a queue, a group's offset proves nothing until a condition
below is met.

A broker that lost its tail, or whose topic was created again, stores other messages at offsets that a group has passed.
The group's offset is stored apart from the messages, so it does not fall back with them. contract/queue_proof.py
explains how two records are distinguished. The state of each queue is stored, so that a restart between the accident
and the next look hides nothing.

Once the queue has grown to the old position of a client, the client may continue there, and skip new messages. If a
client asks beyond the end, the broker sets it back. So the offset counts again, for messages that are stored later, as
soon as one of these conditions is certain for each client of the group:
- The queue has grown past every old offset that a client may remember.
- The group's offset was beyond the end, and has come down.
- No client can still hold old messages, and the offset is not beyond the end.

Places in the commit log show without a clock which records are older: a broker stores each record after its earlier
ones.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from reconciler.clock import Clock
from reconciler.contract.queue_proof import QueueRecord
from reconciler.contract.tables import EVERY_GROUP
from reconciler.errors import ReconcilerError
from reconciler.policy.ports.announcing import ProvedFrom, SeenQueue, SeenQueues

#: Least seconds between two looks at a queue's last record. A look costs one pull of one message, and one more if the
#: queue has grown.
LOOK_SECONDS = 30.0
#: Least seconds between two writes of a topic's states. A doubt and its end are written at once. If a process ends in
#: between, the next process begins with states that are up to this old.
KEEP_SECONDS = 10.0
#: Least seconds between two readings of the states that other processes wrote. A subscription that moves to another
#: process thus keeps its doubts.
RECALL_SECONDS = 5.0
#: After this time, no client still holds messages from before the accident: clients send back a message that is not
#: done after 15 minutes (consumeTimeout of DefaultMQPushConsumer).
CLIENTS_SECONDS = 1_800.0
#: Maximum number of queues that are remembered. Above this number, all are forgotten.
QUEUES_MAX = 20_000

_log = logging.getLogger(__name__)

#: (topic, broker, number of the queue).
Place = tuple[str, str, int]

_NOT_YET = float("-inf")


#: The group's offset proves something for all records of the queue.
PROVED = ProvedFrom(queue_offset=0, behind_log_offset=-1)
#: Maximum number of tries of one look. A try fails if another thread has looked at the queue meanwhile.
_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The state of one queue."""

    seen: SeenQueue
    #: The last record that another process saw, if it lies further than this process's record. Both records are kept,
    #: because only one of them may show an accident.
    of_others: QueueRecord | None = None
    looked_at: float = _NOT_YET
    #: When this process noticed, or read, that offsets were assigned a second time.
    doubted_at: float = _NOT_YET
    #: Group -> its last offset beyond the end, since `doubted_at`.
    ahead: Mapping[str, int] = field(default_factory=dict)


class ReusedOffsets:
    """The states of queues at earlier looks. Thread-safe."""

    def __init__(self, clock: Clock, *, kept: SeenQueues | None = None, environment: str = "") -> None:
        """`kept`: the stored states. None: this process begins without states."""
        self._clock = clock
        self._kept = kept
        self._environment = environment
        self._lock = threading.Lock()
        self._known: dict[Place, _Known] = {}
        #: Topic -> its queues in `_known`. Each look stores the states of one topic, and reads no other topic's.
        self._places: dict[str, set[Place]] = {}
        #: Topic whose stored states were read -> when its states were last written.
        self._written_at: dict[str, float] = {}
        self._written: dict[Place, SeenQueue] = {}
        self._may_write = False
        self._recalled_at: dict[str, float] = {}
        #: The ledger is not read before this time.
        self._recall_at = _NOT_YET
        self._is_told = False

    def begin_to_keep(self) -> None:
        """Allows `keep` to store states. Processes that run rounds call this."""
        self._may_write = True

    def proved_from(
        self,
        place: Place,
        *,
        group: str,
        consumer_offset: int | None,
        end: int,
        look: Callable[[int], QueueRecord | None],
    ) -> ProvedFrom:
        """Returns the place from which the group's offset proves something. PROVED if the queue is not in doubt.

        `consumer_offset`: read before `end`. `look`: returns the record at an offset. None if the broker does not show
        it.
        """
        self._recall(place[0])
        for _ in range(_TRIES):
            now = self._clock.monotonic_seconds()
            with self._lock:
                old = self._known.get(place)
            known = _looked(old, end=end, consumer_offset=consumer_offset, look=look, now=now)
            known = _healed(known, group=group, consumer_offset=consumer_offset, end=end, now=now)
            with self._lock:
                if self._known.get(place) is not old:
                    continue  # another thread has looked meanwhile
                if old is None and len(self._known) >= QUEUES_MAX:
                    self._known.clear()
                    self._places.clear()
                self._put(place, known)
            _tell_changes(place, old, known, end=end)
            return _proved(known.seen, group=group, consumer_offset=consumer_offset, end=end)
        return ProvedFrom(queue_offset=max(end, consumer_offset or 0), behind_log_offset=-1)

    def last_seen(self, place: Place) -> tuple[int, int] | None:
        """Returns the offset and the place in the commit log of the queue's last known record."""
        with self._lock:
            known = self._known.get(place)
        record = None if known is None else known.seen.record
        return None if record is None else (record.queue_offset, record.commit_log_offset)

    def keep(self, topics: Iterable[str]) -> None:
        """Stores the changed states of these topics. If the ledger is away, a later call tries again."""
        if self._kept is None or not self._may_write:
            return
        now = self._clock.monotonic_seconds()
        for topic in sorted(set(topics)):
            with self._lock:
                if topic not in self._written_at:
                    continue  # stored states that could not be read yet must not be replaced
                changed = {
                    place: self._known[place].seen
                    for place in self._places.get(topic, ())
                    if self._written.get(place) != self._known[place].seen
                }
                is_urgent = any(_doubt(seen) != _doubt(self._written.get(place)) for place, seen in changed.items())
                if not changed or (now - self._written_at[topic] < KEEP_SECONDS and not is_urgent):
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
        is_young = now - self._recalled_at.get(topic, _NOT_YET) < RECALL_SECONDS
        if self._kept is None or is_young or now < self._recall_at:
            return
        try:
            found = self._kept.of_topic(self._environment, topic)
        except ReconcilerError as error:
            self._recall_at = now + KEEP_SECONDS
            self._tell(f"what other processes saw is not known yet: {error}")
            return
        with self._lock:
            self._recalled_at[topic] = now
            is_first = topic not in self._written_at
            self._written_at.setdefault(topic, _NOT_YET)
            for (broker, number), seen in found.items():
                place = (topic, broker, number)
                self._written[place] = seen
                known = self._known.get(place)
                if known is not None or len(self._known) < QUEUES_MAX:
                    self._put(place, _joined(known, seen, is_first=is_first, now=now))

    def _put(self, place: Place, known: _Known) -> None:
        self._known[place] = known
        self._places.setdefault(place[0], set()).add(place)

    def _tell(self, what: str) -> None:
        if not self._is_told:
            self._is_told = True
            _log.warning("offsets_not_kept: what was seen of queues cannot be kept in the ledger: %s", what)


def _joined(known: _Known | None, kept: SeenQueue, *, is_first: bool, now: float) -> _Known:
    """Returns this process's state of a queue, combined with the state that another or an earlier process stored. The
    next look compares the records. `is_first`: at the first reading, this process may know the queue only since an
    accident."""
    if known is None:
        return _Known(seen=kept, doubted_at=now)
    if is_first and known.seen.doubtful_below >= max(1, kept.doubtful_below):
        return _Known(seen=replace(kept, doubtful_below=known.seen.doubtful_below, proved_from={}), doubted_at=now)
    if is_first or kept.doubtful_below > known.seen.doubtful_below:
        return _Known(seen=kept, doubted_at=now)
    if kept.doubtful_below == known.seen.doubtful_below and kept.record is not None:
        own = known.seen.record or kept.record
        seen = replace(known.seen, end=max(known.seen.end, kept.end), record=own)
        furthest = max((own, known.of_others or own, kept.record), key=lambda one: one.queue_offset)
        return replace(known, seen=seen, of_others=None if furthest == own else furthest)
    return known


def _looked(
    old: _Known | None, *, end: int, consumer_offset: int | None, look: Callable[[int], QueueRecord | None], now: float
) -> _Known:
    """Returns the state after one more look at the queue."""
    if old is None:
        old = _Known(seen=SeenQueue(end=end))
    before, is_due = old.seen, end > 0 and now - old.looked_at >= LOOK_SECONDS
    # The new record is read before the known record. If the known record is still unchanged, the queue was unchanged at
    # the first reading, too.
    record = look(end - 1) if is_due else None
    # Another thread may have read a later end meanwhile. In this case, the last record before the later end exists.
    has_lost = end < before.end and look(before.end - 1) is None
    compared = [one for one in (before.record, old.of_others) if is_due and one != record]
    has_broken = has_lost or any(_is_another(one, look) for one in compared)
    is_ahead = consumer_offset is not None and consumer_offset > max(end, before.doubtful_below)
    looked_at = now if is_due else old.looked_at
    if not has_broken and not is_ahead:
        seen = replace(before, end=max(end, before.end), record=record or before.record)
        return replace(old, seen=seen, of_others=None if is_due else old.of_others, looked_at=looked_at)
    below = max(before.doubtful_below + 1, end, consumer_offset or 0, before.end if has_broken else 0)
    if has_broken and not is_due and end > 0:
        record, looked_at = look(end - 1), now
    if not has_broken:
        end, record = max(end, before.end), record or before.record
    seen = SeenQueue(end=end, record=record, doubtful_below=below)
    return _Known(seen=seen, looked_at=looked_at, doubted_at=now)


def _healed(known: _Known, *, group: str, consumer_offset: int | None, end: int, now: float) -> _Known:
    """Notes the place from which the offset of this group, or of every group, proves something again. If the group's
    offset is beyond the end, removes the group's place."""
    seen, proved = known.seen, dict(known.seen.proved_from)
    if not seen.doubtful_below or EVERY_GROUP in proved:
        return known
    if consumer_offset is not None and consumer_offset > end:
        proved.pop(group, None)
        known = replace(known, ahead={**known.ahead, group: consumer_offset})
    elif seen.record is not None:
        here = ProvedFrom(queue_offset=end, behind_log_offset=seen.record.commit_log_offset)
        seconds = now - known.doubted_at
        if end >= seen.doubtful_below and seconds >= LOOK_SECONDS:
            proved = {EVERY_GROUP: here, **proved}
        elif group not in proved and consumer_offset is not None:
            has_come_down = consumer_offset < known.ahead.get(group, 0)
            proved |= {group: here} if has_come_down or seconds >= CLIENTS_SECONDS else {}
    return known if proved == seen.proved_from else replace(known, seen=replace(seen, proved_from=proved))


def _proved(seen: SeenQueue, *, group: str, consumer_offset: int | None, end: int) -> ProvedFrom:
    if not seen.doubtful_below:
        return PROVED
    found = seen.proved_from.get(group) or seen.proved_from.get(EVERY_GROUP)
    return found or ProvedFrom(queue_offset=max(seen.doubtful_below, end, consumer_offset or 0), behind_log_offset=-1)


def _doubt(seen: SeenQueue | None) -> tuple[int, Mapping[str, ProvedFrom]]:
    return (0, {}) if seen is None else (seen.doubtful_below, seen.proved_from)


def _tell_changes(place: Place, old: _Known | None, known: _Known, *, end: int) -> None:
    topic, broker, number = place
    before, _ = _doubt(None if old is None else old.seen)
    below, proved = _doubt(known.seen)
    if below > before:
        _log.warning(
            "offsets_reused: %s queue %d on %s ends at %d and gives offsets below %d a second time: it lost its "
            "tail, or was created again; offsets of groups prove nothing there",
            topic,
            number,
            broker,
            end,
            below,
        )
    elif old is not None:
        for group in sorted(proved.keys() - old.seen.proved_from.keys()):
            _log.info(
                "offsets_proved: %s queue %d on %s: the offset of %s proves something again, of messages from %d on",
                topic,
                number,
                broker,
                "every group" if group == EVERY_GROUP else group,
                proved[group].queue_offset,
            )


def _is_another(record: QueueRecord | None, look: Callable[[int], QueueRecord | None]) -> bool:
    if record is None:
        return False
    seen = look(record.queue_offset)
    return seen is not None and seen != record
