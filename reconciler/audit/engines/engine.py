"""Engines: they compute an audit in this process or on Spark. Both judge by the same rules and find the same.

The engine "here" needs neither Java nor PySpark. This engine takes one piece after the other. So it needs the memory of
one piece (judge/prefix.py: 160 bytes per row, 5 million rows at once) and the time of all pieces.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from reconciler.audit.collect.asking import Runner
from reconciler.audit.collect.tasks import Answer, Task
from reconciler.audit.engines.job import judge_here, judge_on_spark
from reconciler.audit.engines.spark import (
    engine_name,
    is_on_this_machine,
    require_pyspark,
    require_seen,
    run_on,
    spark_session,
)
from reconciler.audit.errors import AuditError
from reconciler.audit.history.chain import HistoryChain
from reconciler.audit.judged_tables.key_files import KeyTarget
from reconciler.audit.result.values import EngineKind, JudgedWindow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class PrefixJudge(Protocol):
    """Function that judges an evidence folder. It is `judge_on_spark` with a given session, or `judge_here`."""

    def __call__(
        self,
        evidence_dir: Path | str,
        *,
        history: str | None,
        after: HistoryChain | None,
        keys: KeyTarget | None,
        progress: Callable[[int], None] | None,
    ) -> JudgedWindow:
        """Judges the folder. Raises AuditError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Engine: the functions that collect and judge."""

    #: Name of the engine's kind on the page and in the statement.
    kind: EngineKind
    #: Version and place, for people.
    name: str
    run: Runner
    judge: PrefixJudge
    #: Function that raises AuditError if a process that will write into a folder does not see the folder.
    require_seen: Callable[[Path], None]


def check_engine(options: argparse.Namespace) -> None:
    """Raises AuditError("usage") for options of another engine.

    Raises AuditError("configuration") if PySpark is missing.
    """
    spark_settings(options.spark)
    if options.engine == "spark":
        require_pyspark()
        return
    given = [f"--{name}" for name in ("master", "spark") if getattr(options, name)]
    if given:
        raise AuditError("usage", f"{' and '.join(given)} beside --engine here, which starts no Spark; leave one out")


@contextmanager
def opened_engine(options: argparse.Namespace, say: Callable[[str], None]) -> Iterator[Engine]:
    """Opens the engine that the options name, until the block ends. Raises AuditError."""
    if options.engine == "here":
        yield Engine(kind="here", name="here", run=one_by_one, judge=judge_here, require_seen=_seen_by_us)
        return
    settings = spark_settings(options.spark)
    say("starting Spark")
    with spark_session(options.master, settings) as spark:
        yield engine_on(spark)


def engine_on(spark: SparkSession) -> Engine:
    """Makes the engine of a session. The session may belong to the caller."""
    return Engine(
        kind="spark",
        name=engine_name(spark),
        run=partial(_run, spark),
        judge=partial(judge_on_spark, spark=spark),
        require_seen=partial(_require_seen, spark),
    )


def _run(spark: SparkSession, function: Callable[[Task], Answer], tasks: Sequence[Task]) -> list[Answer]:
    """Runs tasks in any order.

    If executors are on other machines, this process runs the tasks that ask databases. So no executor gets the address
    of a database.
    """
    if is_on_this_machine(spark):
        return run_on(spark, function, tasks)
    ours = [number for number, task in enumerate(tasks) if task.reads_databases]
    theirs = [number for number in range(len(tasks)) if number not in set(ours)]
    answers = dict(zip(ours, one_by_one(function, [tasks[number] for number in ours]), strict=True))
    if theirs:
        answers.update(zip(theirs, run_on(spark, function, [tasks[number] for number in theirs]), strict=True))
    return [answers[number] for number in range(len(tasks))]


def _require_seen(spark: SparkSession, folder: Path) -> None:
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".seen-") as mark:
        require_seen(spark, [(str(folder), Path(mark.name).name)], writes=folder)


def _seen_by_us(_folder: Path) -> None:
    """Does nothing, because the reader is the process that made the folder."""


def one_by_one(function: Callable[[Task], Answer], tasks: Sequence[Task]) -> list[Answer]:
    """Runs the tasks one after the other and returns the answers in the same order."""
    return [function(task) for task in tasks]


def spark_settings(texts: Sequence[str]) -> Mapping[str, str]:
    """Parses --spark NAME=VALUE. Raises AuditError("usage")."""
    settings: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise AuditError("usage", f"--spark {text}: expected NAME=VALUE, for example spark.driver.memory=4g")
        settings[name] = value
    return settings
