"""Turns errors of Spark, of the JVM and of disks into one AuditError with one or two lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from reconciler.audit.errors import AuditError

_LINE_MAX = 400
#: Beginnings of the lines that py4j and Spark put around an error.
_SAYING_NOTHING = ("SQLSTATE", "at ", "...", "An error occurred while calling", "Driver stacktrace")


@contextmanager
def spark_errors() -> Iterator[None]:
    """Raises AuditError("engine") for an error of Spark or Java in the block, for a lost JVM and for a lost disk."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, OSError) as error:
        raise AuditError("engine", f"Spark gave no answer: {cause_line(error)}") from error


def cause_line(error: BaseException) -> str:
    """Joins Spark's first line about the error and its root cause, without the stack.

    The root cause is the last "Caused by", or the last line of a Python worker's traceback.
    """
    lines = [line.strip().removeprefix(": ") for line in str(error).split("JVM stacktrace")[0].splitlines()]
    lines = [line for line in lines if line and not line.startswith(_SAYING_NOTHING)] or [type(error).__name__]
    causes = [line for line in lines if line.startswith("Caused by:")]
    cause = causes[-1] if causes else lines[-1]
    return " ... ".join(dict.fromkeys((lines[0][:_LINE_MAX], cause[:_LINE_MAX])))
