"""The audit as a function, for notebooks and jobs of a data platform: over their tables, on their own Spark session.

The session is used and left as it was: it is neither made nor stopped, no setting or view of it is changed, and no
package is shipped into it. The executors have this package installed, with numpy and pyarrow.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.audit.collect.configuration import audited_subscriptions, read_configuration
from reconciler.audit.collect.request import Request
from reconciler.audit.collect.sources import EffectsSource, Source, Sources, source_at, subscription_key
from reconciler.audit.collect.window import instant_ms, parse_window
from reconciler.audit.engines.engine import Engine, engine_on
from reconciler.audit.engines.spark_errors import spark_errors
from reconciler.audit.errors import AuditError, Reason, unwritable
from reconciler.audit.places import place_of
from reconciler.audit.result.documents import time_text
from reconciler.audit.result.values import Window
from reconciler.audit.statement.keys import SigningKey, read_signing_key
from reconciler.audit.window_run import AskedWindow, audit_window
from reconciler.contract.tables import CANDIDATE, INBOX, OUTBOX, REPAIR, ROUND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Inputs", "WindowAnswer", "audit", "exit_code"]

#: Columns that no evidence has, by kind: bodies and the like.
_NOT_STAGED = frozenset({"bytes", "json"})
_EXPORT = re.compile(r"(?:parquet|delta):")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The tables of services and ledger, with their columns as docs/reference/tables.md has them.

    Each is a DataFrame, the name of a table, `parquet:PATH` or `delta:PATH`. They are read whole: one that lacks older
    rows makes effects look as if they had no commit.
    """

    #: Producer group -> its outbox.
    outbox: Mapping[str, DataFrame | str]
    #: TOPIC/GROUP -> its inbox.
    inbox: Mapping[str, DataFrame | str]
    #: TOPIC/GROUP -> keys and numbers of business effects (columns `key` and `effects`, or `key` alone).
    effects: Mapping[str, DataFrame | str] = field(default_factory=dict)
    #: The reconciler's ledger: all three or none.
    candidate: DataFrame | str | None = None
    repair: DataFrame | str | None = None
    rounds: DataFrame | str | None = None
    #: Folder or URL of the reconciler's history; None: there is none.
    history: str | None = None
    #: Up to when all tables have been loaded, with offset or zone; None: they are those of the services themselves.
    loaded_until: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowAnswer:
    """What the audit says of one window."""

    window: Window
    #: clean, violations or no answer.
    verdict: str
    #: Why there is no answer, and in a sentence; else None.
    reason: Reason | None
    message: str | None
    #: Class -> keys, of all subscriptions; empty if nothing was judged.
    classes: Mapping[str, int]
    violations: int
    #: The folder of the window's result; None if nothing was judged.
    out: Path | None
    #: What the rows of the tables name it; None without tables.
    run: str | None


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
) -> list[WindowAnswer]:
    """Audits windows, one after the other, as `reconciler audit` does; one answer each, in their order.

    `windows`: START/END, each time with offset or zone. `out`: a folder that gets a folder a window. `staging`: a
    folder that executors see, where DataFrames and tables are copied to once; the copies are removed at the end.
    `settings`: the reconciler's settings file. `tables`: as --tables. `signing_key`: signs the statements, which follow
    those of the window before, and the first those of `previous`.

    A window whose inputs cannot be believed is an answer that says so, and the next ones are audited. Raises AuditError
    for what is wrong before a window is audited: names, windows, settings, a table that cannot be read.
    """
    asked = [parse_window(window) for window in windows]
    if len(set(asked)) < len(asked):
        raise AuditError("usage", "windows: one is named twice")
    now_ms = time.time_ns() // 1_000_000
    loaded_ms = now_ms if inputs.loaded_until is None else min(now_ms, instant_ms(inputs.loaded_until))
    key = None if signing_key is None else read_signing_key(signing_key)
    configuration = read_configuration(Path(settings), os.environ)
    try:
        Path(staging).mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="audit-", dir=os.path.abspath(staging)))
        folder.chmod(0o755)
    except OSError as error:
        raise unwritable(f"staging {staging}", error) from error
    try:
        sources = _Staging(spark, folder).sources(inputs)
        subscriptions = audited_subscriptions(configuration, sources)
        engine = engine_on(spark)
        answers: list[WindowAnswer] = []
        before = None if previous is None else Path(previous)
        for window in asked:
            request = Request(
                environment=configuration.environment,
                window=window,
                shards=configuration.shards,
                skew_bound_ms=configuration.skew_bound_ms,
                subscriptions=subscriptions,
                sources=sources,
                history=None if inputs.history is None else place_of(inputs.history),
                collected_at_ms=loaded_ms,
            )
            answer = _answer(request, engine, Path(out) / folder_name(window), tables, key, before, now_ms)
            before = answer.out or before
            answers.append(answer)
        return answers
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def exit_code(answers: Iterable[WindowAnswer]) -> int:
    """The worst of them, as the command ends: 2 no answer, 1 violations, 0 clean."""
    return max(({"clean": 0, "violations": 1}.get(answer.verdict, 2) for answer in answers), default=2)


def folder_name(window: Window) -> str:
    """The folder of a window in `out`."""
    return "_".join(time_text(ms).replace(":", "") for ms in (window.start_ms, window.end_ms))


def _answer(
    request: Request,
    engine: Engine,
    out: Path,
    tables: Path | str | None,
    key: SigningKey | None,
    previous: Path | None,
    now_ms: int,
) -> WindowAnswer:
    asked = AskedWindow(
        request=request,
        out=out,
        tables=None if tables is None else Path(tables),
        signing_key=key,
        previous=previous,
        zone="UTC",
        now_ms=now_ms,
    )
    try:
        done = audit_window(asked, lambda: nullcontext(engine), lambda _line: None)
    except AuditError as error:
        if error.reason == "usage":
            raise
        return WindowAnswer(
            window=request.window,
            verdict="no answer",
            reason=error.reason,
            message=str(error),
            classes={},
            violations=0,
            out=None,
            run=None,
        )
    judged, refused = done.judged, done.judged.no_answer
    return WindowAnswer(
        window=judged.window,
        verdict=judged.verdict,
        reason=None if refused is None else refused.reason,
        message=None if refused is None else refused.message,
        classes=judged.classes,
        violations=judged.violations,
        out=out,
        run=done.run,
    )


class _Staging:
    """DataFrames and tables as exports that every executor reads, each copied once."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._staged: dict[object, str] = {}

    def sources(self, inputs: Inputs) -> Sources:
        """Where collecting reads them. Raises AuditError."""
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
        # In the order in which collecting reads databases: what comes later may have more, and never less.
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
                self._copied(of_ledger, self._folder / "ledger" / table.name, _kept(table.name), table.name)
        copied = Source(kind="parquet", address=str(self._folder / "ledger"), option="ledger") if given else None
        return Sources(outboxes=outboxes, inboxes=inboxes, effects=effects, ledger=copied)

    def _source(self, given: DataFrame | str, table: str, columns: frozenset[str] | None, option: str) -> Source:
        if isinstance(given, str) and _EXPORT.match(given):
            problems: list[str] = []
            source = source_at(given, option, problems)
            if source is None:
                raise AuditError("usage", "\n".join(problems))
            return source
        known = given if isinstance(given, str) else id(given)
        if known not in self._staged:
            place = self._folder / f"{len(self._staged):03d}" / table
            self._copied(given, place, columns, option)
            self._staged[known] = str(place)
        return Source(kind="parquet", address=self._staged[known], option=option)

    def _copied(self, given: DataFrame | str, place: Path, columns: frozenset[str] | None, option: str) -> None:
        try:
            with spark_errors():
                rows = self._spark.table(given) if isinstance(given, str) else given
                kept = [name for name in rows.columns if columns is None or name in columns]
                rows.select(*(f"`{name}`" for name in kept)).write.parquet(str(place))
        except AuditError as error:
            raise AuditError("inputs", f"{option}: cannot be read: {error}") from error


def _kept(table: str) -> frozenset[str]:
    """The columns of a table that evidence may have."""
    found = next(one for one in (OUTBOX, INBOX, CANDIDATE, REPAIR, ROUND) if one.name == table)
    return frozenset({"key", *(column.name for column in found.columns if column.kind not in _NOT_STAGED)})


def _pair(name: str) -> tuple[str, str]:
    topic, _, group = name.partition("/")
    return topic, group
