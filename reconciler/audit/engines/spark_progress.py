"""Reports how many tasks of a running Spark job have ended. Another thread reports while the caller waits."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Function that gets the number of finished prefixes. The number never falls.
Progress = Callable[[int], None]

_LOOK_SECONDS = 0.25


@contextlib.contextmanager
def watched(spark: SparkSession, tasks: int, progress: Progress | None) -> Iterator[None]:
    """Reports finished tasks to `progress` while the block runs.

    If the block ends without an error, reports all tasks.
    """
    if progress is None:
        yield
        return
    forwarder = _ProgressForwarder(progress, tasks)
    if is_connect(spark):
        with _connect(spark, forwarder):
            yield
    else:
        with _classic(spark, forwarder):
            yield
    forwarder.forward(tasks)


class _ProgressForwarder:
    """Forwarder of growing numbers. It forwards no number above `most`."""

    def __init__(self, progress: Progress, most: int) -> None:
        self._progress = progress
        self._most = most
        self._last = -1

    def forward(self, done: int) -> None:
        """Forwards a number if it is larger than every earlier number."""
        done = min(done, self._most)
        if done > self._last:
            self._last = done
            self._progress(done)


def is_connect(spark: SparkSession) -> bool:
    """True if the session is a Spark Connect client, which has no SparkContext."""
    return "pyspark.sql.connect" in type(spark).__module__


@contextlib.contextmanager
def _connect(spark: SparkSession, forwarder: _ProgressForwarder) -> Iterator[None]:
    def handler(*_: Any, **seen: Any) -> None:
        forwarder.forward(sum(stage.num_completed_tasks for stage in seen.get("stages") or ()))

    registered: Any = handler  # pyspark's type has no public name; a plain function serves
    spark.registerProgressHandler(registered)
    try:
        yield
    finally:
        spark.removeProgressHandler(registered)


@contextlib.contextmanager
def _classic(spark: SparkSession, forwarder: _ProgressForwarder) -> Iterator[None]:
    tracker = spark.sparkContext.statusTracker()
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_SECONDS):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            forwarder.forward(sum(stage.numCompletedTasks for stage in stages if stage is not None))

    thread = threading.Thread(target=look, name="audit-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
