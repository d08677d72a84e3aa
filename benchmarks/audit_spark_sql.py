"""Plain Spark SQL's answer: the statement of audit_sql.py over the same files, in a session with Spark's defaults."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.audit_sql import VIEWS, Counts, read_evidence, statement, subscriptions, taken_tags

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SUBSCRIPTION = (
    "sid INT, topic STRING, consumer_group STRING, grace_ms BIGINT, late_ms BIGINT, every_tag BOOLEAN, "
    "outboxes_complete BOOLEAN"
)


def plain_session(folder: Path, *, cores: int, driver_memory: str) -> SparkSession:
    """Spark's defaults but for what a loopback run needs; `folder` takes its spilled files."""
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.appName("plain Spark SQL")
        .master(f"local[{cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", driver_memory)
        .config("spark.local.dir", str(folder))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def register_views(spark: SparkSession, folder: Path) -> None:
    """Temporary views over an evidence folder, by the names that the statement knows."""
    evidence = read_evidence(folder)
    for place, view in VIEWS.items():
        reader = spark.read.option("recursiveFileLookup", "true")
        reader.parquet(str(folder / place)).createOrReplaceTempView(view)
    spark.createDataFrame(subscriptions(evidence), _SUBSCRIPTION).createOrReplaceTempView("subscription")
    spark.createDataFrame(taken_tags(evidence), "sid INT, tag STRING").createOrReplaceTempView("taken")


def count(spark: SparkSession, folder: Path) -> Counts:
    """Runs the statement over the views."""
    evidence = read_evidence(folder)
    window = evidence["window"]
    rows = spark.sql(statement(window["start_ms"], window["end_ms"], evidence["skew_bound_ms"])).collect()
    return {(row["sid"], row["class"]): row["keys"] for row in rows}
