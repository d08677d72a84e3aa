"""python -m tests.services.spark_start COMMAND ...: runs it with JVMs of Spark that start quickly.

Each test of the audit starts JVMs for seconds. Half of what such a start costs is optimizing code that is about to end
(off: the first compiler is enough), half of the rest is reading and verifying the same classes again (read once here,
and mapped by all of them). Where no archive can be made, JVMs start without one; a JVM whose class path is another one
leaves it alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.brokers.jars import cache_folder, locked
from tests.services.requirements import spark_java, spark_missing

COMPILES_QUICKLY = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
MAKING_SECONDS = 300
#: Of other environments and versions, 150 MiB each.
ARCHIVES_KEPT = 3

#: A session as the audit opens it, with one job of a Python function over Arrow.
_SESSION = """
from reconciler.audit.engines.spark_session import open_session
session = open_session("local[2]", {"spark.driver.memory": "512m"})
session.range(0, 64, 1, 4).mapInArrow(lambda batches: batches, "id long").toArrow()
session.stop()
"""


def environment() -> dict[str, str]:
    """What makes JVMs of drivers, executors, masters and workers quick; empty where there is no Spark."""
    java = spark_java()
    if java is None or spark_missing() is not None:
        return {}
    archive = _archive(java)
    # JVMs that do not fit the archive would say so on streams that tests read.
    mapped = f" -XX:SharedArchiveFile={archive} -Xshare:auto -Xlog:disable" if archive else ""
    return _environment(COMPILES_QUICKLY + mapped)


def _environment(options: str) -> dict[str, str]:
    # SparkSubmitCommandBuilder (launcher, 4.x) gives the first to a driver; SparkConf takes properties named spark.*.
    submitted = f'{options} "-Dspark.executor.extraJavaOptions={options}"'
    return {"SPARK_SUBMIT_OPTS": submitted, "SPARK_DAEMON_JAVA_OPTS": options}


def _archive(java: str) -> Path | None:
    """Classes of a session that has run a job, made once for this Java and this PySpark; None: it could not be made."""
    spec = importlib.util.find_spec("pyspark")
    version = subprocess.run([java, "-version"], capture_output=True, check=True, timeout=60).stderr
    origin = Path(spec.origin) if spec is not None and spec.origin is not None else Path()
    # A JVM maps no classes of jars that were installed again since, into the same place.
    spark = f"{importlib.metadata.version('pyspark')} {origin} {(origin.parent / 'jars').stat().st_mtime_ns}"
    made_for = f"{java} {spark} {COMPILES_QUICKLY} {_SESSION}".encode() + version
    path = cache_folder() / f"spark-classes-{hashlib.sha256(made_for).hexdigest()[:12]}.jsa"
    if " " in str(path):  # the options of a JVM are one line, split at spaces
        return None
    with locked("spark-classes"):
        if not path.exists():
            _make(path)
    return path if path.exists() else None


def _make(path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".partial-") as folder:
        partial = Path(folder) / path.name
        quickly = _environment(f"{COMPILES_QUICKLY} -XX:ArchiveClassesAtExit={partial} -Xlog:disable")
        with contextlib.suppress(subprocess.SubprocessError, FileNotFoundError):
            # Returns when the JVM, too, has left the pipe: it writes the archive as the last thing it does.
            subprocess.run(
                [sys.executable, "-c", _SESSION],
                env={**os.environ, **quickly},
                capture_output=True,
                check=True,
                timeout=MAKING_SECONDS,
            )
            partial.rename(path)
    made = sorted(path.parent.glob("spark-classes-*.jsa"), key=lambda known: known.stat().st_mtime)
    for old in made[:-ARCHIVES_KEPT]:
        old.unlink()


if __name__ == "__main__":
    os.environ.update(environment())
    os.execvp(sys.argv[1], sys.argv[1:])
