"""Writes events, captured rounds, snapshots and gaps from the reconciler into the spool.

Each pass makes its rows durable. Rounds never wait for the recorder. If a pass fails, the next pass repeats the work,
because events keep their place in the bounded queue, and positions stay. If a round's sets rotate away meanwhile, the
round is recorded as a gap.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reconciler.clock import Clock
from reconciler.contract.history_row import SnapshotKind
from reconciler.contract.subscription import Shard
from reconciler.errors import InvariantViolation, TransientError
from reconciler.history.batch import RowBatch, encode
from reconciler.history.event_rows import rows_of
from reconciler.history.health import Counters, Health
from reconciler.history.positions import HistoryPositions
from reconciler.history.round_rows import gaps_of_rows
from reconciler.history.shard_records import (
    Floors,
    ShardRecords,
    capture_shard,
    mark_of,
    no_floors,
    rest_batch,
    snapshot_records,
)
from reconciler.history.sink import HistorySink
from reconciler.history.spool import Spool, WriterFolder
from reconciler.policy.ports.history import RoundCapture, RoundMark
from reconciler.policy.ports.rounds import RoundDone

logger = logging.getLogger(__name__)

#: Number of snapshot rows in one pass. After so many rows, rounds are captured before the next snapshot.
SNAPSHOT_ROWS_A_PASS = 20_000
#: Largest number of batches of events in one record of the spool.
BATCHES_A_RECORD = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolPlace:
    """Folder, writer and bound of the spool."""

    folder: Path
    writer: str
    size_bytes_max: int


class HistoryRecorder:
    """Recorder of the history. Confined to one thread."""

    def __init__(
        self,
        *,
        shards: Sequence[Shard],
        port: RoundCapture,
        sink: HistorySink,
        place: SpoolPlace,
        read_positions: Callable[[], HistoryPositions],
        counters: Counters,
        clock: Clock,
        floors: Floors = no_floors,
    ) -> None:
        self._port = port
        self._floors = floors
        self._sink = sink
        self._place = place
        self._read_positions = read_positions
        self._counters = counters
        self._positions: HistoryPositions | None = None
        self._marks: dict[Shard, RoundMark] = {}
        #: Rounds of the marks, if this process or the ledger knows the rounds.
        self._last: dict[Shard, RoundDone | None] = {}
        #: Last round of each shard before this process. The entry of a shard ends with the shard's first capture.
        self._before: dict[Shard, RoundDone] = {}
        #: Day of a shard's last capture, as a number of UTC days since 1970. When the day changes, pending is recorded.
        self._days: dict[Shard, int] = {}
        #: Shard whose pending is to be recorded -> day that has begun.
        self._due: dict[Shard, int] = {}
        #: Shards whose rounds are to be read. At the start, the set has all shards.
        self._to_capture: dict[Shard, None] = dict.fromkeys(shards)
        self.spool: Spool | None = None
        #: Number of folders of the spool that were gone.
        self._given_up = 0
        self.spool_health = Health("spool", clock=clock)
        self.capture_health = Health("capture", clock=clock)
        #: True: the rows of the first pass are durable.
        self.has_caught_up = False
        #: Event that is set once the positions were read. Before the event, the sealing thread must not adopt segments.
        self.positions_known = threading.Event()

    def run_pass(self, *, shutdown: bool = False) -> None:
        """Writes new events, rounds and snapshots into the spool. An OSError is logged, and the next pass tries again.

        With `shutdown`, pending of every shard that ran a round in this process is recorded, too.
        """
        try:
            spool = self._open()
            self._find_positions()
            rests = self._sink.rests()
            self._record_events(spool)
            self._record_rounds(spool, shutdown=shutdown)
            self._record_rests(spool, rests)
            self._record_snapshots(spool, shutdown=shutdown)
        except OSError as error:
            self._failed(error)
            return
        self._counters.spool_bytes = spool.size_bytes
        self.spool_health.worked()
        self.has_caught_up = True

    def rotate(self) -> None:
        """Closes the segment, so that it is sealed."""
        if self.spool is None:
            return
        try:
            self.spool.rotate()
        except OSError as error:
            self.spool_health.failed(error)

    # ---- steps

    def _open(self) -> Spool:
        if self.spool is None:
            # A folder that was given up may come back, and another writer adopts it: so no name is used twice.
            name = f"{self._place.writer}-{self._given_up}" if self._given_up else self._place.writer
            folder = WriterFolder.create(self._place.folder, name)
            self.spool = Spool(folder, size_bytes_max=self._place.size_bytes_max)
        return self.spool

    def _find_positions(self) -> None:
        if self._positions is None:
            self._positions = self._read_positions()
            for shard, mark in self._positions.marks.items():
                self._marks.setdefault(shard, mark)
                self._days.setdefault(shard, _day(mark.at_ms))
            self._before = dict(self._positions.stored)
            self._last = dict(self._positions.stored)
            self.positions_known.set()

    def _record_events(self, spool: Spool) -> None:
        """Writes all events of the sink. Events keep their place in the sink until they are durable. Raises OSError."""
        waiting = self._sink.take()
        if not waiting:
            return
        record: list[RowBatch] = []
        for now_ms, event in waiting.events:
            record += rows_of(event, now_ms=now_ms)
            if len(record) >= BATCHES_A_RECORD:
                self._append(spool, record)
                record = []
        for stream, dropped in waiting.dropped.items():
            reason = "rows of events found no room while the history's spool could not be written"
            record += gaps_of_rows(
                [stream], from_ms=dropped.from_ms, at_ms=dropped.to_ms, rows=dropped.rows, reason=reason
            )
        if record:
            self._append(spool, record)
        spool.sync()
        self._counters.rows_dropped += sum(dropped.rows for dropped in waiting.dropped.values())
        self._sink.written()

    def _record_rounds(self, spool: Spool, *, shutdown: bool) -> None:
        """Writes new rounds of all shards. If a shard cannot be read, the next pass reads the shard again.

        Raises OSError.
        """
        self._to_capture |= dict.fromkeys(self._sink.fresh_shards())
        if shutdown:
            self._to_capture |= dict.fromkeys(self._sink.shards_that_ran())
        found: list[ShardRecords] = []
        problem: OSError | None = None
        is_well = True
        for shard in list(self._to_capture):
            try:
                one = self._look(shard)
                for record in one.records:
                    self._append(spool, record)
            except (TransientError, InvariantViolation) as error:
                self.capture_health.failed(error)
                is_well = False
            except OSError as error:
                problem = error
                break
            else:
                found.append(one)
        spool.sync()
        for one in found:
            self._durable(one)
        if problem is not None:
            raise problem
        if is_well:
            self.capture_health.worked()

    def _look(self, shard: Shard) -> ShardRecords:
        return capture_shard(
            self._port,
            shard,
            after=self._marks.get(shard),
            ran=self._sink.ran(shard),
            uncaptured=self._sink.uncaptured(shard),
            stored=self._before.get(shard),
            last=self._last.get(shard),
            floors=self._floors,
        )

    def _durable(self, found: ShardRecords) -> None:
        """Moves the shard's position to the records' end. The rows of the records are durable."""
        shard, counters = found.shard, self._counters
        if found.mark is not None:
            self._marks[shard] = found.mark
            self._last[shard] = found.done
            self._sink.captured(found.mark, shard)
            counters.captured_until_ms = max(counters.captured_until_ms, found.mark.at_ms)
        today = _day(found.now_ms)
        if self._days.setdefault(shard, today) < today:
            self._due[shard] = today
        self._to_capture.pop(shard, None)
        self._before.pop(shard, None)
        counters.rounds_captured += found.rounds
        counters.rounds_missed += found.missed
        if found.junk:
            logger.error("history_junk_left_out", extra={"shard": str(shard), "members": found.junk})
        if found.reread:
            logger.warning("history_rounds_reread", extra={"shard": str(shard), "rounds": found.reread})
        if found.missed:
            logger.error("history_rounds_missed", extra={"shard": str(shard), "rounds": found.missed})

    def _record_rests(self, spool: Spool, looks: Sequence[tuple[RoundDone, int]]) -> None:
        """Records shards at rest: until which time no round ran after the last captured round. Raises OSError.

        `looks` are taken before the events are read, so that keys that left before a look are written before the look.
        """
        rests = [look for look in looks if self._marks.get(look[0].shard) == mark_of(look[0])]
        for start in range(0, len(rests), BATCHES_A_RECORD):
            self._append(spool, [rest_batch(*rest) for rest in rests[start : start + BATCHES_A_RECORD]])
        spool.sync()
        for _, at_ms in rests:
            self._counters.captured_until_ms = max(self._counters.captured_until_ms, at_ms)

    def _record_snapshots(self, spool: Spool, *, shutdown: bool) -> None:
        """Records pending of shards whose day is over. A pass records only some shards, because rounds come first.

        Raises OSError.
        """
        for shard, today in list(self._due.items()):
            rows = self._snapshot(spool, shard, SnapshotKind.DAY_END)
            if rows is None:
                continue
            self._days[shard] = today
            del self._due[shard]
            if rows >= SNAPSHOT_ROWS_A_PASS and not shutdown:
                return
        if shutdown:
            for shard in self._sink.shards_that_ran():
                self._snapshot(spool, shard, SnapshotKind.SHUTDOWN)

    def _snapshot(self, spool: Spool, shard: Shard, kind: SnapshotKind) -> int | None:
        """Writes one durable snapshot and counts its rows. None: Redis did not answer. Raises OSError."""
        rows = 0
        try:
            for record in snapshot_records(self._port.snapshot(shard), kind):
                self._append(spool, record)
                rows += sum(len(batch) for batch in record)
        except (TransientError, InvariantViolation) as error:
            self.capture_health.failed(error)
            return None
        spool.sync()
        return rows

    def _append(self, spool: Spool, record: list[RowBatch]) -> None:
        spool.append(encode(record))
        self._counters.rows_spooled += sum(len(batch) for batch in record)

    def _failed(self, error: OSError) -> None:
        """Closes the open segment, because its rows may not be durable. The next pass begins another segment.

        If the folder of the spool is gone, the next pass makes another folder.
        """
        self.spool_health.failed(error)
        self.rotate()
        if self.spool is not None and self.spool.is_gone():
            self.spool.release()
            self.spool = None
            self._given_up += 1

    @property
    def marks(self) -> Mapping[Shard, RoundMark]:
        """Newest durable round of every shard."""
        return dict(self._marks)


def _day(at_ms: int) -> int:
    return at_ms // 86_400_000
