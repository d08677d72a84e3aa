"""Queue between the policy's events and the history's thread. The queue is bounded, never blocks and never raises."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from reconciler.clock import Clock
from reconciler.contract.history_row import GATE, LEFT, REPAIR, VERDICT
from reconciler.contract.subscription import Shard
from reconciler.policy.events import (
    Event,
    KeysLeft,
    KeysNotTaken,
    RepairStepped,
    RoundFinished,
    ShardRoundRan,
    ShardsAtRest,
    VerdictsWritten,
)
from reconciler.policy.ports.history import RoundMark
from reconciler.policy.ports.rounds import RoundDone

#: Largest number of rows of events that wait in memory. A row takes about half a kilobyte. Further rows are counted and
#: become a gap.
EVENT_ROWS_MAX = 100_000
#: Largest number of a shard's rounds whose counts are kept until the capture.
ROUNDS_KEPT = 16


@dataclass(frozen=True, slots=True)
class DroppedRows:
    """Number of rows of one stream that found no room."""

    rows: int
    from_ms: int
    to_ms: int

    def plus(self, other: DroppedRows) -> DroppedRows:
        """Adds two numbers of dropped rows."""
        return DroppedRows(self.rows + other.rows, min(self.from_ms, other.from_ms), max(self.to_ms, other.to_ms))


@dataclass(slots=True)
class WaitingEvents:
    """Events that were taken from the sink and are not in the spool yet."""

    #: Pairs (service's clock in ms, event). The oldest event comes first.
    events: list[tuple[int, Event]] = field(default_factory=list)
    #: Stream -> number of rows that found no room.
    dropped: dict[str, DroppedRows] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.events or self.dropped)


class HistorySink:
    """EventSink of the history. Threads may share the object."""

    def __init__(self, *, clock: Clock, rows_max: int = EVENT_ROWS_MAX) -> None:
        self._clock = clock
        self._rows_max = rows_max
        self._lock = threading.Lock()
        self._events: deque[tuple[int, Event]] = deque()
        self._waiting = WaitingEvents()
        self._rows = 0
        self._dropped: dict[str, DroppedRows] = {}
        self._ran: dict[Shard, deque[RoundDone]] = {}
        self._uncaptured: dict[Shard, dict[str, tuple[int, int]]] = {}
        self._fresh: set[Shard] = set()
        #: Shard -> its last round, and the time of the newest look that found it at rest.
        self._rests: dict[Shard, tuple[RoundDone, int]] = {}
        #: threading.Event that each event of the policy sets. Haste is needed: a round's sets can be read for a few
        #: rounds only, and a kill loses waiting events.
        self.wake = threading.Event()

    def emit(self, event: Event) -> None:
        """Takes the event, or counts it if there is no room."""
        if isinstance(event, ShardRoundRan):
            with self._lock:
                self._note(event.done)
            self.wake.set()
            return
        if isinstance(event, ShardsAtRest):
            with self._lock:
                self._rests |= {done.shard: (done, at_ms) for done, at_ms in event.looks}
            self.wake.set()
            return
        stream, rows = _weight(event)
        if rows == 0:
            return
        now_ms = self._clock.now_ms()
        with self._lock:
            if self._rows + rows <= self._rows_max:
                self._rows += rows
                self._events.append((now_ms, event))
                self.wake.set()
                return
            _count(self._dropped, stream, DroppedRows(rows, now_ms, now_ms))

    def take(self) -> WaitingEvents:
        """Returns all waiting events.

        The events keep their place in the queue, and are returned again, until `written` is called.
        """
        with self._lock:
            self._waiting.events += self._events
            self._events.clear()
            for stream, dropped in self._dropped.items():
                _count(self._waiting.dropped, stream, dropped)
            self._dropped = {}
            return self._waiting

    def written(self) -> None:
        """Drops the events of the last `take`. The caller has made them durable."""
        with self._lock:
            self._rows -= sum(_weight(event)[1] for _, event in self._waiting.events)
            self._waiting = WaitingEvents()

    def fresh_shards(self) -> Sequence[Shard]:
        """Lists the shards that ran a round since the last call, sorted."""
        with self._lock:
            fresh, self._fresh = self._fresh, set()
        return sorted(fresh)

    def rests(self) -> Sequence[tuple[RoundDone, int]]:
        """Lists shards that were found at rest since the last call.

        Each has its last round and the Redis TIME of the look. If a rest is not written down, a later look finds the
        rest again.
        """
        with self._lock:
            rests, self._rests = self._rests, {}
        return list(rests.values())

    def ran(self, shard: Shard) -> Mapping[tuple[str, int], RoundDone]:
        """Maps (epoch, generation) to each of the shard's last rounds in this process."""
        with self._lock:
            return {(done.epoch, done.generation): done for done in self._ran.get(shard, ())}

    def _note(self, done: RoundDone) -> None:
        self._ran.setdefault(done.shard, deque(maxlen=ROUNDS_KEPT)).append(done)
        self._fresh.add(done.shard)
        of = self._uncaptured.setdefault(done.shard, {})
        first, last = of.get(done.epoch, (done.generation, done.generation))
        of[done.epoch] = (min(first, done.generation), max(last, done.generation))

    def uncaptured(self, shard: Shard) -> Mapping[str, tuple[int, int]]:
        """Maps epochs to the first and last generation that ran in this process and were not captured yet."""
        with self._lock:
            return dict(self._uncaptured.get(shard, {}))

    def captured(self, mark: RoundMark, shard: Shard) -> None:
        """Forgets the shard's rounds up to `mark`, and rounds of other epochs.

        These rounds are in the spool or in a gap.
        """
        with self._lock:
            first, last = self._uncaptured.get(shard, {}).get(mark.epoch, (0, 0))
            is_open = last > mark.generation
            self._uncaptured[shard] = {mark.epoch: (max(first, mark.generation + 1), last)} if is_open else {}

    def shards_that_ran(self) -> Sequence[Shard]:
        """Lists the shards that ever ran a round in this process."""
        with self._lock:
            return sorted(self._ran)


def _count(tally: dict[str, DroppedRows], stream: str, dropped: DroppedRows) -> None:
    known = tally.get(stream)
    tally[stream] = replace(dropped) if known is None else known.plus(dropped)


def _weight(event: Event) -> tuple[str, int]:
    match event:
        case RoundFinished():
            return GATE.name, int(event.shards_run > 0)
        case VerdictsWritten():
            return VERDICT.name, len(event.entries)
        case KeysLeft():
            return LEFT.name, len(event.keys)
        case KeysNotTaken():
            return LEFT.name, len(event.unique_keys)
        case RepairStepped():
            return REPAIR.name, 1
        case _:
            return "", 0
