"""Kernel, DuckDB and plain Spark SQL: three ways to the same classes, on random evidence."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.audit_duckdb import DuckDbAudit
from benchmarks.audit_spark_sql import count, register_views
from benchmarks.audit_sql import Counts
from reconciler.audit.engines.job import judge_here
from tests.audit.random_evidence import plain_evidence
from tests.examples import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def kernel_counts(folder: Path) -> Counts:
    judged = judge_here(folder).subscriptions
    return {(sid, name): keys for sid, one in enumerate(judged) for name, keys in one.classes.items() if keys}


@pytest.mark.timeout(600)
@settings(max_examples=examples(6), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_duckdb_counts_what_the_kernel_counts(seed: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = plain_evidence(seed, keys=150).write(Path(name), seed=seed, parts=2, twice=seed % 2 == 1)
        duckdb = DuckDbAudit(folder, threads=1)
        try:
            assert duckdb.count() == kernel_counts(folder)
        finally:
            duckdb.close()


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_plain_spark_sql_counts_what_the_kernel_counts(spark: SparkSession, tmp_path: Path) -> None:
    folder = plain_evidence(1, keys=400).write(tmp_path, twice=True)
    register_views(spark, folder)
    assert count(spark, folder) == kernel_counts(folder)
