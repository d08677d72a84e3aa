"""Reads a history that other processes may write: the rows of one key, and an overview. Writes nothing.

Raises OSError.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from reconciler.clock import SystemClock
from reconciler.contract.history_row import GAP, HISTORY_STREAMS, ROUND, SNAPSHOT, SnapshotKind, prefix_of
from reconciler.contract.manifest import HistoryFile, manifest_folder
from reconciler.contract.schema import Table
from reconciler.contract.subscription import Subscription
from reconciler.errors import MalformedInput
from reconciler.history.chain import ManifestChain
from reconciler.history.chain_head import missing_entry
from reconciler.history.store import HistoryStore
from reconciler.history.tables import first_of_each, schema_of

_OF_ROUND = ("generation", "shard", "consumer_group", "topic", "epoch")


@dataclass(frozen=True, slots=True)
class KeyRows:
    """Rows of one key in a history."""

    #: Pairs (stream, row), sorted by time. Each row appears once.
    rows: tuple[tuple[str, Mapping[str, Any]], ...]
    #: Reasons why the answer may be incomplete, one line per reason.
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionHistory:
    """Reach of the history of one subscription."""

    subscription: Subscription
    #: Number of rounds that were captured on the newest days.
    rounds: int
    #: Redis TIME until which the rounds of every shard that ran were captured. None: there is no round.
    captured_until_ms: int | None
    #: Shard -> Redis TIME of the newest captured round, or of a rest after that round.
    captured_ms: Mapping[int, int]
    #: Number of gap rows that concern the subscription.
    gaps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryOverview:
    """Size and reach of a history."""

    entries: int
    files: int
    rows: int
    size_bytes: int
    #: Number of bytes in the spool that wait to be sealed.
    spool_bytes: int
    subscriptions: tuple[SubscriptionHistory, ...]
    problems: tuple[str, ...]
    #: When a file of the spool was last written, by its file system's clock. None: the spool has no file.
    spool_written_ms: int | None = None


class HistoryReader:
    """Reader of one environment of one history."""

    def __init__(self, root: Path, environment: str) -> None:
        self._root = root
        self._environment = environment
        self._store = HistoryStore(root, environment)
        self._chain = ManifestChain(root, environment, writer="reader", clock=SystemClock())

    def rows_of(self, member: bytes) -> KeyRows:
        """Reads every row of the key. Only files of the key's prefix are read."""
        if not self._refresh():
            return KeyRows((), (f"nothing was written to {self._root} yet",))
        prefix, problems = prefix_of(member), list(self._chain.problems)
        found: dict[tuple[Any, ...], tuple[str, Mapping[str, Any]]] = {}
        for file in self._files(s.name for s in HISTORY_STREAMS if s.has_key):
            if file.prefix != prefix:
                continue
            table = self._read(file, problems)
            if table is not None:
                for row in table.filter(pc.equal(table["key"], member)).to_pylist():
                    found[file.stream, *row.values()] = (file.stream, row)
        rows = sorted(found.values(), key=lambda pair: (pair[1]["at_ms"], pair[0]))
        return KeyRows(tuple(rows), tuple(problems))

    def overview(self, subscriptions: Iterable[Subscription], *, spool: Path, days: int = 2) -> HistoryOverview:
        """Counts files and rows, and finds until when rounds were captured.

        For the rounds, the newest `days` with rounds are read.
        """
        self._refresh()
        files, problems = list(self._chain.files().values()), list(self._chain.problems)
        if (lost := missing_entry(spool, self._root, self._environment)) is not None:
            problems.append(lost)
        rounds = self._newest_by_round(ROUND, days, problems)
        rests = self._newest_by_round(SNAPSHOT, days, problems, kind=SnapshotKind.AT_REST)
        gaps = [row for f in self._files([GAP.name]) for row in _listed(self._read(f, problems))]
        spooled = [found for path in spool.glob("*/*") if (found := _stat(path)) is not None]
        return HistoryOverview(
            entries=self._chain.sequence,
            files=len(files),
            rows=sum(f.rows for f in files),
            size_bytes=sum(f.size_bytes for f in files),
            spool_bytes=sum(found.st_size for found in spooled),
            spool_written_ms=max((found.st_mtime_ns // 1_000_000 for found in spooled), default=None),
            subscriptions=tuple(_subscription(s, rounds, rests, gaps) for s in subscriptions),
            problems=tuple(problems),
        )

    def verify(self) -> list[str]:
        """Compares every entry and file of the manifest with the recorded digest.

        Returns faults, one line per fault.
        """
        if not self._refresh():
            return [f"{self._root} has no manifest of environment {self._environment}"]
        problems = list(self._chain.problems)
        for file in self._files(s.name for s in HISTORY_STREAMS):
            self._read(file, problems)
        return problems

    def _refresh(self) -> bool:
        if not (self._root / manifest_folder(self._environment)).is_dir():
            return False
        self._chain.refresh()
        return self._chain.sequence > 0

    def _files(self, streams: Iterable[str]) -> list[HistoryFile]:
        wanted = set(streams)
        return sorted((f for f in self._chain.files().values() if f.stream in wanted), key=lambda f: f.path)

    def _read(self, file: HistoryFile, problems: list[str]) -> pa.Table | None:
        """Reads a file.

        Returns None and adds a problem if the file was altered, or is missing although the manifest names the file.
        """
        try:
            return self._store.read(file)
        except FileNotFoundError:
            self._chain.refresh()  # a compaction may have removed the file meanwhile
            if file.path in self._chain.files():
                problems.append(f"{file.path}: the manifest names it and it is not there")
            else:
                problems.append(f"{file.path}: merged or retired while it was looked for; ask again")
        except MalformedInput as error:
            problems.append(str(error))
        return None

    def _newest_by_round(
        self, stream: Table, days: int, problems: list[str], *, kind: SnapshotKind | None = None
    ) -> pa.Table:
        """Finds the newest row of each round on the newest `days` with rows.

        `kind` limits the rows to snapshots of this kind.
        """
        files = sorted(self._files([stream.name]), key=lambda f: f.date, reverse=True)
        newest = schema_of(stream.name).empty_table()
        for number, (_, of_day) in enumerate(groupby(files, key=lambda f: f.date)):
            if number >= days:
                break
            tables = [table for file in of_day if (table := self._read(file, problems)) is not None]
            rows = pa.concat_tables([newest, *tables])
            rows = rows if kind is None else rows.filter(pc.equal(rows["kind"], str(kind)))
            newest = first_of_each(rows, _OF_ROUND, then=[("at_ms", "descending")])
        return newest


def _subscription(
    s: Subscription, rounds: pa.Table, rests: pa.Table, gaps: Iterable[Mapping[str, Any]]
) -> SubscriptionHistory:
    mine, rested = (
        rows.filter(pc.and_(pc.equal(rows["topic"], s.topic), pc.equal(rows["consumer_group"], s.group)))
        for rows in (rounds, rests)
    )
    newest = first_of_each(mine, ["shard"], then=[("at_ms", "descending")])
    rested_ms = {(row["shard"], row["epoch"], row["generation"]): row["at_ms"] for row in rested.to_pylist()}
    captured_ms = {
        row["shard"]: max(row["at_ms"], rested_ms.get((row["shard"], row["epoch"], row["generation"]), 0))
        for row in newest.to_pylist()
    }
    return SubscriptionHistory(
        subscription=s,
        rounds=len(mine),
        captured_until_ms=min(captured_ms.values(), default=None),
        captured_ms=captured_ms,
        gaps=sum(gap["topic"] in (s.topic, "*") and gap["consumer_group"] in (s.group, "*") for gap in gaps),
    )


def _listed(table: pa.Table | None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [] if table is None else table.to_pylist()
    return rows


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None
