"""Makes rows of the history from captured rounds, snapshots and gaps. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from reconciler.contract.history_row import (
    ANNOUNCED,
    CONSUMED,
    GAP,
    LEFT,
    PENDING,
    REREAD,
    ROUND,
    SNAPSHOT,
    Leaving,
    SnapshotKind,
)
from reconciler.contract.subscription import Shard
from reconciler.contract.unique_key import DIGITS_BYTES_MAX, DIGITS_BYTES_MIN, is_member
from reconciler.history.batch import PackedKeys, RowBatch, Value
from reconciler.history.event_rows import named
from reconciler.policy.ports.history import CapturedRound
from reconciler.policy.ports.rounds import RoundCounts

#: Name that stands for all topics and all groups in a gap row.
EVERY_SUBSCRIPTION = "*"
#: Shard in a gap row that concerns several shards.
MANY_SHARDS = -1


def without_junk(captured: CapturedRound) -> CapturedRound:
    """Removes members that are no unique keys. No file could hold such members, and no audit could read them."""
    announced, consumed, left = (
        members
        if all(DIGITS_BYTES_MIN <= length <= DIGITS_BYTES_MAX for length in set(map(len, members)))
        else tuple(filter(is_member, members))
        for members in (captured.announced, captured.consumed, captured.left_matched)
    )
    return replace(captured, announced=announced, consumed=consumed, left_matched=left)


def members_of(captured: CapturedRound) -> int:
    """Counts the keys in the three sets of the round."""
    return len(captured.announced) + len(captured.consumed) + len(captured.left_matched)


def round_batches(captured: CapturedRound, counts: RoundCounts | None) -> list[RowBatch]:
    """Makes all rows of one round. `counts` None: the reply of the round was lost, or another owner ran the round."""
    place = named(captured.shard.subscription) | {"shard": captured.shard.number}
    shared = place | {"epoch": captured.epoch, "generation": captured.generation, "at_ms": captured.at_ms}
    of_round: dict[str, Value] = {
        "announced": len(captured.announced),
        "consumed": len(captured.consumed),
        "left_matched": len(captured.left_matched),
        "matched": None if counts is None else counts.matched,
        "pending_before": None if counts is None else counts.pending_before,
        "pending_added": None if counts is None else counts.pending_added,
        "pending_after": None if counts is None else counts.pending_after,
    }
    left: dict[str, Value] = {"at_ms": captured.at_ms, "reason": str(Leaving.MATCHED), "detail": None}
    batches = [RowBatch(stream=ROUND.name, shared=shared | of_round)]
    for stream, members, columns in (
        (ANNOUNCED, captured.announced, shared),
        (CONSUMED, captured.consumed, shared),
        (LEFT, captured.left_matched, place | left),
    ):
        if members:
            batches.append(RowBatch(stream=stream.name, shared=columns, keys=PackedKeys.of(members)))
    return batches


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHead:
    """Values that all rows of one snapshot share."""

    shard: Shard
    epoch: str
    generation: int
    at_ms: int
    kind: SnapshotKind


def pending_batch(head: SnapshotHead, page: Sequence[tuple[bytes, int]]) -> RowBatch:
    """Makes the rows of one page of a snapshot."""
    return RowBatch(
        stream=PENDING.name,
        shared=named(head.shard.subscription) | {"shard": head.shard.number, "at_ms": head.at_ms},
        keys=PackedKeys.of(member for member, _ in page),
        columns={"first_seen_ms": [first_seen_ms for _, first_seen_ms in page]},
    )


def snapshot_batch(head: SnapshotHead, rows: int) -> RowBatch:
    """Makes the snapshot's own row. The row is written after the pages, so a snapshot with this row is whole."""
    about: dict[str, Value] = {
        "shard": head.shard.number,
        "epoch": head.epoch,
        "generation": head.generation,
        "at_ms": head.at_ms,
        "kind": str(head.kind),
        "rows": rows,
    }
    return RowBatch(stream=SNAPSHOT.name, shared=named(head.shard.subscription) | about)


def gap_of_rounds(
    shard: Shard, *, epoch: str | None, generations: tuple[int, int] | None, from_ms: int, at_ms: int, reason: str
) -> RowBatch:
    """Makes the gap row for one shard's rounds that can no longer be captured."""
    first, last = generations if generations is not None else (None, None)
    about: dict[str, Value] = {
        "shard": shard.number,
        "epoch": epoch,
        "first_generation": first,
        "last_generation": last,
        "from_ms": min(from_ms, at_ms),
        "at_ms": at_ms,
        "stream": ROUND.name,
        "rows": None,
        "reason": reason,
    }
    return RowBatch(stream=GAP.name, shared=named(shard.subscription) | about)


def reread_rounds(gap: RowBatch, floors: Mapping[str, int]) -> RowBatch:
    """Makes the row that replaces a gap: the announcements of these lost rounds are read again from these offsets."""
    columns = ("epoch", "first_generation", "last_generation", "from_ms", "at_ms", "topic", "consumer_group", "shard")
    about = {name: gap.shared[name] for name in columns}
    return RowBatch(stream=REREAD.name, shared=about | {"sources": json.dumps(floors, sort_keys=True)})


def gaps_of_rows(streams: Iterable[str], *, from_ms: int, at_ms: int, rows: int | None, reason: str) -> list[RowBatch]:
    """Makes one gap row per stream, for lost rows of many shards and subscriptions."""
    about: dict[str, Value] = {
        "topic": EVERY_SUBSCRIPTION,
        "consumer_group": EVERY_SUBSCRIPTION,
        "shard": MANY_SHARDS,
        "epoch": None,
        "first_generation": None,
        "last_generation": None,
        "from_ms": min(from_ms, at_ms),
        "at_ms": at_ms,
        "rows": rows,
        "reason": reason,
    }
    return [RowBatch(stream=GAP.name, shared=about | {"stream": stream}) for stream in sorted(set(streams))]
