"""The streams without a key (rounds, gates, snapshots), made from what the prefixes counted; and the manifest."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.history_generation.files import SLICE_MS, Folder
from benchmarks.history_generation.plan import Int64s, Plan, RoundTimes
from benchmarks.history_generation.rows import made, named, times
from reconciler.contract.manifest import HistoryFile, ManifestEntry, digest_of, entry_name, manifest_folder

Counts = Mapping[str, NDArray[np.int32]]


def write_service_streams(
    folder: Folder, plan: Plan, rounds: RoundTimes, counts: Counts, snapshot_rows: Int64s
) -> None:
    """Streams `round`, `snapshot` and `gate`; `counts` and `snapshot_rows` are sums over all prefixes."""
    row, number = np.divmod(np.arange(rounds.rows * rounds.rounds), rounds.rounds)
    before, after = _pending(counts)
    columns = {
        **_shard(plan, row),
        "epoch": named(row, rounds.epochs),
        "generation": times(rounds.generation_first[row] + number),
        "at_ms": times(rounds.at.reshape(-1)),
        "announced": _flat(counts["announced"]),
        "consumed": _flat(counts["consumed"]),
        "left_matched": _flat(counts["left_matched"]),
        "matched": _flat(counts["announced"] - counts["added"]),
        "pending_before": _flat(before),
        "pending_added": _flat(counts["added"]),
        "pending_after": _flat(after),
    }
    order = pa.array(np.argsort(rounds.at.reshape(-1), kind="stable"))
    folder.stream("round", None, made("history/round", columns).take(order))
    _write_snapshots(folder, plan, rounds, snapshot_rows)
    _write_gates(folder, plan, rounds, counts, after)


def write_ledger_rounds(folder: Folder, plan: Plan, rounds: RoundTimes, counts: Counts) -> None:
    """The ledger's own list of rounds, from the window's start to its close."""
    at = rounds.at.reshape(-1)
    kept = np.flatnonzero((at >= plan.start_ms) & (at < plan.end_ms + plan.late_after_ms))
    row, number = np.divmod(kept, rounds.rounds)
    columns = {
        **_shard(plan, row),
        "epoch": named(row, rounds.epochs),
        "generation": times(rounds.generation_first[row] + number),
        "at_ms": times(at[kept]),
        "announced": _flat(counts["announced"].reshape(-1)[kept]),
    }
    folder.evidence("ledger_round", None, made("ledger_round", columns))


def _flat(counted: NDArray[np.integer]) -> pa.Array:
    return pa.array(counted.reshape(-1).astype(np.int64))


def _subscription(plan: Plan, number: Int64s) -> dict[str, pa.Array]:
    topics = [plan.topic(topic) for topic in range(plan.topics)]
    groups = [plan.group(group) for group in range(plan.groups)]
    return {"topic": named(number // plan.groups, topics), "consumer_group": named(number % plan.groups, groups)}


def _shard(plan: Plan, row: Int64s) -> dict[str, pa.Array]:
    shard = pa.array((row % plan.shards).astype(np.int32))
    return {**_subscription(plan, row // plan.shards), "shard": shard}


def _pending(counts: Counts) -> tuple[Int64s, Int64s]:
    """Pending before and after each round; what was settled since the round before left between the two."""
    settled = counts["settled"].astype(np.int64)
    change = counts["added"].astype(np.int64) - counts["left_matched"]
    after = np.cumsum(change - settled, axis=1)
    return after - change, after


def _write_snapshots(folder: Folder, plan: Plan, rounds: RoundTimes, rows: Int64s) -> None:
    shape = rounds.snapshots.shape
    row, number = np.divmod(np.arange(shape[0] * shape[1]), shape[1])
    last = number == shape[1] - 1
    columns = {
        **_shard(plan, row),
        "epoch": named(row, rounds.epochs),
        "generation": times(rounds.generation_first[row] + rounds.snapshot_rounds.reshape(-1)),
        "at_ms": times(rounds.snapshots.reshape(-1)),
        "kind": named(last.astype(np.int8), ["DAY_END", "SHUTDOWN"]),
        "rows": _flat(rows),
    }
    folder.stream("snapshot", None, made("history/snapshot", columns))


def _write_gates(folder: Folder, plan: Plan, rounds: RoundTimes, counts: Counts, after: Int64s) -> None:
    subscriptions = len(plan.subscriptions)
    shape = (subscriptions, plan.shards, rounds.rounds)
    at = rounds.at.reshape(shape).max(axis=1)
    settled = counts["settled"].reshape(shape).sum(axis=1)
    number = np.repeat(np.arange(subscriptions), rounds.rounds)
    columns = {
        **_subscription(plan, number),
        "at_ms": times(at.reshape(-1)),
        "shards_run": pa.array(np.full(len(number), plan.shards, np.int32)),
        "gate": named(np.zeros(len(number), np.int8), ["open"]),
        "watermark_ms": times(at.reshape(-1) - 2_000),
        "pending": _flat(after.reshape(shape).sum(axis=1)),
        "became_due": _flat(settled),
        "verified": _flat(settled),
        "settled": _flat(settled),
    }
    order = pa.array(np.argsort(at.reshape(-1), kind="stable"))
    folder.stream("gate", None, made("history/gate", columns).take(order))


def write_manifest(root: Path, plan: Plan, files: list[HistoryFile]) -> None:
    """The chain: a seal for each half an hour; compacted: seals whose files went when a day's came."""
    chain = _Chain(root / "history" / manifest_folder(plan.environment), plan)
    if not plan.compacted:
        by_slice = defaultdict(list)
        for file in files:
            by_slice[file.first_ms // SLICE_MS].append(file)
        for number, sealed in sorted(by_slice.items()):
            chain.add("seal", (number + 1) * SLICE_MS, added=sealed)
        return
    by_day = defaultdict(list)
    for file in files:
        by_day[file.date].append(file)
    for _, kept in sorted(by_day.items()):
        pieces = [_piece(file, number) for number in (0, 1) for file in kept]
        for number in (0, 1):
            sealed = pieces[number * len(kept) : (number + 1) * len(kept)]
            chain.add("seal", max(file.last_ms for file in sealed) + 1_000, added=sealed)
        last = max(file.last_ms for file in kept) + 60_000
        chain.add("compact", last, added=kept, removed=[piece.path for piece in pieces])


def _piece(file: HistoryFile, number: int) -> HistoryFile:
    """One of the two files that a compacted file was made of; they are gone, only the manifest knows them."""
    rows = file.rows // 2 if number == 0 else file.rows - file.rows // 2
    path = file.path.replace(".parquet", f"-sealed-{number}.parquet")
    return replace(
        file, path=path, rows=rows, size_bytes=file.size_bytes // 2, sha256=hashlib.sha256(path.encode()).hexdigest()
    )


class _Chain:
    def __init__(self, folder: Path, plan: Plan) -> None:
        self._folder, self._environment = folder, plan.environment
        self._sequence, self._previous = 0, ""
        folder.mkdir(parents=True)

    def add(self, action: str, at_ms: int, *, added: list[HistoryFile], removed: list[str] | None = None) -> None:
        """One entry."""
        self._sequence += 1
        entry = ManifestEntry(
            environment=self._environment,
            sequence=self._sequence,
            previous=self._previous,
            action=action,
            writer="generated",
            written_at_ms=at_ms,
            added=tuple(sorted(added, key=lambda file: file.path)),
            removed=tuple(sorted(removed or ())),
        ).encoded()
        self._previous = digest_of(entry)
        (self._folder / entry_name(self._sequence)).write_bytes(entry)
