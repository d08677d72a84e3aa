"""Opens the Spark session for audits. The session is the same on a laptop, under spark-submit and in tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from reconciler.audit.engines.spark_errors import cause_line
from reconciler.audit.errors import AuditError
from reconciler.contract.extras import install

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EVERYWHERE = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    # Python workers compute, and the JVM only schedules tasks. Such a JVM ends before optimized code would save time.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def open_session(master: str | None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Opens a classic session. With `master` None, spark-submit names the master.

    Raises AuditError("configuration") if PySpark is missing, and AuditError("engine") if Spark does not start.
    """
    # PATH may lead to a Python of another minor version. Workers of such a Python would refuse to work with this
    # process.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise AuditError("configuration", f"PySpark is missing: {install('audit')}") from error
    builder = SparkSession.builder.appName("reconciler audit")
    if master is not None:
        builder = builder.master(master)
    is_local = master is not None and master.startswith("local")
    for name, value in {**_EVERYWHERE, **(_LOCAL if is_local else {}), **(settings or {})}.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        raise AuditError(
            "engine",
            f"Spark does not start ({cause_line(error)}); it needs Java 17 or newer (JAVA_HOME, or java on PATH), "
            "memory, and room in its scratch folder (--spark spark.local.dir=PATH)",
        ) from error
    return session
