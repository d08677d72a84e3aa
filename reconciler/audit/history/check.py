"""Checks a history for a window: the chain, the files, and the rounds. The rounds must have no hole.

chain.py reads the manifest. evidence/folder.py plans the files that this module lists.

A round that the history lacks is a gap. Either a `gap` row names the round, or two generations of a shard have a hole
between them. The time before a subscription's first round and after its last round is a gap, too. Rounds that were lost
with Redis' memory are no gap if a `reread` row says that rounds of the new memory have taken the lost rounds' keys. For
a shard at rest, rows of the stream `snapshot` say until when no round ran after the last captured round. A window with
a gap has no answer. Rounds later than a day after the window's close are ignored, so that a growing history changes no
old answer. A row that is still missing a day after the close never comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs as arrow_fs

from reconciler.audit.history.chain import HistoryChain, read_chain
from reconciler.audit.history.rounds import CapturedRounds, RoundsByShard, ShardKey
from reconciler.audit.history.table import no_rows, read_stream_file
from reconciler.audit.places import open_folder
from reconciler.audit.result.sentences import sentence
from reconciler.audit.result.values import AuditedSubscription, HistoryGap
from reconciler.contract.history_row import GAP, REREAD, ROUND, SNAPSHOT
from reconciler.contract.manifest import HistoryFile
from reconciler.contract.schema import Table

DAY_MS = 86_400_000
#: Largest number of times that the chain is read while compactions remove files.
CHAIN_READINGS_MAX = 5
#: Largest number of absent files that are listed one by one.
ABSENT_NAMED_MAX = 20
#: Names in gap rows that mean all topics or all groups.
_ALL = frozenset({"", "*"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryState:
    """State of a history for one window."""

    environment: str
    #: Number and SHA-256 of the newest manifest entry.
    sequence: int
    digest: str
    #: YYYY-MM-DD: rows before this UTC day were retired on purpose.
    kept_from: str | None
    #: Number of the last entry that an older audit has verified. 0: all entries were read.
    read_from: int
    #: Current files by stream and prefix, sorted by path. The prefix is None for streams without a key.
    files: Mapping[str, Mapping[int | None, tuple[HistoryFile, ...]]]
    #: (topic, group) -> time until which the rounds of every shard have no hole. None: a shard has no round.
    watermarks: Mapping[tuple[str, str], int | None]
    #: Gaps between the window's start and its end + late_after_seconds. They are the reason "gap".
    gaps: tuple[HistoryGap, ...]
    #: Altered, missing, doubled or unknown parts of the history. They are the reason "inputs".
    problems: tuple[str, ...]
    #: Rounds of the same time that were lost with Redis' memory. Their announcements were read again, so these rounds
    #: are no gaps.
    reread: tuple[HistoryGap, ...]
    #: Number of captured rounds that were read. A doubled round counts once.
    rounds: int
    #: Topics and groups that had rounds in the window and are outside of the audit, sorted.
    others: tuple[tuple[str, str], ...]
    #: Paths of the files that were read. A file has the digest that the manifest names, or `problems` lists the file.
    read: frozenset[str]

    def of(self, stream: str, prefix: int | None = None) -> tuple[HistoryFile, ...]:
        """Lists the files of a stream and prefix."""
        return self.files.get(stream, {}).get(prefix, ())

    @property
    def paths(self) -> frozenset[str]:
        """Paths of all files.

        If a later reading lacks a path, the file was merged into another file, or has grown too old.
        """
        return frozenset(file.path for by in self.files.values() for of in by.values() for file in of)


def check_history(
    path: str | Path,
    environment: str,
    subscriptions: Sequence[AuditedSubscription],
    shards: int,
    window_ms: tuple[int, int],
    *,
    asked_at_ms: int,
    ledger_rounds: pa.Table | None = None,
    after: HistoryChain | None = None,
) -> HistoryState:
    """Reads manifest, rounds and gap rows. A bad history raises no error.

    `window_ms`: start and end of the window. `asked_at_ms`: time at which the evidence was collected.
    `ledger_rounds`: rows of contract/evidence_layout.py LEDGER_ROUND_EVIDENCE.
    `after`: chain that an older audit has verified. With `after`, only later entries and the window's own files are
    read.
    """
    start_ms, end_ms = window_ms
    closes_ms = {(s.topic, s.group): end_ms + round(s.late_after_seconds * 1000) for s in subscriptions}
    horizon_ms = max(closes_ms.values(), default=end_ms) + DAY_MS
    try:
        filesystem, base = open_folder(str(path))
        chain = _settled_chain(filesystem, base, environment, after, (start_ms - DAY_MS, horizon_ms))
    except (OSError, ValueError, pa.ArrowException) as error:
        return without_history(environment, subscriptions, f"history {path}: cannot be read: {error}")
    problems = list(chain.problems)
    rounds = CapturedRounds(subscriptions=frozenset(closes_ms), start_ms=start_ms, end_ms=end_ms, horizon_ms=horizon_ms)
    files = [file for file in chain.files.values() if file.first_ms <= horizon_ms]
    read: set[str] = set()
    for file in sorted((f for f in files if f.stream == ROUND.name), key=lambda f: (-f.last_ms, f.path)):
        if file.last_ms < start_ms and rounds.need_nothing_before(file.last_ms, shards):
            break
        rounds.add(_table(filesystem, base, file, ROUND, read, problems))
    for file in (f for f in files if f.stream == SNAPSHOT.name and f.last_ms >= start_ms):
        rounds.add_rests(_table(filesystem, base, file, SNAPSHOT, read, problems))
    found = rounds.finish()
    gaps = list(_holes(found, closes_ms, shards, chain, start_ms))
    if horizon_ms < max([asked_at_ms, *(file.last_ms for file in chain.files.values() if file.stream == ROUND.name)]):
        gaps += _endings(found, closes_ms, shards, start_ms, horizon_ms)
    declared, lost = (_rows(filesystem, base, files, stream, read, problems) for stream in (GAP, REREAD))
    gaps += _declared(declared, closes_ms, found)
    gaps += _before_declared(declared, closes_ms, found, start_ms)
    gaps += () if ledger_rounds is None else found.missing(ledger_rounds)
    reread = {_reread(row) for row in lost if (row["topic"], row["consumer_group"]) in closes_ms}
    gaps = sorted({gap for gap in gaps if not any(_is_made_good(gap, by) for by in reread)}, key=_gap_order)
    touching, made_good = (
        [gap for gap in of if gap.to_ms >= start_ms and gap.from_ms <= closes_ms[gap.topic, gap.group]]
        for of in (gaps, sorted(reread, key=_gap_order))
    )
    return HistoryState(
        environment=environment,
        sequence=chain.sequence,
        digest=chain.digest,
        kept_from=chain.kept_from,
        read_from=chain.read_from,
        files=_by_stream(chain.files.values()),
        watermarks={key: found.watermark(key, shards, start_ms) for key in closes_ms},
        gaps=tuple(touching),
        problems=tuple(problems),
        reread=tuple(made_good),
        rounds=found.count,
        others=tuple(sorted(rounds.others)),
        read=frozenset(read),
    )


def _settled_chain(
    filesystem: arrow_fs.FileSystem,
    base: str,
    environment: str,
    after: HistoryChain | None,
    between_ms: tuple[int, int],
) -> HistoryChain:
    """Reads the chain, and repeats the reading while compactions of the daemon remove files. Absent files are problems.

    `between_ms` limits the search for absent files in a history that an older audit has verified. Only files with rows
    of this time are looked for.
    """
    chain = read_chain(filesystem, base, environment, after)
    for _ in range(CHAIN_READINGS_MAX):
        absent = _absent(filesystem, base, chain, None if after is None else between_ms)
        if not absent:
            return chain
        again = read_chain(filesystem, base, environment, after)
        if again.sequence == chain.sequence:
            break
        chain = again
    lines = [f"history file {path}: the manifest lists it, but it is not there" for path in absent[:ABSENT_NAMED_MAX]]
    if len(absent) > ABSENT_NAMED_MAX:
        lines.append(f"history: {len(absent) - ABSENT_NAMED_MAX} more files that the manifest lists are not there")
    return replace(chain, problems=(*chain.problems, *lines))


def _absent(
    filesystem: arrow_fs.FileSystem, base: str, chain: HistoryChain, between_ms: tuple[int, int] | None
) -> list[str]:
    paths = sorted(
        path
        for path, file in chain.files.items()
        if between_ms is None or (file.last_ms >= between_ms[0] and file.first_ms <= between_ms[1])
    )
    found = filesystem.get_file_info([f"{base}/{path}" for path in paths])
    is_file = (info.type == arrow_fs.FileType.File for info in found)
    return [path for path, there in zip(paths, is_file, strict=True) if not there]


def _holes(
    found: RoundsByShard,
    closes_ms: Mapping[tuple[str, str], int],
    shards: int,
    chain: HistoryChain,
    start_ms: int,
) -> Iterable[HistoryGap]:
    """Finds generations that no file holds, and a history that begins after the window's start."""
    kept_from_ms = _day_start_ms(chain.kept_from)
    for topic, group in closes_ms:
        heads = [head for shard in range(shards) if (head := found.head((topic, group, shard))) is not None]
        first = min(heads, key=lambda head: head.at_ms, default=None)
        if first is not None and first.generation == 1 and first.at_ms > start_ms:
            # One shard's first round may come later. If this round has generation 1, no round came before.
            why = sentence("first-round")
            yield _gap((topic, group, -1), start_ms, first.at_ms, None, why)
        if kept_from_ms is not None and kept_from_ms > start_ms:
            why = sentence("retired", day=chain.kept_from)
            yield _gap((topic, group, -1), start_ms, kept_from_ms, None, why)
        for shard in range(shards):
            key: ShardKey = (topic, group, shard)
            head = found.head(key)
            seen_ms = found.head_seen_ms(key)
            if (
                head is not None
                and seen_ms is not None
                and head.generation > 1
                and seen_ms >= start_ms
                and not _explains(kept_from_ms, seen_ms, start_ms, found.longest_ms(key))
            ):
                why = sentence("begins-later", generation=head.generation, epoch=head.epoch)
                yield _gap(key, start_ms, head.at_ms, None, why)
            for hole in found.holes(key):
                generations = {"first": hole.first_generation, "last": hole.last_generation}
                why = sentence("missing", **generations, epoch=hole.epoch)
                yield _gap(key, hole.from_ms, hole.to_ms, None, why)


def _explains(kept_from_ms: int | None, head_ms: int, start_ms: int, longest_ms: int) -> bool:
    """True if retired days explain that a shard's rounds begin late. Then the retired days end where the rounds begin.

    If a window starts with the first kept day, its rounds may begin a moment later. Any other window needs an earlier
    round. `longest_ms` is the longest time between two rounds of the shard.
    """
    return kept_from_ms is not None and start_ms - longest_ms <= kept_from_ms and head_ms - kept_from_ms <= longest_ms


def _endings(
    found: RoundsByShard, closes_ms: Mapping[tuple[str, str], int], shards: int, start_ms: int, horizon_ms: int
) -> Iterable[HistoryGap]:
    """Finds shards without a round from the close until the horizon.

    The horizon is past, so no such round will come.
    """
    for (topic, group), close_ms in closes_ms.items():
        newest = {shard: found.newest_ms((topic, group, shard), until_ms=horizon_ms) for shard in range(shards)}
        ended = {shard: at_ms for shard, at_ms in newest.items() if at_ms is None or at_ms < close_ms}
        if len(ended) == shards:  # the group has left, which becomes one line
            known = [at_ms for at_ms in ended.values() if at_ms is not None]
            ended = {-1: min(known) if len(known) == shards else None}
        for shard, at_ms in ended.items():
            why = sentence("no-round" if at_ms is None else "no-later-round")
            yield _gap((topic, group, shard), start_ms if at_ms is None else at_ms, close_ms, None, why)


def _declared(
    declared: Iterable[Mapping[str, Any]], closes_ms: Mapping[tuple[str, str], int], found: RoundsByShard
) -> Iterable[HistoryGap]:
    """Yields the gaps that writers declared, except gaps whose rounds another writer has captured."""
    for row in declared:
        generations = (row["first_generation"], row["last_generation"])
        for topic, group in closes_ms:
            if row["stream"] == ROUND.name and found.has_all(
                (topic, group, row["shard"]), row["epoch"], generations, since_ms=row["from_ms"]
            ):
                continue
            if row["topic"] in {topic, *_ALL} and row["consumer_group"] in {group, *_ALL}:
                yield HistoryGap(
                    topic=topic,
                    group=group,
                    shard=row["shard"],
                    from_ms=row["from_ms"],
                    to_ms=row["at_ms"],
                    stream=row["stream"],
                    rows=row["rows"],
                    why=row["reason"],
                )


def _before_declared(
    declared: Sequence[Mapping[str, Any]], closes_ms: Mapping[tuple[str, str], int], found: RoundsByShard, start_ms: int
) -> Iterable[HistoryGap]:
    """Yields gaps that come before a declared gap and were not declared.

    A declared gap proves that earlier rounds ran.
    """
    for row in declared:
        key: ShardKey = (row["topic"], row["consumer_group"], row["shard"])
        before = (row["first_generation"] or 1) - 1
        if key[:2] not in closes_ms or row["stream"] != ROUND.name or not before or row["from_ms"] <= start_ms:
            continue
        if found.knows_of(key, row["epoch"], before) or any(_covers(other, row, before) for other in declared):
            continue
        newest_ms = found.newest_ms(key, until_ms=row["from_ms"])
        why = sentence("missing-before", last=before, epoch=row["epoch"])
        yield _gap(key, start_ms if newest_ms is None else newest_ms, row["at_ms"], None, why)


def _reread(row: Mapping[str, Any]) -> HistoryGap:
    first, last = row["first_generation"], row["last_generation"]
    return HistoryGap(
        topic=row["topic"],
        group=row["consumer_group"],
        shard=row["shard"],
        from_ms=row["from_ms"],
        to_ms=row["at_ms"],
        stream=ROUND.name,
        rows=last - first + 1,
        why=f"generations {first} to {last} of epoch {row['epoch']} went with Redis' memory",
    )


def _is_made_good(gap: HistoryGap, by: HistoryGap) -> bool:
    """True if the gap lies within `by`.

    Then rounds of the new memory have taken every key that was open at that time.
    """
    same = (gap.topic, gap.group, gap.shard, gap.stream) == (by.topic, by.group, by.shard, by.stream)
    return same and by.from_ms <= gap.from_ms and gap.to_ms <= by.to_ms


def _rows(
    filesystem: arrow_fs.FileSystem,
    base: str,
    files: Iterable[HistoryFile],
    stream: Table,
    read: set[str],
    problems: list[str],
) -> list[dict[str, Any]]:
    """Reads all rows of the stream and notes which files were read."""
    rows: list[dict[str, Any]] = []
    for file in sorted((f for f in files if f.stream == stream.name), key=lambda f: f.path):
        rows += _table(filesystem, base, file, stream, read, problems).to_pylist()
    return rows


def _table(
    filesystem: arrow_fs.FileSystem, base: str, file: HistoryFile, stream: Table, read: set[str], problems: list[str]
) -> pa.Table:
    """Reads a file of the stream. Returns no rows and adds to `problems` if the file cannot be trusted."""
    read.add(file.path)
    table = read_stream_file(filesystem, base, file, stream, problems)
    return no_rows(stream) if table is None else table


def _covers(other: Mapping[str, Any], row: Mapping[str, Any], generation: int) -> bool:
    same = all(other[name] == row[name] for name in ("topic", "consumer_group", "shard", "epoch", "stream"))
    return same and (other["first_generation"] or 0) <= generation <= (other["last_generation"] or 0)


def _gap(key: ShardKey, from_ms: int, to_ms: int, rows: int | None, why: str) -> HistoryGap:
    topic, group, shard = key
    return HistoryGap(
        topic=topic, group=group, shard=shard, from_ms=from_ms, to_ms=to_ms, stream=ROUND.name, rows=rows, why=why
    )


def _gap_order(gap: HistoryGap) -> tuple[str, str, int, int, int, str, str]:
    return (gap.topic, gap.group, gap.from_ms, gap.to_ms, gap.shard, gap.stream, gap.why)


def _by_stream(files: Iterable[HistoryFile]) -> dict[str, dict[int | None, tuple[HistoryFile, ...]]]:
    found: dict[str, dict[int | None, list[HistoryFile]]] = {}
    for file in sorted(files, key=lambda f: f.path):
        found.setdefault(file.stream, {}).setdefault(file.prefix, []).append(file)
    return {stream: {prefix: tuple(of) for prefix, of in by.items()} for stream, by in found.items()}


def _day_start_ms(day: str | None) -> int | None:
    if day is None:
        return None
    return round(datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC).timestamp() * 1000)


def without_history(environment: str, subscriptions: Sequence[AuditedSubscription], *problems: str) -> HistoryState:
    """Makes the state for an audit without a readable history. It has no rounds, no announcements and no gaps."""
    return HistoryState(
        environment=environment,
        sequence=0,
        digest="",
        kept_from=None,
        read_from=0,
        files={},
        watermarks={(s.topic, s.group): None for s in subscriptions},
        gaps=(),
        problems=problems,
        reread=(),
        rounds=0,
        others=(),
        read=frozenset(),
    )
