"""The Spark session of an audit. This module starts, asks and ends the session.

No part of a session outlives the process. Under spark-submit the session is the submitted one. Otherwise a JVM is
started as a child, and for a master that is not local the package travels to the executors as a zip.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from reconciler.audit.collect.tasks import Answer, SeeTask, Task, answer, files_of
from reconciler.audit.engines.package import ZIP_NAME, write_zip
from reconciler.audit.engines.spark_errors import spark_errors
from reconciler.audit.engines.spark_progress import is_connect
from reconciler.audit.engines.spark_session import open_session
from reconciler.audit.errors import AuditError
from reconciler.audit.streams import remark
from reconciler.contract.extras import install

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JAVA_MAJOR_MIN = 17
JAVA_SECONDS = 30
#: Number of tasks that gives a task to each of the few executors at the start.
SEEING_TASKS_MIN = 16
#: Packages that every task needs.
EXECUTORS_IMPORT = ("reconciler", "numpy", "pyarrow", "sqlalchemy")
#: Time in which a JVM has to end by itself.
STOP_SECONDS = 10
T = TypeVar("T")
_VERSION = re.compile(r'version "(\d+)')


def under_spark_submit(environ: Mapping[str, str] = os.environ) -> bool:
    """True if a JVM has started this process."""
    return "PYSPARK_GATEWAY_PORT" in environ


def require_pyspark() -> None:
    """Raises AuditError("configuration") if PySpark is missing."""
    if importlib.util.find_spec("pyspark") is None:
        raise AuditError(
            "configuration",
            f"the package pyspark is missing: {install('audit')}, or judge without Spark: --engine here",
        )


def require_java(environ: Mapping[str, str] = os.environ) -> None:
    """Raises AuditError("configuration") if there is no Java on which Spark 4 runs."""
    remedy = f"install Java {JAVA_MAJOR_MIN} or newer (Debian, Ubuntu: apt-get install openjdk-17-jre-headless)"
    home = environ.get("JAVA_HOME")
    program = f"{home}/bin/java" if home else shutil.which("java", path=environ.get("PATH"))
    if program is None:
        raise AuditError("configuration", f"Java is missing, and Spark needs it: {remedy}, or set JAVA_HOME")
    try:
        answer = subprocess.run(  # noqa: S603 - JAVA_HOME and PATH are the user's
            [program, "-version"], capture_output=True, text=True, timeout=JAVA_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AuditError("configuration", f"{program} cannot be run ({error}): {remedy}, or set JAVA_HOME") from error
    found = _VERSION.search(answer.stderr + answer.stdout)
    if found is None or int(found[1]) < JAVA_MAJOR_MIN:
        is_what = f"is Java {found[1]}" if found else "does not tell its version"
        raise AuditError("configuration", f"{program} {is_what}, and Spark needs {JAVA_MAJOR_MIN}: {remedy}")


@contextlib.contextmanager
def spark_session(master: str | None, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Opens a session. The session's JVM ends with the block.

    Raises AuditError("engine") if the session does not start.

    With `master` None, the master is local[*] or the master of spark-submit.
    """
    if not under_spark_submit():
        require_java()
        master = master or "local[*]"
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # otherwise Spark warns about the host's name
    # The warning is about pandas 3, with which `audit` was tested; pyproject.toml pins the versions.
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    spark: SparkSession | None = None
    with contextlib.ExitStack() as at_the_end:
        at_the_end.callback(lambda: _end(spark))
        spark = open_session(master, settings)
        if not under_spark_submit() and not (master or "").startswith("local"):
            with spark_errors():
                folder = at_the_end.enter_context(tempfile.TemporaryDirectory(prefix="reconciler-audit-"))
                spark.sparkContext.addPyFile(str(write_zip(Path(folder) / ZIP_NAME)))
        yield spark


def run_on(spark: SparkSession, function: Callable[[Task], Answer], tasks: Sequence[Task]) -> list[Answer]:
    """Runs each task as one Spark task and returns the answers in the same order. Raises AuditError("engine")."""
    packed = [pickle.dumps(task) for task in tasks]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                done = pickle.dumps(function(pickle.loads(packed[number])))  # noqa: S301 - made above
                yield pa.RecordBatch.from_arrays(
                    [pa.array([number], pa.int64()), pa.array([done], pa.binary())], names=["number", "answer"]
                )

    with spark_errors():
        numbers = spark.range(0, len(packed), 1, len(packed))
        rows = mapped(numbers, run, "number bigint, answer binary").collect()
    answers = {row["number"]: pickle.loads(row["answer"]) for row in rows}  # noqa: S301 - made by our own tasks
    if sorted(answers) != list(range(len(packed))):
        raise AuditError("engine", f"Spark answered {len(answers)} of {len(packed)} tasks; run again")
    return [answers[number] for number in range(len(packed))]


def mapped(
    rows: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], ddl: str
) -> DataFrame:
    """Calls mapInArrow without PySpark's warning about pandas 3. mapInArrow uses no pandas."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        return rows.mapInArrow(function, ddl)


def require_seen(spark: SparkSession, files: Sequence[tuple[str, str]], *, writes: Path | None = None) -> None:
    """Checks that every present executor sees these files and can write into `writes`.

    Each file is given as a folder or URL, and a path below. The check runs before the hours of work. An executor that
    starts later reports by itself what it lacks. Processes of one machine see the same files. They are checked for
    packages only if their Python differs from this process's. Raises AuditError("engine") with host and path, and
    AuditError("configuration") with host and package.
    """
    if is_on_this_machine(spark):
        if spark.sparkContext.pythonExec != sys.executable:
            _require_packages(spark, 1)
        return
    tasks = _seeing_tasks(spark)
    _require_packages(spark, tasks)
    task = SeeTask(files=tuple(files), writes=None if writes is None else str(writes))
    files_of(run_on(spark, answer, [task] * tasks))


def is_on_this_machine(spark: SparkSession) -> bool:
    """True if the executors run on this machine."""
    return not is_connect(spark) and str(spark.sparkContext.master).startswith("local")


def _seeing_tasks(spark: SparkSession) -> int:
    """Chooses a number of tasks that gives each executor a task."""
    from pyspark.errors import PySparkException

    if not is_connect(spark):
        return max(SEEING_TASKS_MIN, 2 * spark.sparkContext.defaultParallelism)
    master = ""
    with contextlib.suppress(PySparkException):  # a server may hide its master
        master = spark.conf.get("spark.master", "") or ""
    # A server with a local master is the only executor. The server may be on another machine.
    return 1 if master.startswith("local") else 2 * SEEING_TASKS_MIN


def _require_packages(spark: SparkSession, tasks: int) -> None:
    """Raises AuditError("configuration") if a host's Python lacks packages.

    The message names the hosts and the packages.
    """
    names = EXECUTORS_IMPORT

    # The function belongs to no module, so Spark pickles it by value. Spark passes the rows by pickle, not by Arrow. So
    # the function runs where neither this package nor pyarrow can be imported.
    def lacking(_number: int) -> str:
        import socket
        from importlib.util import find_spec

        return ", ".join(f"{name} on {socket.gethostname()}" for name in names if find_spec(name) is None)

    from pyspark.sql.types import StringType

    # PySpark has other functions for each kind of session.
    functions: Any = import_module(f"pyspark.sql.{'connect.' if is_connect(spark) else ''}functions")
    asked = functions.udf(lacking, StringType(), useArrow=False)("id").alias("lacking")
    with spark_errors():
        rows = spark.range(0, tasks, 1, tasks).select(asked).collect()
    found = sorted({row["lacking"] for row in rows} - {""})
    if found:
        raise AuditError(
            "configuration", f"executors lack packages: {', '.join(found)}; in their Python {install('audit-here')}"
        )


def with_properties(spark: SparkSession, function: Callable[[], T]) -> Callable[[], T]:
    """Wraps the function for another thread, with the local properties and tags of the calling thread."""
    from pyspark import inheritable_thread_target

    wrapped: Callable[[], T] = inheritable_thread_target(spark)(function)
    return wrapped


def tag_jobs(spark: SparkSession, tag: str) -> None:
    """Tags the Spark jobs of the calling thread."""
    if is_connect(spark):
        spark.addTag(tag)
    else:
        spark.sparkContext.addJobTag(tag)  # only the thread that sets a session's tags knows the tags


def end_jobs(spark: SparkSession, tag: str) -> None:
    """Ends the jobs with this tag. The jobs may belong to any thread."""
    with contextlib.suppress(Exception):  # Spark may have ended already
        if is_connect(spark):
            spark.interruptTag(tag)
        else:
            spark.sparkContext.cancelJobsWithTag(tag)


def engine_name(spark: SparkSession) -> str:
    """Names the engine and its place for people."""
    return f"spark {spark.version} {'over Connect' if is_connect(spark) else spark.sparkContext.master}"


def _end(spark: SparkSession | None) -> None:
    """Stops the session and waits for its JVM. A JVM that does not end is killed."""
    if under_spark_submit():
        if spark is not None:
            spark.stop()
        return
    from pyspark import SparkContext

    gateway = SparkContext._gateway  # noqa: SLF001 - PySpark has no public way to its JVM
    child: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if spark is not None:
        with contextlib.suppress(Exception):  # the JVM may have ended already
            spark.stop()
    if gateway is None or child is None:
        _end_unfinished_start()
        return
    with contextlib.suppress(Exception):
        gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - a later session starts its own JVM
    if child.stdin is not None:
        child.stdin.close()  # the JVM waits for the end of its standard input
    try:
        child.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        remark("reconciler audit: the JVM did not end and was killed\n")
        child.kill()
        child.wait()


def _end_unfinished_start() -> None:
    """Kills a JVM whose start was interrupted, because PySpark no longer knows such a JVM. Works on Linux only.

    On other systems the JVM ends by itself once its standard input is closed.
    """
    for children in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for pid in map(int, children.read_text().split()):
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                if b"org.apache.spark" in command or b"spark-submit" in command:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
