"""Turns one segment of the spool into Parquet files. Then writes the manifest's entry. Then the segment is deleted.

A crash between two of these steps leaves the segment. Files have names made from the segment's name, so the next try
writes the same files again. Once an entry names the segment, the segment is never sealed again, only deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reconciler.clock import Clock
from reconciler.contract.history_row import GATE, HISTORY_STREAMS, LEFT, PENDING, REPAIR, ROUND, SNAPSHOT, VERDICT
from reconciler.contract.manifest import HistoryFile
from reconciler.errors import MalformedInput
from reconciler.history.batch import RowBatch, decode
from reconciler.history.chain import ManifestChain
from reconciler.history.round_rows import gaps_of_rows
from reconciler.history.segment import Frame, read_frames
from reconciler.history.store import HistoryStore
from reconciler.history.tables import partitions, table_of

logger = logging.getLogger(__name__)

#: Streams that damaged bytes may have held. A round's keys are in the same frame as the `round` row.
_DAMAGED_STREAMS = tuple(s.name for s in (ROUND, LEFT, VERDICT, REPAIR, GATE, PENDING, SNAPSHOT))


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRows:
    """Content of a segment."""

    batches: tuple[RowBatch, ...]
    #: (from_ms, to_ms, bytes) of each damage between whole records. from_ms or to_ms is None if no record on that side
    #: has a time.
    damage: tuple[tuple[int | None, int | None, int], ...]

    def with_gaps(self, *, now_ms: int) -> Iterator[RowBatch]:
        """Yields the rows, and for each damage a gap row per stream that may be affected."""
        yield from self.batches
        for from_ms, to_ms, size_bytes in self.damage:
            yield from gaps_of_rows(
                _DAMAGED_STREAMS,
                from_ms=now_ms if from_ms is None else from_ms,
                at_ms=now_ms if to_ms is None else to_ms,
                rows=None,
                reason=f"{size_bytes} bytes of the history's spool were damaged",
            )


def read_segment(path: Path) -> SegmentRows:
    """Reads every whole record and the damage of a closed segment.

    A torn end was cut off before the segment was closed.
    """
    batches: list[RowBatch] = []
    damage: list[tuple[int | None, int | None, int]] = []
    last_ms: int | None = None
    open_damage = 0
    for piece in read_frames(path.read_bytes()):
        if not isinstance(piece, Frame):
            open_damage += piece.size_bytes
            continue
        try:
            record = decode(piece.payload)
        except MalformedInput:
            logger.exception("history_record_unreadable", extra={"segment": path.name})
            open_damage += len(piece.payload)
            continue
        first_ms, record_last_ms = _times(record)
        if open_damage:
            damage.append((last_ms, first_ms, open_damage))
            open_damage = 0
        last_ms = record_last_ms if record_last_ms is not None else last_ms
        batches += record
    if open_damage:
        damage.append((last_ms, None, open_damage))
    return SegmentRows(batches=tuple(batches), damage=tuple(damage))


def _times(record: list[RowBatch]) -> tuple[int | None, int | None]:
    times = [at_ms for batch in record if isinstance(at_ms := batch.shared.get("at_ms"), int)]
    return (min(times), max(times)) if times else (None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SealResult:
    """Result of sealing one segment."""

    segment: str
    files: int
    rows: int
    damaged: int


class Sealer:
    """Sealer of segments. Confined to one thread."""

    def __init__(self, store: HistoryStore, chain: ManifestChain, *, clock: Clock) -> None:
        self._store = store
        self._chain = chain
        self._clock = clock

    def seal(self, segment: Path) -> SealResult:
        """Puts everything in the segment into the history. Raises OSError and ChainContended.

        The caller deletes the segment (Spool.done).
        """
        name = segment.stem
        self._chain.refresh()
        if self._chain.has_segment(name):
            return SealResult(segment=name, files=0, rows=0, damaged=0)
        rows = read_segment(segment)
        files = self.write(name, rows)
        if files:
            self._chain.append("seal", added=files, segment=name, still=lambda: not self._chain.has_segment(name))
        return SealResult(segment=name, files=len(files), rows=sum(f.rows for f in files), damaged=len(rows.damage))

    def write(self, name: str, rows: SegmentRows) -> list[HistoryFile]:
        """Writes one file per stream, day and prefix."""
        by_stream: dict[str, list[RowBatch]] = {}
        for batch in rows.with_gaps(now_ms=self._clock.now_ms()):
            if len(batch):
                by_stream.setdefault(batch.stream, []).append(batch)
        files: list[HistoryFile] = []
        for stream in HISTORY_STREAMS:
            batches = by_stream.pop(stream.name, None)
            if batches is not None:
                table = table_of(stream.name, batches)
                files += [self._store.write(where, name, part) for where, part in partitions(stream, table)]
        return files
