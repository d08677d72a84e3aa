"""The Spark job: the same answer as without Spark, and errors that name what is wrong."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reconciler.audit.engines.job import judge_here, judge_on_spark
from reconciler.audit.errors import AuditError
from tests.audit.random_evidence import random_evidence
from tests.audit.small_evidence import SmallEvidence

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_evidence(5, keys=400).write(tmp_path_factory.mktemp("evidence"), parts=2)


@pytest.mark.promise("U1")
def test_spark_says_what_one_process_says(spark: SparkSession, folder: Path) -> None:
    told: list[int] = []
    found = judge_on_spark(folder, spark, progress=told.append)
    assert repr(found) == repr(judge_here(folder))
    assert found.violations > 0
    assert told == sorted(told)
    assert told[-1] == 64


def test_where_the_evidence_lies_changes_nothing(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(folder, tmp_path / "an other place, with spaces")
    assert repr(judge_on_spark(moved, spark)) == repr(judge_here(folder))


def test_a_file_that_is_altered_is_named_and_nobody_retries(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    victim = sorted((copy / "inbox").rglob("*.parquet"))[3]
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(bytes(data))
    with pytest.raises(AuditError) as raised:
        judge_on_spark(copy, spark)
    assert raised.value.reason == "inputs"
    assert str(victim.relative_to(copy)) in str(raised.value)


def test_of_several_bad_files_the_same_one_is_named_every_time(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    for victim in (copy / "outbox").rglob("*.parquet"):
        victim.write_bytes(b"")
    messages = set()
    for _ in range(2):
        with pytest.raises(AuditError) as raised:
            judge_on_spark(copy, spark)
        messages.add(str(raised.value))
    with pytest.raises(AuditError) as raised:
        judge_here(copy)
    assert messages == {str(raised.value)}


def test_an_engine_that_fails_is_no_answer(spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug or a lost worker must end in reason "engine", never in a partial answer."""

    def broken(batches: Any) -> Any:
        for _ in batches:
            raise MemoryError("no more")
        yield

    monkeypatch.setattr("reconciler.audit.engines.job._task", lambda plan, files, keys: broken)
    with pytest.raises(AuditError, match="no more") as raised:
        judge_on_spark(folder, spark)
    assert raised.value.reason == "engine"


def test_a_prefix_that_does_not_answer_is_no_answer(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(batches: Any) -> Any:
        yield from [batch for batch in batches if batch.num_rows < 0]

    monkeypatch.setattr("reconciler.audit.engines.job._task", lambda plan, files, keys: silent)
    with pytest.raises(AuditError, match="were not answered") as raised:
        judge_on_spark(folder, spark)
    assert raised.value.reason == "engine"


def test_findings_beyond_the_bound_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    evidence = SmallEvidence()
    for number in range(300):
        evidence.add("outbox", number.to_bytes(16, "big"))
    found = judge_on_spark(evidence.write(tmp_path), spark, findings_max=100)
    assert len(found.findings) == 100
    assert found.findings_omitted == {"NOT_ANNOUNCED_NOT_FOUND": 200}
    assert found.classes["NOT_ANNOUNCED_NOT_FOUND"] == found.violations == 300


def test_unknown_columns_are_ignored(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    from tests.audit.small_evidence import seal_again

    copy = shutil.copytree(folder, tmp_path / "copy")
    victim = sorted((copy / "outbox").rglob("*.parquet"))[0]
    table = pq.ParquetFile(victim).read()
    path = str(victim.relative_to(copy))
    seal_again(copy, path, table.append_column("colour", pa.array(["red"] * table.num_rows)))
    assert judge_on_spark(copy, spark).subscriptions == judge_here(folder).subscriptions
