"""Reads one shard's newest rounds back from Redis. Makes rows of new rounds and of gaps, and the shard's new mark.

The module is pure, except for the calls of the port. A mark moves only after its rows are durable, so rounds are
captured again after a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from reconciler.contract.history_row import SnapshotKind
from reconciler.contract.subscription import Shard
from reconciler.contract.unique_key import is_member
from reconciler.history.batch import RowBatch
from reconciler.history.round_rows import (
    SnapshotHead,
    gap_of_rounds,
    members_of,
    pending_batch,
    reread_rounds,
    round_batches,
    snapshot_batch,
    without_junk,
)
from reconciler.policy.ports.history import Capture, CapturedRound, PendingSnapshot, RoundCapture, RoundMark
from reconciler.policy.ports.rounds import RoundDone

#: Function: queue ("<broker>/<queue>") of a shard -> offset from which announcements are read after Redis lost its
#: memory. The result is None if reading from there loses announcements of the group, or if the offset is not known.
#: Raises DatabaseAway.
Floors = Callable[[Shard, Iterable[str]], Mapping[str, int] | None]


def no_floors(_shard: Shard, _queues: Iterable[str]) -> None:
    """Returns None, because no offset is known. So lost rounds stay a gap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRecords:
    """New rows of one shard."""

    shard: Shard
    #: Batches to write, one list per round or gap. The spool holds a list whole or not at all.
    records: tuple[list[RowBatch], ...]
    #: Newest round of the shard after the records are durable. None: no round was ever captured.
    mark: RoundMark | None
    rounds: int
    #: Number of rounds that are known to be missing.
    missed: int
    #: Number of rounds that were lost with Redis' memory and whose keys the rounds of the new memory take.
    reread: int
    #: Redis TIME of the capture.
    now_ms: int
    #: Round of `mark` with its offsets, if this process knows the round.
    done: RoundDone | None = None
    #: Number of members of the rounds' sets that are no unique keys. Such members are left out.
    junk: int = 0


def capture_shard(
    port: RoundCapture,
    shard: Shard,
    *,
    after: RoundMark | None,
    ran: Mapping[tuple[str, int], RoundDone],
    uncaptured: Mapping[str, tuple[int, int]],
    stored: RoundDone | None = None,
    last: RoundDone | None = None,
    floors: Floors = no_floors,
) -> ShardRecords:
    """Captures one shard. Can raise RedisAway, DatabaseAway or InvariantViolation.

    `ran`: the last rounds of this process, from which counts are taken.
    `uncaptured`: epoch -> first and last generation that ran in this process and were not captured. Only these rounds
    become a gap. Other rounds may be in another writer's spool, and readers find holes between generations.
    `stored`: the last round that the ledger knew when the process began. It shows rounds that were lost with Redis'
    memory, which leave no hole between generations.
    `last`: the round of `after`, if this process or the ledger knows the round. Announcements below the round's offsets
    were captured, and announcements that were open then are above the floor of that time. So rounds that were lost
    after this round are no gap if the floor has not passed the offsets (policy/shard_rounds.py holds the floor back).
    """
    capture = port.capture(shard, after=after)
    first_ms = capture.rounds[0].at_ms if capture.rounds else capture.now_ms
    known = dict(ran)
    if stored is not None and after is not None and stored.epoch == after.epoch:
        known.setdefault((stored.epoch, stored.generation), stored)
        if stored.generation > after.generation and stored.epoch != capture.epoch:
            uncaptured = {stored.epoch: (after.generation + 1, stored.generation), **uncaptured}
    is_anew = bool(capture.rounds) and capture.rounds[0].generation == 1
    records: list[list[RowBatch]] = []
    missed = reread = 0
    for epoch, first, final, reason in _missed(capture, uncaptured, known):
        row = gap_of_rounds(
            shard,
            epoch=epoch,
            generations=(first, final),
            from_ms=_not_before_ms(after, known.get((epoch, first))),
            at_ms=first_ms,
            reason=reason,
        )
        is_lost = is_anew and epoch != capture.epoch
        again = _read_again(after, last, known.get((epoch, final)), floors) if is_lost else None
        records.append([row if again is None else reread_rounds(row, again)])
        if again is None:
            missed += final - first + 1
        else:
            reread += final - first + 1
    done, junk = last, 0
    for of_redis in capture.rounds:
        captured = without_junk(of_redis)
        junk += members_of(of_redis) - members_of(captured)
        done = ran.get((captured.epoch, captured.generation))
        done = done if done is not None and done.at_ms == captured.at_ms else None
        counts = done.counts if done is not None else None
        records.append(round_batches(captured, counts))
    return ShardRecords(
        shard=shard,
        records=tuple(records),
        mark=capture.rounds[-1].mark if capture.rounds else _mark_without_rounds(capture, after, first_ms),
        rounds=len(capture.rounds),
        missed=missed,
        reread=reread,
        now_ms=capture.now_ms,
        done=done,
        junk=junk,
    )


def _read_again(
    after: RoundMark | None, last: RoundDone | None, lost: RoundDone | None, floors: Floors
) -> Mapping[str, int] | None:
    """Finds the offsets from which announcements are read again.

    None: an offset is not known, or is above the offset of the last captured round.
    """
    if after is None or last is None or lost is None or mark_of(last) != after:
        return None
    found = floors(last.shard, sorted({*last.offsets, *lost.offsets}))
    if found is None or any(offset > last.offsets.get(queue, 0) for queue, offset in found.items()):
        return None
    return found


def mark_of(done: RoundDone) -> RoundMark:
    """Names the round as the history does."""
    return RoundMark(epoch=done.epoch, generation=done.generation, at_ms=done.at_ms)


def _missed(
    capture: Capture, uncaptured: Mapping[str, tuple[int, int]], known: Mapping[tuple[str, int], RoundDone]
) -> Iterator[tuple[str, int, int, str]]:
    """Yields missing rounds: epoch, first and last generation, and reason."""
    if capture.epoch is None:
        return
    for epoch, (first, last) in uncaptured.items():
        if epoch != capture.epoch:
            # If only the epoch's marker was lost, the counter continues, and rounds are read under the new epoch.
            while last >= first and _is_among(capture.rounds, known.get((epoch, last))):
                last -= 1
            reason = "Redis lost its memory before the rounds were captured"
        elif capture.missed is not None:
            first, last = max(first, capture.missed[0]), min(last, capture.missed[1])
            reason = "the rounds' sets had rotated away before they were captured"
        else:
            continue
        if first <= last:
            yield epoch, first, last, reason


def _not_before_ms(after: RoundMark | None, done: RoundDone | None) -> int:
    if after is not None:
        return after.at_ms
    return done.at_ms if done is not None else 0


def _is_among(rounds: Sequence[CapturedRound], done: RoundDone | None) -> bool:
    return done is not None and any((r.generation, r.at_ms) == (done.generation, done.at_ms) for r in rounds)


def _mark_without_rounds(capture: Capture, after: RoundMark | None, at_ms: int) -> RoundMark | None:
    """Finds the mark after a recorded gap, so that the gap is not recorded again."""
    if capture.epoch is not None and (capture.missed is not None or capture.new_memory):
        generation = 0 if capture.missed is None else capture.missed[1]
        return RoundMark(epoch=capture.epoch, generation=generation, at_ms=at_ms)
    return after


def rest_batch(done: RoundDone, at_ms: int) -> RowBatch:
    """Makes the row of a shard at rest after this round. The row is the snapshot of an empty pending set."""
    head = SnapshotHead(
        shard=done.shard, epoch=done.epoch, generation=done.generation, at_ms=at_ms, kind=SnapshotKind.AT_REST
    )
    return snapshot_batch(head, 0)


def snapshot_records(snapshot: PendingSnapshot, kind: SnapshotKind) -> Iterator[list[RowBatch]]:
    """Yields the pages of a snapshot, then the snapshot's own row. Yields nothing if Redis has no memory of the shard.

    Raises RedisAway.
    """
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
    for members in snapshot.pages:
        page = [(member, seen_ms) for member, seen_ms in members if is_member(member)]
        if page:
            rows += len(page)
            yield [pending_batch(head, page)]
    yield [snapshot_batch(head, rows)]
