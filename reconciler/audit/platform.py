"""The audit as a function for notebooks and jobs of a data platform.

The function reads the platform's tables on the caller's Spark session. The session stays unchanged: the audit neither
makes nor stops the session, changes no setting and no view, and ships no package. The executors need this package,
numpy and pyarrow.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from reconciler.audit.collect.configuration import AuditedConfiguration, audited_subscriptions, read_configuration
from reconciler.audit.collect.request import Request
from reconciler.audit.collect.sources import EffectsSource, Source, Sources, source_at, subscription_key
from reconciler.audit.collect.window import instant_ms, parse_window
from reconciler.audit.cut_copies import TIMES, cut_by_window
from reconciler.audit.engines.engine import Engine, engine_on
from reconciler.audit.engines.lake_tables import TableFormat, load_run, require_merge
from reconciler.audit.engines.spark import end_jobs, tag_jobs, with_properties
from reconciler.audit.engines.spark_errors import spark_errors
from reconciler.audit.engines.table_versions import read_table
from reconciler.audit.errors import AuditError, Reason, unwritable
from reconciler.audit.history.check import DAY_MS
from reconciler.audit.places import place_of
from reconciler.audit.report.texts import REPORT_LANGUAGES
from reconciler.audit.result.times import time_text
from reconciler.audit.result.values import InputVersion, Window
from reconciler.audit.statement.keys import read_signing_key
from reconciler.audit.window_run import AskedWindow, JudgedRun, audit_window, write_unanswered
from reconciler.contract.tables import CANDIDATE, INBOX, OUTBOX, REPAIR, ROUND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Inputs", "WindowAnswer", "audit", "exit_code", "load_tables"]

#: Kinds of columns that no evidence has, such as bodies.
_NOT_STAGED = frozenset({"bytes", "json"})
_EXPORT = re.compile(r"(?:parquet|delta):")
#: Number of windows that are audited side by side. Some windows are collected or written while others are judged.
WINDOWS_AT_ONCE = 4
#: Time that threads have to end. Afterwards Spark is asked again to end the threads' jobs.
ENDING_SECONDS = 0.5

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Tables of services and ledger, with the columns of docs/reference/tables.md.

    Each input is a DataFrame, the name of a table, `parquet:PATH` or `delta:PATH`. Exports are read whole. DataFrames
    and tables are read from `since` on. If an input lacks older rows, effects look as if they had no commit.
    """

    #: Producer group -> outbox of the group.
    outbox: Mapping[str, DataFrame | str]
    #: TOPIC/GROUP -> inbox of the subscription.
    inbox: Mapping[str, DataFrame | str]
    #: TOPIC/GROUP -> business effects. The column `key` is needed. The column `effects` has the number of effects.
    #: Without this column each row is one effect. Other columns are ignored.
    effects: Mapping[str, DataFrame | str] = field(default_factory=dict)
    #: Tables of the reconciler's ledger. All three tables are given, or none.
    candidate: DataFrame | str | None = None
    repair: DataFrame | str | None = None
    rounds: DataFrame | str | None = None
    #: Folder or URL of the reconciler's history. None: no history.
    history: str | None = None
    #: Time until which all tables have been loaded. The text has an offset or a zone. None: the tables are the
    #: services' own.
    loaded_until: str | None = None
    #: Time before which rows of DataFrames and tables are left out. The text has an offset or a zone. None: no rows are
    #: left out.
    since: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowAnswer:
    """Answer of the audit about one window."""

    window: Window
    #: Verdict: clean, violations or no answer.
    verdict: str
    #: Kind of the reason for no answer. None: there is an answer.
    reason: Reason | None
    #: Reason for no answer, in a sentence.
    message: str | None
    #: Class -> number of keys of all subscriptions. Empty: nothing was judged.
    classes: Mapping[str, int]
    violations: int
    #: Folder of the window's result. A window without an answer has a folder, too. None: nothing was written.
    out: Path | None
    #: Name of the run in the rows of the tables. None: no tables.
    run: str | None
    #: Seconds that the window took. Windows that run side by side share the session.
    seconds: float
    #: Part of `seconds` in which keys were judged and judged keys were written.
    judging_seconds: float = 0.0
    #: Seconds that the copies in `staging` took. The copies are made once for all windows.
    staging_seconds: float
    #: Seconds that `load_tables` took. `seconds` does not include them. 0: the rows were not loaded.
    loading_seconds: float = 0.0
    #: Reason why each of several windows has read whole copies, and so takes the time of all rows. None: each window
    #: has read only its own rows.
    whole_copies_because: str | None = None


def audit(
    spark: SparkSession,
    *,
    inputs: Inputs,
    windows: Sequence[str],
    out: Path | str,
    staging: Path | str,
    settings: Path | str,
    tables: Path | str | None = None,
    signing_key: Path | str | None = None,
    previous: Path | str | None = None,
    at_once: int = WINDOWS_AT_ONCE,
    keep_staged: bool = False,
    language: str = "en",
) -> list[WindowAnswer]:
    """Audits windows as `reconciler audit` does. `at_once` windows are audited side by side.

    Returns one answer per window, in the order of the windows.

    - `windows`: texts START/END, sorted by START. Each time has an offset or a zone.
    - `out`: a folder that gets one folder per window.
    - `staging`: a folder that executors see. DataFrames and tables are copied to it once; the copies are removed at
      the end unless `keep_staged`.
    - `settings`: the reconciler's settings file.
    - `tables`: as --tables.
    - `signing_key`: signs the statements. They follow the statements of the window before. The first window's
      statements follow the statements in `previous`.
    - `language`: language of the reports, en or zh.

    If inputs of a window fail a check, the window's answer and statements say so, and the next windows are audited. If
    the window's folder has an older answer with evidence, the older answer stays. Raises AuditError for faults that are
    found before a window is audited: names, windows, settings, a table that cannot be read. An interrupt ends only the
    audit's jobs.
    """
    asked = _in_order(windows)
    _require_usable(at_once, language)
    now_ms = time.time_ns() // 1_000_000
    loaded_ms = now_ms if inputs.loaded_until is None else min(now_ms, instant_ms(inputs.loaded_until))
    key = None if signing_key is None else read_signing_key(signing_key)
    configuration = read_configuration(Path(settings), os.environ)
    with _staging_folder(staging, keep=keep_staged) as folder, _Threads(spark, at_once) as threads:
        began = time.perf_counter()
        staged = _Staging(spark, folder, threads.go_on)
        sources = threads.start(staged.sources, inputs).result()
        requests = _requests(asked, configuration, staged.input_versions, sources, inputs.history, loaded_ms)
        staged.require_rows_of(requests)
        engine = engine_on(spark)
        cut = threads.start(cut_by_window, spark, folder, requests, engine, threads.go_on).result()
        staging_seconds = time.perf_counter() - began
        started: list[Future[_Answered]] = []
        for number, request in enumerate(cut.requests):
            asked_window = AskedWindow(
                request=request,
                out=Path(out) / folder_name(request.window),
                tables=None if tables is None else Path(tables),
                signing_key=key,
                previous=_before(started[number - 1] if number else None, previous),
                zone="UTC",
                language=language,
                now_ms=now_ms,
            )
            started.append(threads.start(_answered, asked_window, request, engine, threads.go_on))
        return [
            replace(one.result().answer, staging_seconds=staging_seconds, whole_copies_because=cut.whole_because)
            for one in started
        ]


def _requests(
    windows: Sequence[Window],
    configuration: AuditedConfiguration,
    versions: tuple[InputVersion, ...],
    sources: Sources,
    history: str | None,
    collected_at_ms: int,
) -> list[Request]:
    subscriptions = audited_subscriptions(configuration, sources)
    return [
        Request(
            environment=configuration.environment,
            window=window,
            shards=configuration.shards,
            skew_bound_ms=configuration.skew_bound_ms,
            subscriptions=subscriptions,
            sources=sources,
            history=None if history is None else place_of(history),
            input_versions=versions,
            collected_at_ms=collected_at_ms,
        )
        for window in windows
    ]


def load_tables(
    spark: SparkSession, answers: Iterable[WindowAnswer], *, tables: Path | str, into: str, kind: TableFormat
) -> list[WindowAnswer]:
    """Puts the rows of these answers into tables of a catalogue. `audit` wrote the rows into the folder `tables`.

    Returns the answers with the seconds that loading took. `into` is the schema of the tables, such as
    `CATALOG.SCHEMA`. Missing tables are created in the format `kind`: iceberg or delta. Once all rows are written, an
    answer replaces the older rows of the same window, environment and subscriptions. Raises AuditError if another run
    of the window becomes valid meanwhile. Raises AuditError before any row is written if the session cannot merge.
    """
    require_merge(spark)
    loaded: list[WindowAnswer] = []
    for answer in answers:
        began = time.perf_counter()
        if answer.run is None:
            loaded.append(answer)
            continue
        load_run(spark, Path(tables), answer.run, into=into, kind=kind)
        loaded.append(replace(answer, loading_seconds=time.perf_counter() - began))
    return loaded


def _require_usable(at_once: int, language: str) -> None:
    if at_once < 1:
        raise AuditError("usage", f"at_once {at_once}: at least 1 window is audited at once")
    if language not in REPORT_LANGUAGES:
        raise AuditError("usage", f"language {language!r}: a report has one of {', '.join(REPORT_LANGUAGES)}")


def _in_order(windows: Sequence[str]) -> list[Window]:
    """Parses windows. Raises AuditError("usage") if a window comes twice, or if the windows are not sorted by START."""
    asked = [parse_window(window) for window in windows]
    for place, window in enumerate(asked):
        if window in asked[:place] or any(before.start_ms > window.start_ms for before in asked[:place]):
            what = f"the window {window} comes twice or too late"
            raise AuditError("usage", f"windows: name each once, in the order of their beginnings; {what}")
    return asked


def exit_code(answers: Iterable[WindowAnswer]) -> int:
    """Returns the command's exit code for the worst answer: 2 no answer, 1 violations, 0 clean."""
    return max(({"clean": 0, "violations": 1}.get(answer.verdict, 2) for answer in answers), default=2)


def folder_name(window: Window) -> str:
    """Names the folder of a window in `out`."""
    return "_".join(time_text(ms).replace(":", "") for ms in (window.start_ms, window.end_ms))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answered:
    answer: WindowAnswer
    #: Folder whose statements come before the statements of the next window.
    followed: Path | None


class _Threads:
    """Threads that ask Spark while the caller's thread waits.

    The caller's thread keeps its properties, tags and active session. An error or an interrupt in the block ends the
    threads' jobs and waits for the threads.
    """

    def __init__(self, spark: SparkSession, windows: int) -> None:
        self._spark = spark
        self._tag = f"reconciler-audit-{uuid.uuid4().hex}"
        self._pool = ThreadPoolExecutor(windows, thread_name_prefix="reconciler-audit")
        self._started: list[Future[Any]] = []
        self._is_over = False
        self._handler: Any = None

    def __enter__(self) -> _Threads:
        # PySpark's handler ends every job of the session, even streaming queries of other users.
        before = signal.getsignal(signal.SIGINT)
        if (
            getattr(before, "__module__", "").startswith("pyspark.")
            and threading.current_thread() is threading.main_thread()
        ):
            self._handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._end(is_early=kind is not None)
        finally:
            if self._handler is not None:
                signal.signal(signal.SIGINT, self._handler)

    def _end(self, *, is_early: bool) -> None:
        if is_early:
            self._is_over = True
            self._pool.shutdown(wait=False, cancel_futures=True)
            while running := [one for one in self._started if not one.done()]:
                end_jobs(self._spark, self._tag)
                wait(running, ENDING_SECONDS)  # a second time, because a thread may just have begun a job
        self._pool.shutdown()

    def start(self, function: Callable[_P, _T], *given: _P.args, **named: _P.kwargs) -> Future[_T]:
        """Runs the function in a thread that has the caller's properties."""

        def tagged() -> _T:
            tag_jobs(self._spark, self._tag)
            return function(*given, **named)

        future = self._pool.submit(with_properties(self._spark, tagged))
        self._started.append(future)
        return future

    def go_on(self, _step: str = "") -> None:
        """Raises CancelledError if the caller has gone. The threads call this before each step."""
        if self._is_over:
            raise CancelledError


def _before(window: Future[_Answered] | None, previous: Path | str | None) -> Callable[[], Path | None]:
    """Makes a function that waits for the window before.

    The function returns the folder whose statements come before.
    """
    if window is None:
        return lambda: None if previous is None else Path(previous)
    return lambda: window.result().followed


def _answered(asked: AskedWindow, request: Request, engine: Engine, go_on: Callable[[str], None]) -> _Answered:
    began = time.perf_counter()
    try:
        done: JudgedRun | None = audit_window(asked, lambda: nullcontext(engine), go_on)
        refused = None
    except AuditError as error:
        if error.reason == "usage":
            raise
        go_on("")
        refused = error
        done = _unanswered(asked, request, error, engine)
    judged = None if done is None else done.judged
    no_answer = None if judged is None else judged.no_answer
    out = None if done is None else asked.out
    answer = WindowAnswer(
        window=request.window,
        verdict="no answer" if judged is None else judged.verdict,
        reason=refused.reason if refused is not None else None if no_answer is None else no_answer.reason,
        message=str(refused) if refused is not None else None if no_answer is None else no_answer.message,
        classes={} if judged is None or refused is not None else judged.classes,
        violations=0 if judged is None else judged.violations,
        out=out,
        run=None if done is None else done.run,
        seconds=time.perf_counter() - began,
        judging_seconds=0.0 if done is None else done.judging_seconds,
        staging_seconds=0.0,
    )
    # If an older answer stays in the folder, it comes before the next window's answer.
    is_there = (asked.out / "result.json").exists()
    return _Answered(answer=answer, followed=asked.out if is_there else asked.previous())


def _unanswered(asked: AskedWindow, request: Request, error: AuditError, engine: Engine) -> JudgedRun | None:
    """Writes an answer without a judgement.

    None: nothing was written, because an older answer is there or the disk is full.
    """
    try:
        return write_unanswered(asked, request, error, engine.kind)
    except AuditError as again:
        if again.reason == "usage":
            raise
        return None


@contextmanager
def _staging_folder(staging: Path | str, *, keep: bool) -> Iterator[Path]:
    try:
        Path(staging).mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="audit-", dir=os.path.abspath(staging)))
        folder.chmod(0o755)
    except OSError as error:
        raise unwritable(f"staging {staging}", error) from error
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


class _Staging:
    """Exports of DataFrames and tables that every executor can read. Each DataFrame or table is copied once."""

    def __init__(self, spark: SparkSession, folder: Path, go_on: Callable[[], None]) -> None:
        self._spark = spark
        self._folder = folder
        self._go_on = go_on
        self._since_ms: int | None = None
        self._staged: dict[object, tuple[Path, InputVersion]] = {}
        self._versions: list[InputVersion] = []

    @property
    def input_versions(self) -> tuple[InputVersion, ...]:
        """Returns the versions of all inputs, sorted by input."""
        return tuple(sorted(self._versions, key=lambda one: one.input))

    def sources(self, inputs: Inputs) -> Sources:
        """Copies the inputs, and returns the sources that the collection reads. Raises AuditError."""
        self._since_ms = None if inputs.since is None else instant_ms(inputs.since)
        problems: list[str] = []
        inboxes: dict[tuple[str, str], tuple[Source, ...]] = {}
        effects: dict[tuple[str, str], EffectsSource] = {}
        for names, of in ((inputs.inbox, "inbox"), (inputs.effects, "effects")):
            for name in names:
                subscription_key(name, of, problems)
        ledger = {CANDIDATE: inputs.candidate, REPAIR: inputs.repair, ROUND: inputs.rounds}
        given = [one for one in ledger.values() if one is not None]
        if given and len(given) < len(ledger):
            problems.append("candidate, repair and rounds: give all three, or none")
        if any(isinstance(one, str) and _EXPORT.match(one) for one in given):
            problems.append("candidate, repair and rounds: give DataFrames or names of tables")
        if problems:
            raise AuditError("usage", "\n".join(problems))
        # The copies have the order in which the collection reads databases: a later copy may have more rows, never
        # fewer.
        outboxes = tuple(
            (group, self._source(one, OUTBOX.name, _kept(OUTBOX.name), f"outbox {group}"))
            for group, one in inputs.outbox.items()
        )
        for name, one in inputs.inbox.items():
            inboxes[_pair(name)] = (self._source(one, INBOX.name, _kept(INBOX.name), f"inbox {name}"),)
        for name, one in inputs.effects.items():
            source = self._source(one, f"effects-{len(effects)}", None, f"effects {name}")
            effects[_pair(name)] = EffectsSource(source=source, query="")
        for table, of_ledger in ledger.items():
            if of_ledger is not None:
                place = self._folder / "ledger" / table.name
                self._versions.append(self._copied(of_ledger, place, _kept(table.name), table.name))
        copied = Source(kind="parquet", address=str(self._folder / "ledger"), option="ledger") if given else None
        return Sources(outboxes=outboxes, inboxes=inboxes, effects=effects, ledger=copied)

    def require_rows_of(self, requests: Iterable[Request]) -> None:
        """Raises AuditError("usage") if `since` leaves out rows that a window needs.

        A window needs one day more than the collection reads. An announcement of that day shows that an outbox row
        existed.
        """
        for request in requests:
            latest_ms = request.since_ms - DAY_MS
            if self._since_ms is not None and self._since_ms > latest_ms:
                raise AuditError(
                    "usage", f"since: the window {request.window} needs rows from {time_text(latest_ms)} on, or older"
                )

    def _source(self, given: DataFrame | str, table: str, columns: frozenset[str] | None, option: str) -> Source:
        if isinstance(given, str) and _EXPORT.match(given):
            problems: list[str] = []
            source = source_at(given, option, problems)
            if source is None:
                raise AuditError("usage", "\n".join(problems))
            self._versions.append(InputVersion(input=option))
            return source
        known = given if isinstance(given, str) else id(given)
        if known not in self._staged:
            place = self._folder / f"{len(self._staged):03d}" / table
            self._staged[known] = place, self._copied(given, place, columns, option)
        place, version = self._staged[known]
        self._versions.append(replace(version, input=option))
        return Source(kind="parquet", address=str(place), option=option)

    def _copied(self, given: DataFrame | str, place: Path, columns: frozenset[str] | None, option: str) -> InputVersion:
        self._go_on()
        try:
            with spark_errors():
                read = read_table(self._spark, given)
                copied_rows(read.rows, columns, TIMES.get(place.name), self._since_ms).write.parquet(str(place))
        except AuditError as error:
            raise AuditError("inputs", f"{option}: cannot be read: {error}") from error
        name = given if isinstance(given, str) else None
        return InputVersion(input=option, table=name, format=read.format, version=read.version)


def copied_rows(rows: DataFrame, columns: frozenset[str] | None, time: str | None, since_ms: int | None) -> DataFrame:
    """Selects rows that were written since `since_ms`, and rows without a time. `columns` None selects all columns.

    A source that can skip columns and rows reads only the selected columns and rows.
    """
    kept = [name for name in rows.columns if columns is None or name in columns]
    if since_ms is not None and time in kept:
        rows = rows.where(f"`{time}` IS NULL OR `{time}` >= {since_ms}")
    return rows.select(*(f"`{name}`" for name in kept))


def _kept(table: str) -> frozenset[str]:
    """Lists the columns of a table that evidence may have."""
    found = next(one for one in (OUTBOX, INBOX, CANDIDATE, REPAIR, ROUND) if one.name == table)
    return frozenset({"key", *(column.name for column in found.columns if column.kind not in _NOT_STAGED)})


def _pair(name: str) -> tuple[str, str]:
    topic, _, group = name.partition("/")
    return topic, group
