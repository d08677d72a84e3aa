"""Asks by key for the rows that the ranges have not shown. One task asks for some prefixes.

A key of the window may take effect long after the window, and an effect in the window may belong to a message that was
committed long before. So inboxes are asked for every key of the window that has no inbox row. Then outboxes are asked
for every key that has no outbox row. Look-ups come after the ranges, so they find every row that existed when the
ranges were read.

Look-ups count business effects, too. A key's rows may come from several pages and tables. Only the look-ups know which
keys other evidence places in the window. A key in two inboxes of a group is a double effect. Look-ups write such a key
as a double effect, because the rows of one inbox cannot show it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reconciler.audit.collect.columns import schema_of
from reconciler.audit.collect.database import reading
from reconciler.audit.collect.deleted import Lacking
from reconciler.audit.collect.files import reading_files
from reconciler.audit.collect.selection import Selection, key_reader
from reconciler.audit.collect.sources import Source
from reconciler.audit.collect.writer import PrefixWriter, WrittenFile
from reconciler.audit.errors import AuditError
from reconciler.audit.history.table import bytes_of, stream_table
from reconciler.audit.places import open_folder
from reconciler.contract.evidence_layout import EFFECTS_EVIDENCE, INBOX_EVIDENCE, OUTBOX_EVIDENCE, REPAIR_EVIDENCE
from reconciler.contract.history_row import ANNOUNCED, CONSUMED, REPAIR
from reconciler.contract.manifest import HistoryFile
from reconciler.contract.schema import Table
from reconciler.contract.tables import OutboxState

#: Number of keys per statement. The number bounds the length of a statement and the rows of its result.
KEYS_A_STATEMENT = 500
#: First part of the name of a file that look-ups write. The first prefix of the look-ups follows.
PART = "by-key"

#: Largest number of rows of small files that a task keeps in memory. They take about 80 MB.
KEPT_ROWS_MAX = 524_288
#: Columns that look-ups read.
_KINDS = {
    "key": pa.binary(),
    "topic": pa.string(),
    "consumer_group": pa.string(),
    "created_at_ms": pa.int64(),
    "effects": pa.int64(),
    "state": pa.string(),
    "tag": pa.string(),
}
_NO_EFFECTS = pa.table({"key": pa.array([], pa.binary()), "effects": pa.array([], pa.int64())})


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxPlace:
    """One database, or one export, with a group's inbox rows of one topic."""

    topic: str
    group: str
    source: Source
    selection: Selection
    #: Name of the files that the ranges of this place wrote. The number of a file follows the name.
    part: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxPlace:
    """One database with a producer group's outbox rows."""

    topics: tuple[str, ...]
    source: Source
    selection: Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectsPlace:
    """Business effects of one group that an earlier task has written, one row per effect."""

    topic: str
    group: str
    #: True: the query read effects of the window only. False: the query read effects of all times. Then a key counts
    #: only if other evidence places the key in the window, because the outbox and inbox rows may have been deleted
    #: years ago.
    is_dated: bool


@dataclass(slots=True)
class KeptFiles:
    """Cache of the tables that were read first. The tables have at most KEPT_ROWS_MAX rows together."""

    tables: dict[str, pa.Table] = field(default_factory=dict)
    rows: int = 0

    def of(self, file: str, read: Callable[[], pa.Table]) -> pa.Table:
        """Reads a file and keeps the table, if there is room. Opening a file costs as much as reading 10 000 rows."""
        table = self.tables.get(file)
        if table is None:
            table = read()
            if self.rows + table.num_rows <= KEPT_ROWS_MAX:
                self.tables[file] = table
                self.rows += table.num_rows
        return table


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixLookups:
    """Look-ups of the keys of some prefixes."""

    folder: str
    prefixes: tuple[int, ...]
    window_ms: tuple[int, int]
    topics: tuple[str, ...]
    inboxes: tuple[InboxPlace, ...]
    outboxes: tuple[OutboxPlace, ...]
    effects: tuple[EffectsPlace, ...]
    #: Rows may count in this window if they were written after the first of these times or announced before the second.
    may_count_ms: tuple[int, int]
    #: Folder of the history. None: no history.
    history: str | None
    #: `announced` files of these prefixes, with rows from the window's start until the second time of `may_count_ms`.
    announced: tuple[HistoryFile, ...]
    #: `announced` files of the day before the window.
    announced_before: tuple[HistoryFile, ...]
    #: `consumed` files with rows of the time in which keys of the window may be consumed.
    consumed: tuple[HistoryFile, ...]
    #: `repair` files with rows from the window's start on, if a ledger was given. Each repair has a row in the ledger.
    repaired: tuple[HistoryFile, ...]
    #: Topics whose outboxes were all given. Each committed key of these topics must have a row.
    whole_outboxes: tuple[str, ...]
    #: Topic, group and tags (None: all) of each given inbox. Each consumed key must have a row in the inbox.
    given_inboxes: tuple[tuple[str, str, tuple[str, ...] | None], ...]
    #: Path of each file that the ranges wrote -> row groups of these prefixes in the file.
    ranges: Mapping[str, tuple[int, ...]]
    #: Cache of tables, because several questions of these look-ups read the same file.
    read: KeptFiles = field(default_factory=KeptFiles, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpResult:
    """Result of the look-ups of some prefixes."""

    files: tuple[WrittenFile, ...]
    #: (topic, group) -> number of keys whose effects were left out, because no evidence places the keys in the window.
    undated: Mapping[tuple[str, str], int]
    #: Table in which keys must have had a row and have none -> earliest time of such a key.
    lacking: Mapping[Lacking, int]


@dataclass(frozen=True, slots=True)
class _TopicKeys:
    """Keys of one topic in the prefixes of a task."""

    outbox: pa.ChunkedArray
    #: Commits of the window, with the columns key and created_at_ms.
    commits: pa.Table
    #: Announcements of the window, with the columns key and at_ms.
    announced: pa.Table
    #: Keys that may count in the window. They were written or announced in or around the window, or the ledger knows
    #: them.
    of_window: pa.ChunkedArray


def look_up(lookups: PrefixLookups) -> LookUpResult:
    """Writes the rows found, and one row of effects per key. Raises AuditError."""
    lookups = replace(lookups, read=KeptFiles())  # a new cache, which ends with this task, because tasks wait in a list
    folder, part = Path(lookups.folder), f"{PART}-{lookups.prefixes[0]:02d}"
    seen = {topic: _seen(lookups, topic) for topic in lookups.topics}
    dated = {
        (e.topic, e.group): keys_of_ranges(lookups, "effects", e.topic, e.group) for e in lookups.effects if e.is_dated
    }
    written: list[WrittenFile] = []
    of_inboxes: dict[tuple[str, str], pa.Table] = {}
    if lookups.inboxes:
        with PrefixWriter(folder, lookups.inboxes[0].selection.layout, part) as writer:
            for place in dict.fromkeys((inbox.topic, inbox.group) for inbox in lookups.inboxes):
                wanted = [seen[place[0]].of_window, *(keys for of, keys in dated.items() if of == place)]
                of_inboxes[place] = _ask_inboxes(lookups, place, wanted, writer.add)
            written += writer.close()
    undated: dict[tuple[str, str], int] = {}
    if lookups.effects or any(doubled.num_rows for doubled in of_inboxes.values()):
        with PrefixWriter(folder, EFFECTS_EVIDENCE, part) as writer:
            counted = {(e.topic, e.group): e for e in lookups.effects}
            for place in {**counted, **of_inboxes}:
                rows = of_inboxes.get(place, _NO_EFFECTS)
                if place in counted:
                    rows, undated[place] = _count_effects(lookups, counted[place], seen[place[0]], rows)
                _add_effects(place, rows, writer.add)
            written += writer.close()
    if lookups.outboxes:
        with PrefixWriter(folder, lookups.outboxes[0].selection.layout, part) as writer:
            for outbox in lookups.outboxes:
                for topic in outbox.topics:
                    wanted = [seen[topic].of_window, keys_of_ranges(lookups, "inbox", topic)]
                    wanted += [keys for (of, _), keys in dated.items() if of == topic]
                    _ask(outbox.source, outbox.selection, _without(_joined(wanted), seen[topic].outbox), writer.add)
            written += writer.close()
    lacking = {**_outbox_lacks(lookups, seen, written), **_inbox_lacks(lookups, seen, written)}
    lacking |= _ledger_lacks(lookups, seen)
    return LookUpResult(files=tuple(written), undated=undated, lacking=lacking)


def _ask_inboxes(
    lookups: PrefixLookups,
    place: tuple[str, str],
    wanted: Sequence[pa.ChunkedArray],
    add: Callable[[pa.Table], None],
) -> pa.Table:
    """Asks every inbox of a group for the wanted keys, and for the keys that the group's other inboxes have.

    Returns sorted keys that several inboxes have, and for each key the number of its inboxes.
    """
    places = [inbox for inbox in lookups.inboxes if (inbox.topic, inbox.group) == place]
    there = [keys_of_ranges(lookups, "inbox", *place, part=inbox.part) for inbox in places]
    if len(places) > 1:
        wanted = [*wanted, *there]
    found: list[pa.ChunkedArray] = []
    for inbox, known in zip(places, there, strict=True):
        rows: list[pa.Table] = []
        _ask(inbox.source, inbox.selection, _without(_joined(wanted), known), rows.append)
        for one in rows:
            add(one)
        if len(places) > 1:
            found.append(pa.chunked_array([pc.unique(_joined([known, *(one["key"] for one in rows)]))]))
    if len(places) == 1:
        return _NO_EFFECTS
    keys = _joined(found)
    counted = pa.table({"key": keys}).group_by("key", use_threads=False).aggregate([([], "count_all")])
    counted = counted.rename_columns({"count_all": "effects"}).select(["key", "effects"]).sort_by("key")
    return counted.filter(pc.greater(counted["effects"], 1))


def _count_effects(
    lookups: PrefixLookups, place: EffectsPlace, seen: _TopicKeys, of_inboxes: pa.Table
) -> tuple[pa.Table, int]:
    """Counts the effects of each key, and counts the keys that were left out.

    The result has one row per key, sorted by key.

    The count of a key is at least the number of inboxes that have the key.
    """
    rows = _table(lookups, "effects", place.topic, ["key", "effects"], place.group)
    counted = rows.group_by("key", use_threads=False).aggregate([("effects", "sum")])
    counted = counted.rename_columns({"effects_sum": "effects"}).select(["key", "effects"])
    kept = counted
    if not place.is_dated:
        known = _joined([seen.outbox, seen.of_window, keys_of_ranges(lookups, "inbox", place.topic)])
        kept = counted.filter(pc.is_in(counted["key"], value_set=known))
    both = pa.concat_tables([one.cast(_NO_EFFECTS.schema) for one in (kept, of_inboxes)])
    both = both.group_by("key", use_threads=False).aggregate([("effects", "max")])
    both = both.rename_columns({"effects_max": "effects"}).select(["key", "effects"]).sort_by("key")
    return both, int(counted.num_rows - kept.num_rows)


def _add_effects(place: tuple[str, str], rows: pa.Table, add: Callable[[pa.Table], None]) -> None:
    if rows.num_rows:
        names = (pa.repeat(pa.scalar(name, pa.string()), rows.num_rows) for name in place)
        arrays = [rows["key"], *names, rows["effects"]]
        add(pa.Table.from_arrays(arrays, schema=schema_of(EFFECTS_EVIDENCE)))


def _seen(lookups: PrefixLookups, topic: str) -> _TopicKeys:
    (start_ms, end_ms), (since_ms, closes_ms) = lookups.window_ms, lookups.may_count_ms
    outbox = _table(lookups, "outbox", topic, ["key", "created_at_ms"])
    times = outbox["created_at_ms"]
    written = outbox.filter(pc.and_(pc.greater_equal(times, since_ms), pc.less(times, end_ms)))
    inside = written.filter(pc.greater_equal(written["created_at_ms"], start_ms))
    known = [keys_of_ranges(lookups, table, topic) for table in ("candidate", "repair")]
    announced = _of_history(lookups, lookups.announced, ANNOUNCED, topic)
    at_ms = announced["at_ms"]
    announced = announced.filter(pc.and_(pc.greater_equal(at_ms, start_ms), pc.less(at_ms, closes_ms)))
    of_window = _joined([written["key"], *known, announced["key"]])
    return _TopicKeys(outbox["key"], inside, announced.filter(pc.less(announced["at_ms"], end_ms)), of_window)


def _outbox_lacks(
    lookups: PrefixLookups, seen: Mapping[str, _TopicKeys], written: Sequence[WrittenFile]
) -> dict[Lacking, int]:
    """Finds for each topic the earliest announced key without an outbox row. An announced key was committed."""
    found: dict[Lacking, int] = {}
    for topic in lookups.whole_outboxes:
        there = _joined([seen[topic].outbox, _written(lookups, written, OUTBOX_EVIDENCE.name, topic)])
        times = [_lacking_times(seen[topic].announced, "at_ms", there)]
        acting = _without(keys_of_ranges(lookups, INBOX_EVIDENCE.name, topic), there)
        if len(acting):  # the messages may have been announced on the day before
            before = _of_history(lookups, lookups.announced_before, ANNOUNCED, topic)
            times.append(before.filter(pc.is_in(before["key"], value_set=acting))["at_ms"])
        earliest_ms = min((at_ms for column in times if (at_ms := pc.min(column).as_py()) is not None), default=None)
        if earliest_ms is not None:
            found[OUTBOX_EVIDENCE.name, topic, ""] = earliest_ms
    return found


def _inbox_lacks(
    lookups: PrefixLookups, seen: Mapping[str, _TopicKeys], written: Sequence[WrittenFile]
) -> dict[Lacking, int]:
    """Finds for each group the earliest consumed key of the window that has no inbox row.

    The history names the consumed keys. Without a history, settled outbox rows name the consumed keys.
    """
    found: dict[Lacking, int] = {}
    for topic, group, tags in lookups.given_inboxes:
        there = _joined(
            [
                keys_of_ranges(lookups, INBOX_EVIDENCE.name, topic, group),
                _written(lookups, written, "inbox", topic, group),
            ]
        )
        commits = seen[topic].commits
        commits = commits.filter(pc.invert(pc.is_in(commits["key"], value_set=there)))
        if not commits.num_rows:
            continue
        if lookups.history is None:
            consumed = _settled(lookups, topic, tags)
        else:
            consumed = _of_history(lookups, lookups.consumed, CONSUMED, topic, group)["key"]
        earliest_ms = pc.min(commits.filter(pc.is_in(commits["key"], value_set=consumed))["created_at_ms"]).as_py()
        if earliest_ms is not None:
            found[INBOX_EVIDENCE.name, topic, group] = earliest_ms
    return found


def _ledger_lacks(lookups: PrefixLookups, seen: Mapping[str, _TopicKeys]) -> dict[Lacking, int]:
    """Finds for each topic the earliest commit of the window whose repair is in the history and not in the ledger."""
    found: dict[Lacking, int] = {}
    for topic in lookups.topics if lookups.repaired else ():
        repaired = _of_history(lookups, lookups.repaired, REPAIR, topic)["key"]
        there = keys_of_ranges(lookups, REPAIR_EVIDENCE.name, topic)
        commits = seen[topic].commits
        commits = commits.filter(pc.is_in(commits["key"], value_set=_without(repaired, there)))
        earliest_ms = pc.min(commits["created_at_ms"]).as_py()
        if earliest_ms is not None:
            found[REPAIR_EVIDENCE.name, topic, ""] = earliest_ms
    return found


def _settled(lookups: PrefixLookups, topic: str, tags: tuple[str, ...] | None) -> pa.ChunkedArray:
    """Finds keys whose outbox row is settled.

    Each such key was in the inbox of every group that takes the message's tag.
    """
    rows = _table(lookups, OUTBOX_EVIDENCE.name, topic, ["key", "state", "tag"])
    rows = rows.filter(pc.equal(rows["state"], OutboxState.SETTLED.value))
    if tags is not None:
        rows = rows.filter(pc.is_in(rows["tag"], value_set=pa.array(tags, pa.string())))
    return rows["key"]


def _lacking_times(rows: pa.Table, column: str, there: pa.ChunkedArray) -> pa.ChunkedArray:
    return rows.filter(pc.invert(pc.is_in(rows["key"], value_set=there)))[column]


def _of_history(
    lookups: PrefixLookups,
    files: Sequence[HistoryFile],
    stream: Table,
    topic: str,
    group: str | None = None,
) -> pa.Table:
    """Reads key and at_ms of the history's rows of a topic and, if given, a group.

    Raises AuditError("inputs") for a file that fails a check.
    """
    found = [pa.table({"key": pa.chunked_array([], pa.binary()), "at_ms": pa.chunked_array([], pa.int64())})]
    for file in files:
        table = lookups.read.of(f"history/{file.path}", partial(history_rows, lookups.history or "", file, stream))
        wanted = pc.equal(table["topic"], topic)
        if group is not None:
            wanted = pc.and_(wanted, pc.equal(table["consumer_group"], group))
        found.append(table.filter(wanted).select(["key", "at_ms"]))
    return pa.concat_tables(found)


def history_rows(history: str, file: HistoryFile, stream: Table) -> pa.Table:
    """Reads key, topic, at_ms and, if the stream has it, consumer_group. Raises AuditError("inputs") for a file that
    fails a check."""
    problems: list[str] = []
    with reading_files(f"--history {history}", history):
        data = bytes_of(*open_folder(history), file)
    table = stream_table(data, file, stream, problems)
    if table is None:
        raise AuditError("inputs", "\n".join(problems))
    return table.select([name for name in ("key", "topic", "consumer_group", "at_ms") if name in table.column_names])


def _written(
    lookups: PrefixLookups, written: Sequence[WrittenFile], name: str, topic: str, group: str | None = None
) -> pa.ChunkedArray:
    """Reads keys that these look-ups have found."""
    files = [file.path for file in written if file.path.startswith(f"{name}/")]
    return _rows([_file(lookups.folder, path) for path in files], topic, ["key"], group)["key"]


def keys_of_ranges(
    lookups: PrefixLookups, table: str, topic: str, group: str | None = None, *, part: str = ""
) -> pa.ChunkedArray:
    """Reads keys of one topic and, if given, one group from files of the ranges.

    `part` limits the keys to one place.
    """
    return _table(lookups, table, topic, ["key"], group, part=part)["key"]


def _table(
    lookups: PrefixLookups, name: str, topic: str, columns: Sequence[str], group: str | None = None, *, part: str = ""
) -> pa.Table:
    """Reads rows of one topic and, if given, one group from files of the ranges."""
    files = [path for path in lookups.ranges if path.startswith(f"{name}/")]
    files = [path for path in files if not part or path.removeprefix(f"{name}/").rpartition("-")[0] == part]
    tables = [lookups.read.of(path, partial(_file, lookups.folder, path, lookups.ranges[path])) for path in files]
    return _rows(tables, topic, columns, group)


def _file(folder: str, path: str, groups: Sequence[int] | None = None) -> pa.Table:
    """Reads row groups of a file. None: all row groups."""
    with pq.ParquetFile(f"{folder}/{path}") as parquet:
        names = [name for name in parquet.schema_arrow.names if name in _KINDS]
        numbers = range(parquet.num_row_groups) if groups is None else groups
        return parquet.read_row_groups(numbers, columns=names, use_threads=False)


def _rows(found: Sequence[pa.Table], topic: str, columns: Sequence[str], group: str | None) -> pa.Table:
    if not found:
        return pa.table({column: pa.chunked_array([], _KINDS[column]) for column in columns})
    names = [*columns, "topic", *([] if group is None else ["consumer_group"])]
    table = pa.concat_tables([one.select(names) for one in found])
    wanted = pc.equal(table["topic"], topic)
    if group is not None:
        wanted = pc.and_(wanted, pc.equal(table["consumer_group"], group))
    return table.filter(wanted).select(list(columns))


def _joined(keys: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    return pa.chunked_array([chunk for column in keys for chunk in column.chunks], pa.binary())


def _without(keys: pa.ChunkedArray, known: pa.ChunkedArray) -> pa.ChunkedArray:
    """Lists the unknown keys in the order of their first places. Each key appears once.

    Known keys are removed first, because most keys are known.
    """
    return pa.chunked_array([pc.unique(keys.filter(pc.invert(pc.is_in(keys, value_set=known))))])


def _ask(source: Source, selection: Selection, keys: pa.ChunkedArray, add: Callable[[pa.Table], None]) -> None:
    if source.kind != "database" or not len(keys):
        return  # exports were read whole
    with reading(source) as connection:
        rows_of = key_reader(connection, source, selection)
        for first in range(0, len(keys), KEYS_A_STATEMENT):
            found = rows_of(keys.slice(first, KEYS_A_STATEMENT).to_pylist())
            if found is not None:
                add(found)
