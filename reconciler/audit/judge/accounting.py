"""Unaccounted keys: announced, neither consumed nor left, and gone from pending."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from reconciler.audit.evidence.plan import GroupPlan, Snapshot
from reconciler.audit.judge.facts import CodedRows
from reconciler.audit.judge.keys import Codes, Longs
from reconciler.audit.judge.rows import Flags, Vocabulary


def unaccounted(
    suspects: Flags, announced: CodedRows, pending: CodedRows, asked: GroupPlan, vocabulary: Vocabulary
) -> tuple[Flags, Longs]:
    """Finds suspects that are missing in the first snapshot after their newest announcement.

    Returns the snapshot's time per key, or -1 for other keys. A suspect is an announced key that was not consumed, has
    not left, and has no candidate. If no later snapshot exists, the key counts as accounted for, because no snapshot
    can show the key yet.
    """
    size = len(suspects)
    lacking = np.zeros(size, np.bool_)
    looked_at = np.full(size, -1, np.int64)
    rows = np.flatnonzero(suspects[announced.codes]) if suspects.any() else np.empty(0, np.intp)
    if not len(rows):
        return lacking, looked_at
    newest = _newest(announced, rows, vocabulary)
    codes = announced.codes[newest]
    shards = announced.rows.times["shard"][newest]
    for shard in np.unique(shards).tolist():
        snapshots = asked.snapshots.get(shard, ())
        of_shard = shards == shard
        looked_at[codes[of_shard]] = _next_snapshot(announced, newest[of_shard], snapshots, vocabulary)
    lacking[codes] = looked_at[codes] >= 0
    lacking[_still_pending(pending, codes, shards, looked_at)] = False
    looked_at[~lacking] = -1
    return lacking, looked_at


def _newest(announced: CodedRows, rows: npt.NDArray[np.intp], vocabulary: Vocabulary) -> npt.NDArray[np.intp]:
    """Finds the row of each code's newest announcement. The rows are in the order of codes."""
    times = announced.rows.times
    epochs = vocabulary.ranks()[announced.rows.names["epoch"][rows]]
    codes = announced.codes[rows]
    order = np.lexsort((epochs, times["shard"][rows], times["generation"][rows], times["at_ms"][rows], codes))
    ordered = codes[order]
    last = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), len(ordered) - 1)
    newest: npt.NDArray[np.intp] = rows[order[last]]
    return newest


def _next_snapshot(
    announced: CodedRows, rows: npt.NDArray[np.intp], snapshots: Sequence[Snapshot], vocabulary: Vocabulary
) -> Longs:
    """Finds for each row the first snapshot of the same epoch after the row's round.

    Returns the snapshot's time. -1: no such snapshot exists. A snapshot's time is taken before the snapshot is read. So
    a snapshot with a later time may have been read before the round. Therefore the generation decides. A snapshot of
    another epoch proves nothing, because Redis lost its memory in between. Such a snapshot may lack keys whose
    announcements were read again later.
    """
    times = announced.rows.times["at_ms"][rows]
    generations = announced.rows.times["generation"][rows]
    epochs = announced.rows.names["epoch"][rows]
    found = np.full(len(rows), -1, np.int64)
    for snapshot in reversed(snapshots):
        same_life = epochs == vocabulary.number(snapshot.epoch)
        after = same_life & (times < snapshot.at_ms) & (generations <= snapshot.generation)
        found[after] = snapshot.at_ms
    return found


def _still_pending(pending: CodedRows, codes: Codes, shards: Longs, looked_at: Longs) -> Codes:
    """Finds the codes that are in the snapshot of `looked_at`."""
    shard_of = np.full(len(looked_at), -1, np.int64)
    shard_of[codes] = shards
    rows = pending.rows.times["at_ms"] == looked_at[pending.codes]
    rows &= pending.rows.times["shard"] == shard_of[pending.codes]
    found: Codes = pending.codes[rows]
    return found
