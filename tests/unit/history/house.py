"""A history of the test's own: a scripted Redis, recorder and maintenance without threads, and what readers see."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reconciler.clock import ManualClock
from reconciler.contract.subscription import Shard, Subscription
from reconciler.errors import RedisAway
from reconciler.history.chain import ManifestChain
from reconciler.history.health import Counters
from reconciler.history.maintenance import HistoryMaintenance, MaintenanceRules
from reconciler.history.positions import PositionsReader
from reconciler.history.recorder import HistoryRecorder, SpoolPlace
from reconciler.history.sealer import Sealer
from reconciler.history.shard_records import Floors, no_floors
from reconciler.history.sink import HistorySink
from reconciler.history.store import HistoryStore
from reconciler.policy.events import ShardRoundRan
from reconciler.policy.ports.history import Capture, CapturedRound, PendingSnapshot, RoundMark
from reconciler.policy.ports.rounds import RoundCounts, RoundDone

ENVIRONMENT = "test"
BILLING = Subscription(environment=ENVIRONMENT, topic="ORDERS", group="billing")
EPOCH = "test:0001"
START_MS = 1_700_000_000_000
MEBIBYTE = 1024 * 1024


def shard(number: int = 0) -> Shard:
    return Shard(subscription=BILLING, number=number)


def some_keys(count: int, *, seed: int = 0, size: int = 16) -> list[bytes]:
    return [random.Random(f"{seed}/{n}").randbytes(size) for n in range(count)]


@dataclass
class ScriptedRounds:
    """RoundCapture: rounds that the test runs, of which the last `kept` can be read."""

    clock: ManualClock
    kept: int = 2
    epoch: str | None = EPOCH
    is_away: bool = False
    #: Shards whose captures or snapshots get no answer, as of one node of a cluster.
    away_captures: set[Shard] = field(default_factory=set)
    away_snapshots: set[Shard] = field(default_factory=set)
    #: Of the unique-key topic, up to which the next rounds have taken announcements.
    offsets: dict[str, int] = field(default_factory=dict)
    rounds: dict[Shard, list[CapturedRound]] = field(default_factory=dict)
    pending: dict[Shard, list[tuple[bytes, int]]] = field(default_factory=dict)

    def run(
        self,
        of: Shard,
        *,
        announced: Sequence[bytes] = (),
        consumed: Sequence[bytes] = (),
        left: Sequence[bytes] = (),
    ) -> RoundDone:
        """One round; returns what the service tells of it."""
        self.clock.advance(1)
        before = [r for r in self.rounds.get(of, []) if r.epoch == self.epoch]
        done = CapturedRound(
            shard=of,
            epoch=self.epoch or "",
            generation=(before[-1].generation if before else 0) + 1,
            at_ms=self.clock.now_ms(),
            announced=announced,
            consumed=consumed,
            left_matched=left,
        )
        self.rounds.setdefault(of, []).append(done)
        return RoundDone(
            shard=of,
            epoch=done.epoch,
            generation=done.generation,
            at_ms=done.at_ms,
            offsets=dict(self.offsets),
            counts=RoundCounts(
                announced=len(announced),
                matched=0,
                pending_before=0,
                pending_added=len(announced),
                pending_matched=len(left),
                pending_after=7,
            ),
        )

    def capture(self, shard: Shard, *, after: RoundMark | None) -> Capture:
        if self.is_away or shard in self.away_captures:
            raise RedisAway("connection refused")
        ran = [r for r in self.rounds.get(shard, []) if r.epoch == self.epoch]
        generation = ran[-1].generation if ran else 0
        new_memory = after is not None and after.epoch != self.epoch
        newer_than = after.generation if after is not None and not new_memory else 0
        new = [r for r in ran if r.generation > newer_than]
        readable = new[-self.kept :] if self.kept else []
        lost = new[: len(new) - len(readable)]
        return Capture(
            shard=shard,
            epoch=self.epoch,
            generation=generation,
            now_ms=self.clock.now_ms(),
            rounds=readable,
            missed=(lost[0].generation, lost[-1].generation) if lost else None,
            new_memory=new_memory,
        )

    def snapshot(self, shard: Shard) -> PendingSnapshot:
        if self.is_away or shard in self.away_snapshots:
            raise RedisAway("connection refused")
        ran = [r for r in self.rounds.get(shard, []) if r.epoch == self.epoch]
        members = self.pending.get(shard, [])
        return PendingSnapshot(
            shard=shard,
            epoch=self.epoch,
            generation=ran[-1].generation if ran else 0,
            at_ms=self.clock.now_ms(),
            pages=iter([members[n : n + 2] for n in range(0, len(members), 2)]),
        )


class House:
    """One writer of a history; make another one with the same folder for a restart or a second daemon."""

    def __init__(
        self,
        folder: Path,
        *,
        rounds: ScriptedRounds | None = None,
        clock: ManualClock | None = None,
        shards: int = 2,
        spool_bytes_max: int = 64 * MEBIBYTE,
        event_rows_max: int = 1_000,
        keep_days: int = 30,
        writer: str = "writer-1",
        sealer: type[Sealer] = Sealer,
        store: type[HistoryStore] = HistoryStore,
        last_stored: Callable[[Shard], RoundDone | None] = lambda _: None,
        floors: Floors = no_floors,
    ) -> None:
        self.clock = clock or (rounds.clock if rounds is not None else ManualClock(START_MS))
        self.rounds = rounds or ScriptedRounds(self.clock)
        self.root = folder / "history"
        self.spool_folder = folder / "spool"
        self.counters = Counters()
        self.sink = HistorySink(clock=self.clock, rows_max=event_rows_max)
        self.store = store(self.root, ENVIRONMENT)
        self.chain = ManifestChain(self.root, ENVIRONMENT, writer=writer, clock=self.clock)
        self.maintenance = HistoryMaintenance(
            self.store,
            self.chain,
            rules=MaintenanceRules(seal_seconds=300, compact_files=8, keep_days=keep_days),
            spool_folder=self.spool_folder,
            counters=self.counters,
            clock=self.clock,
            sealer=sealer(self.store, self.chain, clock=self.clock),
        )
        names = [shard(n) for n in range(shards)]
        self.recorder = HistoryRecorder(
            shards=names,
            port=self.rounds,
            sink=self.sink,
            place=SpoolPlace(folder=self.spool_folder, writer=writer, size_bytes_max=spool_bytes_max),
            read_positions=PositionsReader(
                self.store,
                self.chain,
                spool=self.spool_folder,
                shards=names,
                maintenance=self.maintenance,
                last_stored=last_stored,
            ),
            counters=self.counters,
            clock=self.clock,
            floors=floors,
        )

    def round(self, number: int = 0, **moved: Sequence[bytes]) -> RoundDone:
        """Runs a round and tells of it, as the service does."""
        done = self.rounds.run(shard(number), **moved)
        self.sink.emit(ShardRoundRan(done=done))
        return done

    def seal(self) -> None:
        """Everything that was told until now lies in Parquet."""
        self.recorder.run_pass()
        self.recorder.rotate()
        self.maintenance.seal_all(self.recorder.spool)

    def dies(self) -> None:
        """kill -9: the locks are free, the files lie as they are."""
        folders = list(self.maintenance._adopted)
        if self.recorder.spool is not None:
            folders.append(self.recorder.spool._folder)
        for folder in folders:
            folder.leave()

    def rows(self, stream: str) -> list[dict[str, Any]]:
        """What a reader who knows nothing of this process sees of one stream."""
        return rows_of_history(self.root, stream)

    def keys(self, stream: str) -> list[bytes]:
        """Sorted keys of a stream."""
        return sorted(row["key"] for row in self.rows(stream))


def rows_of_history(root: Path, stream: str) -> list[dict[str, Any]]:
    return [row for row in _each(root) if row.pop("stream_") == stream]


def _each(root: Path) -> Iterator[dict[str, Any]]:
    clock = ManualClock()
    chain = ManifestChain(root, ENVIRONMENT, writer="reader", clock=clock)
    chain.refresh()
    assert chain.problems == []
    store = HistoryStore(root, ENVIRONMENT)
    for _, file in sorted(chain.files().items()):
        for row in store.read(file).to_pylist():
            yield {**row, "stream_": file.stream}
