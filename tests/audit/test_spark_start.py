"""The quick start of Spark's JVMs: without it the audit's tests take far longer, and no test would show why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services.requirements import require, spark_missing
from tests.services.spark_start import environment

WHAT_THE_JVM_MAPS = """
from pathlib import Path
from reconciler.audit.engines.spark_session import open_session
session = open_session("local[1]", {"spark.driver.memory": "512m"})
print(Path("/proc", str(session.sparkContext._gateway.proc.pid), "maps").read_text())
print(session.sparkContext.getConf().get("spark.executor.extraJavaOptions"))
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="what a process has mapped is told by Linux only")
def test_a_driver_uses_the_classes_that_were_read_before_and_tells_its_executors() -> None:
    require(spark_missing())
    quick = environment()
    (archive,) = {word for word in quick["SPARK_DAEMON_JAVA_OPTS"].split() if word.endswith(".jsa")}
    name = archive.partition("=")[2]
    told = subprocess.run(
        [sys.executable, "-c", WHAT_THE_JVM_MAPS],
        env={**os.environ, **quick},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout
    *mapped, executors = told.splitlines()
    assert any(line.endswith(name) for line in mapped)
    assert name in executors
