"""From the service into the spool: events, captured rounds, snapshots and gaps, durable with one sync a pass.

Rounds never wait for this. Whatever fails is tried again with the next pass: events keep their place in the bounded
queue, positions stay, and a round whose sets rotated away meanwhile is told as a gap.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reconciler.clock import Clock
from reconciler.contract.history_row import SnapshotKind
from reconciler.contract.subscription import Shard
from reconciler.errors import InvariantViolation, TransientError
from reconciler.history.batch import RowBatch, encode
from reconciler.history.capturing import Found, look, snapshot_records
from reconciler.history.event_rows import rows_of
from reconciler.history.health import Counters, Health
from reconciler.history.positions import Standing
from reconciler.history.round_rows import gaps_of_rows
from reconciler.history.sink import HistorySink, Waiting
from reconciler.history.spool import Spool, SpoolFull, WriterFolder
from reconciler.ports import RoundCapture, RoundDone, RoundMark

logger = logging.getLogger(__name__)

#: Batches of events in one record of the spool.
BATCHES_A_RECORD = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolPlace:
    """Where the spool lies and how much it may hold."""

    folder: Path
    writer: str
    size_bytes_max: int


class Recorder:
    """Confined to one thread."""

    def __init__(
        self,
        *,
        shards: Sequence[Shard],
        port: RoundCapture,
        sink: HistorySink,
        place: SpoolPlace,
        standing: Callable[[], Standing],
        counters: Counters,
        clock: Clock,
    ) -> None:
        self._port = port
        self._sink = sink
        self._place = place
        self._read_standing = standing
        self._counters = counters
        self._clock = clock
        self._standing: Standing | None = None
        self._marks: dict[Shard, RoundMark] = {}
        #: The last round of each shard before this process, until its first capture.
        self._before: dict[Shard, RoundDone] = {}
        #: Day (since 1970, UTC) of the last look at a shard: when it changes, pending is written down.
        self._days: dict[Shard, int] = {}
        #: Shards whose rounds are to be read: all of them at first.
        self._to_capture: dict[Shard, None] = dict.fromkeys(shards)
        self.spool: Spool | None = None
        self.spool_health = Health("spool", clock=clock)
        self.capture_health = Health("capture", clock=clock)
        #: Set when the first pass is durable.
        self.has_caught_up = False
        #: Set when it is known how far the history came: until then nobody else may adopt segments.
        self.stands = threading.Event()

    def run_pass(self, *, shutdown: bool = False) -> None:
        """Everything new into the spool. Raises nothing that a later pass could cure.

        `shutdown`: pending of every shard that ran a round here is written down, too.
        """
        found: list[Found] = []
        waiting = Waiting()
        problem: OSError | None = None
        try:
            spool = self._open()
            try:
                self._capture(spool, found, shutdown=shutdown)
                waiting = self._spool_events(spool)
            except OSError as error:
                problem = error  # what came before it is whole, and counts once it is durable
            spool.sync()
        except OSError as error:
            self._failed(problem or error)
            return
        self._durable(found, waiting)
        self._counters.spool_bytes = spool.size_bytes
        if problem is not None:
            self._failed(problem)
            return
        self.spool_health.worked()
        self.has_caught_up = True

    def rotate(self) -> None:
        """Closes the segment, so that it is sealed."""
        if self.spool is None:
            return
        try:
            self.spool.rotate()
        except OSError as error:
            self._failed(error)

    # ---- steps

    def _open(self) -> Spool:
        if self.spool is None:
            folder = WriterFolder.create(self._place.folder, self._place.writer)
            self.spool = Spool(folder, size_bytes_max=self._place.size_bytes_max)
        return self.spool

    def _stand(self) -> None:
        if self._standing is None:
            self._standing = self._read_standing()
            for shard, mark in self._standing.marks.items():
                self._marks.setdefault(shard, mark)
                self._days.setdefault(shard, _day(mark.at_ms))
            self._before = dict(self._standing.stored)
            self.stands.set()

    def _capture(self, spool: Spool, done: list[Found], *, shutdown: bool) -> None:
        """Rounds and due snapshots of all shards that have news; who does not answer keeps them.

        `done` gets what is whole in the spool. Raises OSError.
        """
        self._stand()
        self._to_capture |= dict.fromkeys(self._sink.fresh_shards())
        if shutdown:
            self._to_capture |= dict.fromkeys(self._sink.shards_that_ran())
        is_well = True
        for shard in list(self._to_capture):
            try:
                found = look(
                    self._port,
                    shard,
                    after=self._marks.get(shard),
                    ran=self._sink.ran(shard),
                    told=self._sink.told(shard),
                    stored=self._before.get(shard),
                )
                self._append(spool, found.records)
                self._snapshot(spool, found, shutdown=shutdown)
            except (TransientError, InvariantViolation) as error:
                self.capture_health.failed(error)
                is_well = False
            else:
                done.append(found)
        if is_well:
            self.capture_health.worked()

    def _snapshot(self, spool: Spool, found: Found, *, shutdown: bool) -> None:
        today = _day(found.now_ms)
        if self._days.setdefault(found.shard, today) < today:
            kind = SnapshotKind.DAY_END
        elif shutdown and found.mark is not None:
            kind = SnapshotKind.SHUTDOWN
        else:
            return
        self._append(spool, snapshot_records(self._port.snapshot(found.shard), kind))

    def _append(self, spool: Spool, records: Sequence[list[RowBatch]] | Iterator[list[RowBatch]]) -> None:
        for record in records:
            spool.append(encode(record))
            self._counters.rows_spooled += sum(len(batch) for batch in record)

    def _spool_events(self, spool: Spool) -> Waiting:
        """Everything that the sink holds; it keeps its place there until it is durable. Raises OSError."""
        waiting = self._sink.take()
        record: list[RowBatch] = []
        for now_ms, event in waiting.events:
            record += rows_of(event, now_ms=now_ms)
            if len(record) >= BATCHES_A_RECORD:
                self._append(spool, [record])
                record = []
        for stream, dropped in waiting.dropped.items():
            reason = "rows of events found no room while the history's spool could not be written"
            record += gaps_of_rows(
                [stream], from_ms=dropped.from_ms, at_ms=dropped.to_ms, rows=dropped.rows, reason=reason
            )
        if record:
            self._append(spool, [record])
        return waiting

    def _durable(self, found: Sequence[Found], waiting: Waiting) -> None:
        """Only now do positions move and events lose their place."""
        counters = self._counters
        for one in found:
            if one.mark is not None:
                self._marks[one.shard] = one.mark
                self._sink.captured(one.mark, one.shard)
                counters.captured_until_ms = max(counters.captured_until_ms, one.mark.at_ms)
            self._days[one.shard] = _day(one.now_ms)
            self._to_capture.pop(one.shard, None)
            self._before.pop(one.shard, None)
            counters.rounds_captured += one.rounds
            counters.rounds_missed += one.missed
            if one.missed:
                logger.error("history_rounds_missed", extra={"shard": str(one.shard), "rounds": one.missed})
        if waiting:
            counters.rows_dropped += sum(dropped.rows for dropped in waiting.dropped.values())
            self._sink.written()

    def _failed(self, error: OSError) -> None:
        self.spool_health.failed(error)
        if self.spool is not None and not isinstance(error, SpoolFull):
            # Whatever is in the open segment may or may not be durable: the next pass writes into a new one.
            try:
                self.spool.rotate()
            except OSError as again:
                logger.debug("history_spool_not_rotated", extra={"error": str(again)})

    @property
    def marks(self) -> Mapping[Shard, RoundMark]:
        """The newest round of every shard that is durable."""
        return dict(self._marks)


def _day(at_ms: int) -> int:
    return at_ms // 86_400_000
