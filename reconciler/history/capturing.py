"""One shard's newest rounds, read back and made into rows: what is new, what is missing, and where it stands then.

Pure but for the port; positions move only when the rows are durable, so a failure in between captures again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from reconciler.contract.history_row import SnapshotKind
from reconciler.contract.subscription import Shard
from reconciler.history.batch import RowBatch
from reconciler.history.round_rows import SnapshotHead, gap_of_rounds, pending_batch, round_batches, snapshot_batch
from reconciler.ports import Capture, PendingSnapshot, RoundCapture, RoundDone, RoundMark


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A shard's new rows."""

    shard: Shard
    #: One list a round, or a gap: in the spool all of it or nothing.
    records: tuple[list[RowBatch], ...]
    #: Where the shard stands once the records are durable; None: nothing was ever captured.
    mark: RoundMark | None
    rounds: int
    #: Rounds that are known to be missing.
    missed: int
    #: Redis TIME of the capture.
    now_ms: int


def look(
    port: RoundCapture,
    shard: Shard,
    *,
    after: RoundMark | None,
    ran: Mapping[tuple[str, int], RoundDone],
    is_position_certain: bool,
) -> Found:
    """Captures one shard. Raises RedisAway and InvariantViolation.

    `ran`: what this process told of its own rounds. `is_position_certain`: False where the history could not be
    asked what it has; a hole is then left for its readers to find.
    """
    capture = port.capture(shard, after=after)
    records: list[list[RowBatch]] = []
    missed = 0
    first_ms = capture.rounds[0].at_ms if capture.rounds else capture.now_ms
    lost = _lost_with_memory(capture, after, ran) if after is not None else None
    if lost is not None and after is not None:
        last, reason = lost
        missed += 0 if last is None else last - after.generation
        generations = None if last is None else (after.generation + 1, last)
        gap = gap_of_rounds(
            shard, epoch=after.epoch, generations=generations, from_ms=after.at_ms, at_ms=first_ms, reason=reason
        )
        records.append([gap])
    if capture.missed is not None and (after is not None or is_position_certain):
        first, last_missed = capture.missed
        missed += last_missed - first + 1
        gap = gap_of_rounds(
            shard,
            epoch=capture.epoch,
            generations=capture.missed,
            from_ms=0 if after is None else after.at_ms,
            at_ms=first_ms,
            reason=(
                f"history begins with generation {last_missed + 1}"
                if after is None
                else "the rounds' sets had rotated away before they were captured"
            ),
        )
        records.append([gap])
    for captured in capture.rounds:
        done = ran.get((captured.epoch, captured.generation))
        counts = done.counts if done is not None and done.at_ms == captured.at_ms else None
        records.append(round_batches(captured, counts))
    return Found(
        shard=shard,
        records=tuple(records),
        mark=capture.rounds[-1].mark if capture.rounds else _mark_without_rounds(capture, after, first_ms),
        rounds=len(capture.rounds),
        missed=missed,
        now_ms=capture.now_ms,
    )


def _mark_without_rounds(capture: Capture, after: RoundMark | None, at_ms: int) -> RoundMark | None:
    """A gap that was told must not be told again."""
    if capture.missed is not None and capture.epoch is not None:
        return RoundMark(epoch=capture.epoch, generation=capture.missed[1], at_ms=at_ms)
    if capture.new_memory and capture.epoch is not None:
        return RoundMark(epoch=capture.epoch, generation=0, at_ms=at_ms)
    return after


def _lost_with_memory(
    capture: Capture, after: RoundMark, ran: Mapping[tuple[str, int], RoundDone]
) -> tuple[int | None, str] | None:
    """The last round of a memory that is gone and why it is missing; None: everything had been captured.

    Nobody but this process can tell what ran: rounds of another owner, or of a process before, may be missing.
    """
    if not capture.new_memory or capture.epoch is None:
        return None
    told = [generation for epoch, generation in ran if epoch == after.epoch]
    if not told:
        return None, "Redis lost its memory; nobody knows whether rounds ran after the last one that was captured"
    if max(told) <= after.generation:
        return None
    return max(told), "Redis lost its memory before the rounds were captured"


def snapshot_records(snapshot: PendingSnapshot, kind: SnapshotKind) -> Iterator[list[RowBatch]]:
    """Pages as they come, then the snapshot's own row; nothing for a shard without memory. Raises RedisAway."""
    if snapshot.epoch is None:
        return
    head = SnapshotHead(
        shard=snapshot.shard,
        epoch=snapshot.epoch,
        generation=snapshot.generation,
        at_ms=snapshot.at_ms,
        kind=kind,
    )
    rows = 0
    for page in snapshot.pages:
        if page:
            rows += len(page)
            yield [pending_batch(head, page)]
    yield [snapshot_batch(head, rows)]
