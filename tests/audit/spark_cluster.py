"""A standalone Spark cluster on loopback, started from PySpark's own distribution and stopped by its own ids."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.audit.audit_process import descendants, processes
from tests.audit.full_disk import may_mount
from tests.services.ports import free_port
from tests.services.processes import Child, tail

START_SECONDS = 300.0
_HIDE = 'mount -t tmpfs tmpfs "$1" && shift && exec "$@"'


class SparkCluster:
    """A master and workers of one core each. `hidden`: a folder that the workers see empty, as if they had a disk of
    their own there; where the kernel forbids that, they see it as it is."""

    def __init__(self, folder: Path, *, workers: int = 1, hidden: Path | None = None) -> None:
        spec = find_spec("pyspark")
        assert spec is not None
        assert spec.submodule_search_locations is not None
        self.home = Path(spec.submodule_search_locations[0])
        self.port = free_port()
        self._folder = folder
        self._workers = workers
        self._hiding: list[str | Path] = []
        if hidden is not None and may_mount():
            self._hiding = ["unshare", "-Urm", "sh", "-c", _HIDE, "hide", hidden]
        self._children: list[Child] = []

    @property
    def url(self) -> str:
        """For --master."""
        return f"spark://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What the cluster's processes and spark-submit need."""
        python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        return {"SPARK_HOME": str(self.home), "SPARK_LOCAL_IP": "127.0.0.1", **python}

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True)
        try:
            master = ["deploy.master.Master", "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0"]
            self._start("master", master, "I have been elected leader")
            for number in range(self._workers):
                work = str(self._folder / f"work-{number}")
                options = ["--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", work, self.url]
                worker = ["deploy.worker.Worker", "--host", "127.0.0.1", *options]
                self._start(f"worker-{number}", worker, "Successfully registered with master", self._hiding)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in reversed(self._children):
            below = descendants(child.pid, processes())
            child.stop()
            seen = processes()
            for pid in below:  # executors that a worker left behind
                if pid in seen and seen[pid].is_spark:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    def executors(self) -> list[int]:
        """JVMs that run tasks and have started Python workers: they are in the middle of something."""
        seen = processes()
        found = [pid for worker in self._children[1:] for pid in descendants(worker.pid, seen) if seen[pid].is_spark]
        return [pid for pid in found if any("pyspark" in seen[below].command for below in descendants(pid, seen))]

    def _start(self, name: str, arguments: list[str], ready: str, through: Sequence[str | Path] = ()) -> None:
        log = self._folder / f"{name}.log"
        command: list[str | Path] = [
            *through,
            self.home / "bin" / "spark-class",
            f"org.apache.spark.{arguments[0]}",
            *arguments[1:],
        ]
        child = Child(command, log=log, environment=self.environment)
        self._children.append(child)
        child.until(lambda: bool(re.search(ready, tail(log, lines=400))), within_seconds=START_SECONDS, what=name)
