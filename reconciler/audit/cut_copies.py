"""Cuts copies of a platform's tables by window, in jobs of Spark, so that each window reads only its own keys.

All rows of a key, from every table, go to each window in which one of the key's times lies. Databases are asked for a
window by the same times (collect/collecting.py). They are the times of the outbox, the inbox, the ledger and the
announcement. Only the history has the announcement. The judgement counts a key in a window by these times only. A row
without time or key goes to all windows, which then report it. The oldest row of each name goes to all windows, too,
because it shows whether a missing row was deleted for its age or never written.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reconciler.audit.collect.lookups import history_rows
from reconciler.audit.collect.ranges import RANGE_ROWS
from reconciler.audit.collect.request import Request
from reconciler.audit.collect.sources import Source, Sources
from reconciler.audit.collect.tasks import Answer, answer, files_of
from reconciler.audit.engines.engine import Engine
from reconciler.audit.engines.spark_errors import spark_errors
from reconciler.audit.errors import AuditError
from reconciler.audit.history.check import check_history
from reconciler.contract.history_row import ANNOUNCED, PREFIXES
from reconciler.contract.manifest import HistoryFile
from reconciler.contract.tables import CANDIDATE, INBOX, OUTBOX, REPAIR, ROUND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Table -> column of the time by which the collection reads a window.
TIMES = {
    OUTBOX.name: "created_at_ms",
    INBOX.name: "applied_at_ms",
    CANDIDATE.name: "first_seen_ms",
    REPAIR.name: "created_at_ms",
    ROUND.name: "at_ms",
}
#: Columns that name the owner of a row, and times by which rows are deleted for their age (collect/deleted.py).
_OLDEST = {
    OUTBOX.name: (("producer_group", "state"), ("settled_at_ms", "created_at_ms")),
    INBOX.name: (("topic", "consumer_group"), ("applied_at_ms",)),
}
_KEY_COLUMNS = ("key", "unique_key")
_INTEGERS = frozenset({"bigint", "int", "smallint", "tinyint"})
#: SQL for the text of a key whose column has bytes. The bytes are the member (contract/unique_key.py) or the text.
_TEXT_OF_BYTES = (
    "CASE WHEN length({0}) = 32 AND decode({0}, 'ISO-8859-1') RLIKE '^[0-9A-Fa-f]*$' THEN decode({0}, 'ISO-8859-1') "
    "WHEN length({0}) BETWEEN 16 AND 32 THEN hex({0}) "
    "ELSE replace(decode({0}, 'ISO-8859-1'), decode(X'00', 'ISO-8859-1'), '') END"
)
#: Largest number of pieces into which the axis of time is divided to find spans.
_PIECES_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CutCopies:
    """Requests of the windows. The sources of a request are cut or whole copies."""

    requests: Sequence[Request]
    #: Reason why each of several windows reads whole copies. None: the copies are cut, or there is one window.
    whole_because: str | None = None


def cut_by_window(
    spark: SparkSession, folder: Path, requests: Sequence[Request], engine: Engine, go_on: Callable[[], None]
) -> CutCopies:
    """Cuts the copies in `folder` and removes the whole copies.

    Returns requests that each read only the rows of one window's keys. The requests read whole copies if there is one
    window, or if a table was not copied or has no key. They also read whole copies if the history fails a check,
    because announcements would be missing. Raises AuditError.
    """
    if len(requests) <= 1:
        return CutCopies(requests=requests)
    sources = requests[0].sources
    copies = _copies(sources)
    elsewhere = [source.option for place, (source, _) in copies.items() if folder not in place.parents]
    if elsewhere:
        return CutCopies(requests=requests, whole_because=f"{elsewhere[0]}: an export is read where it lies")
    with spark_errors():
        rows = {place: spark.read.parquet(str(place)) for place in copies}
        for place, (source, table) in copies.items():
            if table != ROUND.name and _key_column(rows[place]) is None:
                why = f"{source.option}: no column is called {' or '.join(_KEY_COLUMNS)}"
                return CutCopies(requests=requests, whole_because=why)
    disbelieved = _announced(folder / "announced", requests, engine)
    go_on()
    if disbelieved is not None:
        return CutCopies(requests=requests, whole_because=disbelieved)
    tables = {place: table for place, (_, table) in copies.items()}
    cut = _Cut(spark, folder, requests)
    with spark_errors():
        cut.mark([(tables[place], one) for place, one in rows.items()])
        left_out = {place: cut.nowhere(rows[place]) for place, table in tables.items() if table not in TIMES}
        for place, one in rows.items():
            go_on()
            cut.write(place, tables[place], one)
    cut.end()
    of_windows = [
        replace(request, sources=_of_window(sources, folder, cut.place_of(number), left_out))
        for number, request in enumerate(requests)
    ]
    return CutCopies(requests=of_windows)


def _copies(sources: Sources) -> dict[Path, tuple[Source, str]]:
    """Maps the folder of each table to the source that named it and to the table's name."""
    given = [source for _, source in sources.outboxes]
    given += [source for several in sources.inboxes.values() for source in several]
    given += [effects.source for effects in sources.effects.values()]
    places = [(Path(source.address), source) for source in given]
    if sources.ledger is not None:
        places += [(Path(sources.ledger.address) / table.name, sources.ledger) for table in (CANDIDATE, REPAIR, ROUND)]
    return {place: (source, place.name) for place, source in places}


def _of_window(sources: Sources, folder: Path, to: Path, left_out: Mapping[Path, int]) -> Sources:
    def moved(source: Source) -> Source:
        return replace(source, address=str(to / Path(source.address).relative_to(folder)))

    return Sources(
        outboxes=tuple((group, moved(source)) for group, source in sources.outboxes),
        inboxes={key: tuple(map(moved, several)) for key, several in sources.inboxes.items()},
        effects={
            key: replace(one, source=moved(one.source), left_out=left_out[Path(one.source.address)])
            for key, one in sources.effects.items()
        },
        ledger=None if sources.ledger is None else moved(sources.ledger),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _AnnouncedTask:
    """Task that writes keys and times of files of the history, for Spark to read."""

    history: str
    files: tuple[HistoryFile, ...]
    topics: tuple[str, ...]
    to: str

    @property
    def reads_databases(self) -> bool:
        """False, because the task reads only files."""
        return False

    def run(self) -> Answer:
        """Writes one file. Raises AuditError."""
        schema = pa.schema([("key", pa.binary()), ("at_ms", pa.int64())])
        with pq.ParquetWriter(self.to, schema) as writer:
            for file in self.files:
                rows = history_rows(self.history, file, ANNOUNCED)
                rows = rows.filter(pc.is_in(rows["topic"].cast(pa.string()), value_set=pa.array(self.topics)))
                writer.write_table(rows.select(schema.names).cast(schema))
        return Answer()


def _announced(folder: Path, requests: Sequence[Request], engine: Engine) -> str | None:
    """Writes the announcements of all windows. Returns the reason why announcements may be missing.

    None: all are written. Each window's own audit reports the fault of the history.
    """
    folder.mkdir()
    first = requests[0]
    if first.history is None:
        return None
    start_ms, end_ms = min(r.window.start_ms for r in requests), max(r.window.end_ms for r in requests)
    about = (first.environment, first.subscriptions, first.shards, (start_ms, end_ms))
    state = check_history(first.history, *about, asked_at_ms=first.collected_at_ms)
    if state.problems:
        return state.problems[0]
    closes_ms = max(request.closes_ms for request in requests)
    files = [
        file
        for prefix in range(PREFIXES)
        for file in state.of(ANNOUNCED.name, prefix)
        if file.first_ms < closes_ms and file.last_ms >= start_ms
    ]
    count = max(1, min(PREFIXES, sum(file.rows for file in files) // RANGE_ROWS))
    tasks = [
        _AnnouncedTask(
            history=first.history,
            files=tuple(files[number::count]),
            topics=first.topics,
            to=str(folder / f"{number:02d}.parquet"),
        )
        for number in range(count)
    ]
    try:
        files_of(engine.run(answer, tasks))
    except AuditError as error:
        return str(error)
    return None


class _Cut:
    def __init__(self, spark: SparkSession, folder: Path, requests: Sequence[Request]) -> None:
        self._spark, self._folder, self._windows = spark, folder, len(requests)
        spans = [
            (kind, number, first_ms, end_ms)
            for number, r in enumerate(requests)
            for kind, first_ms, end_ms in (
                (OUTBOX.name, r.written_since_ms, r.window.end_ms),
                ("others", r.since_ms, r.closes_ms),
                (ANNOUNCED.name, r.window.start_ms, r.closes_ms),
            )
        ]
        lengths = [end_ms - first_ms for _, _, first_ms, end_ms in spans]
        reach_ms = max(span[3] for span in spans) - min(span[2] for span in spans)
        self._piece_ms = max(min(lengths), reach_ms // _PIECES_MAX)
        rows = [
            (kind, number, first_ms, end_ms, piece)
            for kind, number, first_ms, end_ms in spans
            for piece in range(first_ms // self._piece_ms, (end_ms - 1) // self._piece_ms + 1)
        ]
        names = ["audit_kind", "audit_number", "audit_first_ms", "audit_end_ms", "audit_piece"]
        table = pa.table([pa.array(column) for column in zip(*rows, strict=True)], names=names)
        pq.write_table(table, folder / "spans.parquet")

    def place_of(self, number: int) -> Path:
        """Returns the folder that a window reads."""
        return self._folder / f"window-{number:04d}"

    def mark(self, copies: Sequence[tuple[str, DataFrame]]) -> None:
        """Writes the windows of each key. Window -1 marks every key that a table has, with or without a time."""
        marked = [self._marks(rows, TIMES.get(table), table) for table, rows in copies if table != ROUND.name]
        marked += [self._oldest(rows, table) for table, rows in copies if table in _OLDEST]
        if any((self._folder / "announced").iterdir()):
            announced = self._spark.read.parquet(str(self._folder / "announced"))
            marked.append(self._marks(announced, "at_ms", ANNOUNCED.name).where("audit_window >= 0"))
        found = marked[0]
        for one in marked[1:]:
            found = found.union(one)
        found.distinct().write.parquet(str(self._folder / "keys"))

    def nowhere(self, effects: DataFrame) -> int:
        """Counts the keys of effects that no other table has."""
        keys = effects.selectExpr(f"{_key_text(effects)} AS audit_key").distinct()
        return int(keys.join(self._keys(), "audit_key", "left_anti").count())

    def write(self, place: Path, table: str, rows: DataFrame) -> None:
        """Moves the rows of a copy into the folders of windows, and removes the copy."""
        own = [f"`{name}`" for name in rows.columns]
        if table == ROUND.name:
            found, order = self._in_windows(rows, TIMES[table], ANNOUNCED.name).where("audit_window >= 0"), TIMES[table]
            found = found.selectExpr("audit_window", *own)
        else:
            keyed = rows.selectExpr("*", f"{_key_text(rows)} AS audit_key")
            found, order = keyed.join(self._keys().where("audit_window >= 0"), "audit_key"), "audit_key"
            found = found.selectExpr("audit_window", "audit_key", *own)
        found = found.hint("rebalance", "audit_window").sortWithinPartitions("audit_window", order).drop("audit_key")
        cut = self._folder / "cut"
        options = {"maxRecordsPerFile": str(RANGE_ROWS)}
        found.write.options(**options).partitionBy("audit_window").parquet(str(cut))
        schema = pq.read_schema(next(place.glob("*.parquet")))
        for number in range(self._windows):
            to = self.place_of(number) / place.relative_to(self._folder)
            to.parent.mkdir(parents=True, exist_ok=True)
            of_window = cut / f"audit_window={number}"
            if of_window.is_dir():
                of_window.rename(to)
            else:
                to.mkdir()
                pq.write_table(schema.empty_table(), to / "none.parquet")
        shutil.rmtree(cut, ignore_errors=True)
        shutil.rmtree(place, ignore_errors=True)
        with suppress(OSError):  # the folder holds other tables
            place.parent.rmdir()

    def end(self) -> None:
        """Removes the files that no window reads."""
        shutil.rmtree(self._folder / "announced", ignore_errors=True)
        shutil.rmtree(self._folder / "keys", ignore_errors=True)
        (self._folder / "spans.parquet").unlink(missing_ok=True)

    def _keys(self) -> DataFrame:
        return self._spark.read.parquet(str(self._folder / "keys"))

    def _marks(self, rows: DataFrame, time: str | None, table: str) -> DataFrame:
        """Selects audit_key and audit_window of each row."""
        key = _key_text(rows)
        if table not in (*TIMES, ANNOUNCED.name):  # effects have no time, and go to the windows of their keys
            rows = rows.where(f"{key} = ''")
        return self._in_windows(rows, time, table).selectExpr(f"{key} AS audit_key", "audit_window")

    def _in_windows(self, rows: DataFrame, time: str | None, table: str) -> DataFrame:
        """Joins each row with the windows that hold the row's time, and with window -1."""
        kind = table if table in (OUTBOX.name, ANNOUNCED.name) else "others"
        spans = self._spark.read.parquet(str(self._folder / "spans.parquet")).where(f"audit_kind = '{kind}'")
        has_time = time is not None and dict(rows.dtypes).get(time) in _INTEGERS
        at_ms = f"CAST(`{time}` AS BIGINT)" if has_time else "CAST(NULL AS BIGINT)"
        if _key_column(rows) is not None:
            at_ms = f"CASE WHEN {_key_text(rows)} <> '' THEN {at_ms} END"
        timed = rows.selectExpr("*", f"{at_ms} AS audit_ms")
        timed = timed.selectExpr("*", f"CAST(floor(audit_ms / {self._piece_ms}) AS BIGINT) AS audit_of")
        inside: Any = timed["audit_of"] == spans["audit_piece"]
        inside &= (timed["audit_ms"] >= spans["audit_first_ms"]) & (timed["audit_ms"] < spans["audit_end_ms"])
        numbers = (
            f"CASE WHEN audit_ms IS NULL THEN sequence(-1, {self._windows - 1}) "
            "WHEN audit_number IS NULL THEN array(-1) ELSE array(-1, CAST(audit_number AS INT)) END"
        )
        return timed.join(spans.hint("broadcast"), inside, "left").selectExpr(
            "*", f"explode({numbers}) AS audit_window"
        )

    def _oldest(self, rows: DataFrame, table: str) -> DataFrame:
        kinds = dict(rows.dtypes)
        names, times = ([name for name in of if name in kinds] for of in _OLDEST[table])
        times = [f"`{name}`" for name in times if kinds[name] in _INTEGERS]
        at_ms = f"coalesce({', '.join(times)})" if times else "CAST(NULL AS BIGINT)"
        row = f"named_struct('at_ms', {at_ms}, 'audit_key', {_key_text(rows)}) AS audit_row"
        oldest = rows.where(f"{at_ms} IS NOT NULL").selectExpr(*(f"`{name}`" for name in names), row)
        oldest = oldest.groupBy(*names).agg({"audit_row": "min"})
        return oldest.selectExpr(
            "`min(audit_row)`.audit_key AS audit_key",
            f"explode(sequence(0, {self._windows - 1})) AS audit_window",
        )


def _key_column(rows: DataFrame) -> str | None:
    return next((name for name in _KEY_COLUMNS if name in rows.columns), None)


def _key_text(rows: DataFrame) -> str:
    """Makes an SQL expression for the text of a key. The column may have any type. A missing key is ''."""
    name = _key_column(rows)
    is_bytes = dict(rows.dtypes)[name or ""] == "binary"
    return f"coalesce({_TEXT_OF_BYTES.format(f'`{name}`') if is_bytes else f'CAST(`{name}` AS STRING)'}, '')"
