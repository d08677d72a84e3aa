"""The audit as a Spark job. Each task judges prefixes (judge/prefix.py). Spark only schedules the tasks.

The job is made of functions from DataFrame to DataFrame, so classic Spark, Spark Connect and spark-submit can all run
the job. A cluster's workers need numpy, pyarrow and this package, which is installed or comes by --py-files. The
workers must see the evidence.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from reconciler.audit.engines.spark import mapped, require_seen
from reconciler.audit.engines.spark_errors import spark_errors
from reconciler.audit.engines.spark_progress import Progress, is_connect, watched
from reconciler.audit.errors import AuditError
from reconciler.audit.evidence.document import EVIDENCE_JSON
from reconciler.audit.evidence.folder import Evidence, load_evidence
from reconciler.audit.evidence.memory import bounded_memory
from reconciler.audit.evidence.plan import ROWS_AT_ONCE_MAX, JudgePlan, PlannedFile
from reconciler.audit.history.chain import HistoryChain
from reconciler.audit.history.check import CHAIN_READINGS_MAX
from reconciler.audit.judge.merge import RESULT_DDL, error_rows, judged_window, key_file_rows, merged, result_rows
from reconciler.audit.judge.prefix import judge_prefix
from reconciler.audit.judged_tables.key_files import KeyFiles, KeyTarget
from reconciler.audit.places import place_of
from reconciler.audit.result.values import JudgedWindow
from reconciler.contract.history_row import PREFIXES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FINDINGS_MAX = 100_000
_TASKS_MIN = 16
_TASKS_A_CORE = 8

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
#: Function that judges all prefixes and returns their answers.
Answers = Callable[[JudgePlan, Mapping[int, Sequence[PlannedFile]]], pa.Table]


def judge_on_spark(
    evidence_dir: Path | str,
    spark: SparkSession,
    *,
    history: str | None = None,
    findings_max: int = FINDINGS_MAX,
    rows_at_once_max: int = ROWS_AT_ONCE_MAX,
    after: HistoryChain | None = None,
    keys: KeyTarget | None = None,
    progress: Progress | None = None,
) -> JudgedWindow:
    """Judges an evidence folder (path or URL that every worker sees).

    `history` is the history's place, if evidence.json names another place.
    `after` is the history's chain that an older audit has verified.
    `keys` is the target into which tasks write every judged key.
    `progress` gets the number of finished prefixes, at most 64, from another thread.
    Raises AuditError("inputs") with the file that fails a check, and AuditError("engine") with Spark's message.
    """

    def load() -> Evidence:
        evidence = load_evidence(
            evidence_dir,
            history=history,
            findings_a_prefix=findings_a_prefix(findings_max),
            rows_at_once_max=rows_at_once_max,
            after=after,
        )
        one_of = {file.root: file.path for files in evidence.files.values() for file in files}
        require_seen(spark, [(place_of(str(evidence_dir)), EVIDENCE_JSON), *one_of.items()])
        return evidence

    return _judged(load, spark_answers(spark, progress, keys), findings_max)


def judge_here(
    evidence_dir: Path | str,
    *,
    history: str | None = None,
    findings_max: int = FINDINGS_MAX,
    rows_at_once_max: int = ROWS_AT_ONCE_MAX,
    after: HistoryChain | None = None,
    keys: KeyTarget | None = None,
    progress: Progress | None = None,
) -> JudgedWindow:
    """Judges an evidence folder without Spark. This process judges one prefix after the other."""
    load = partial(
        load_evidence,
        evidence_dir,
        history=history,
        findings_a_prefix=findings_a_prefix(findings_max),
        rows_at_once_max=rows_at_once_max,
        after=after,
    )
    return _judged(load, partial(_answers_here, progress, keys), findings_max)


def _judged(load: Callable[[], Evidence], answers: Answers, findings_max: int) -> JudgedWindow:
    """Judges the folder. Begins again if a file of the history was merged and deleted before it was read.

    Raises AuditError.
    """
    evidence = _loaded(load)
    for _ in range(CHAIN_READINGS_MAX):
        try:
            return judged_by(evidence, answers, findings_max)
        except AuditError:
            before, evidence = evidence, _loaded(load)
            if before.history.paths <= evidence.history.paths:
                raise
    return judged_by(evidence, answers, findings_max)


def _loaded(load: Callable[[], Evidence]) -> Evidence:
    """Loads the facts of all prefixes. Rounds of many subscriptions take more memory than a prefix does."""
    with bounded_memory("the evidence", bytes_max=None):
        return load()


def judged_by(
    evidence: Evidence,
    answers: Answers,
    findings_max: int,
) -> JudgedWindow:
    """Asks for the answers of all prefixes and merges them."""
    table = answers(evidence.plan, evidence.files)
    return judged_window(evidence, merged(table, len(evidence.plan.subscriptions), evidence.files), findings_max)


def findings_a_prefix(findings_max: int) -> int:
    """Computes the findings that a prefix may return: twice its share.

    The limit bounds the driver's memory and cuts few prefixes too early.
    """
    return max(1, -(-2 * findings_max // PREFIXES))


def spark_answers(spark: SparkSession, progress: Progress | None, keys: KeyTarget | None = None) -> Answers:
    """Judges all prefixes by one Spark job and returns their answers."""

    def run(plan: JudgePlan, files: Mapping[int, Sequence[PlannedFile]]) -> pa.Table:
        tasks = _tasks(spark)
        by_prefix = None if progress is None else lambda done: progress(done * PREFIXES // tasks)
        with spark_errors(), watched(spark, tasks, by_prefix):
            return judged_prefixes(spark.range(0, PREFIXES, 1, tasks), plan, files, keys).toArrow()

    return run


def _tasks(spark: SparkSession) -> int:
    """Chooses the number of tasks: many per core, so that all cores end at about the same time.

    With few cores there are fewer tasks than prefixes, because every task costs some 10 ms.
    """
    cores = PREFIXES if is_connect(spark) else spark.sparkContext.defaultParallelism
    return max(_TASKS_MIN, min(PREFIXES, _TASKS_A_CORE * cores))


def judged_prefixes(
    prefixes: DataFrame,
    plan: JudgePlan,
    files: Mapping[int, Sequence[PlannedFile]],
    keys: KeyTarget | None = None,
) -> DataFrame:
    """Maps prefixes (column `id`) to result rows (merge.RESULT_SCHEMA)."""
    return mapped(prefixes, _task(plan, files, keys), RESULT_DDL)


def _task(plan: JudgePlan, files: Mapping[int, Sequence[PlannedFile]], keys: KeyTarget | None) -> Task:
    # A year's history names 100 000 files, so each task unpickles only those of its own prefixes.
    packed_plan = pickle.dumps(plan)
    packed_files = {prefix: pickle.dumps(tuple(of)) for prefix, of in files.items()}

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = (prefix for batch in batches for prefix in batch.column(0).to_pylist())
        yield from _answers(
            pickle.loads(packed_plan),  # noqa: S301 - made above
            ((prefix, pickle.loads(packed_files[prefix])) for prefix in own),  # noqa: S301 - made above
            keys,
        )

    return task


def _answers_here(
    progress: Progress | None,
    keys: KeyTarget | None,
    plan: JudgePlan,
    files: Mapping[int, Sequence[PlannedFile]],
) -> pa.Table:
    found: list[pa.RecordBatch] = []
    for answer in _answers(plan, files.items(), keys):
        found.append(answer)
        if progress is not None:
            progress(min(len(found), PREFIXES))
    return pa.Table.from_batches(found)


def _answers(
    plan: JudgePlan, files: Iterable[tuple[int, Sequence[PlannedFile]]], keys: KeyTarget | None
) -> Iterator[pa.RecordBatch]:
    """Yields the answers for one task's prefixes, then the task's files of judged keys."""
    prefix = -1
    with ExitStack() as written:
        key_files = None if keys is None else written.enter_context(KeyFiles(keys, plan))
        for prefix, of_prefix in files:
            try:
                with bounded_memory(f"a file of prefix={prefix:02d}"):
                    judged = judge_prefix(plan, prefix, of_prefix, key_files)
                yield result_rows(prefix, judged)
            except AuditError as error:
                yield error_rows(prefix, error)
        if key_files is None:
            return
        try:
            named = key_files.finish()
        except AuditError as error:
            yield error_rows(prefix, error)
            return
        if named:
            yield key_file_rows(prefix, named)
