"""A Spark Connect server on loopback, started from PySpark's own distribution and stopped by its own ids."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.audit.audit_process import descendants, processes
from tests.services.ports import free_port
from tests.services.processes import Child, tail

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_SECONDS = 300.0
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_LOCAL = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.ui.enabled": "false"}


@contextmanager
def connect_server(
    folder: Path, *, python: str = sys.executable, settings: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Its address, until the block ends. `python`: that of its tasks; `folder`: where it works."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    home = Path(spec.submodule_search_locations[0])
    port = free_port()
    folder.mkdir(parents=True)
    command: list[str | Path] = [home / "bin" / "spark-submit", "--master", "local[2]", "--driver-memory", "512m"]
    of_port = {"spark.connect.grpc.binding.port": str(port)}
    for name, value in {**_LOCAL, **of_port, **(settings or {})}.items():
        command += ["--conf", f"{name}={value}"]
    environment = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": python}
    log = folder / "server.log"
    server = Child([*command, "--class", _SERVER, "spark-internal"], log=log, cwd=folder, environment=environment)
    try:
        server.until(
            lambda: "Spark Connect server started at" in tail(log, lines=400),
            within_seconds=START_SECONDS,
            what="the Spark Connect server",
        )
        yield f"sc://127.0.0.1:{port}"
    finally:
        below = descendants(server.pid, processes())
        server.stop()
        seen = processes()
        for pid in below:  # Python workers that it left behind
            if pid in seen and "pyspark" in seen[pid].command:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@contextmanager
def connected(address: str) -> Iterator[SparkSession]:
    """A session of its own on the server, in the mode that SparkSession.builder.remote sets.

    That one refuses where a classic session is running, as those of other tests in this process may be.
    """
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
        session: Any = ConnectSession.builder.remote(address).create()
        try:
            yield session
        finally:
            session.stop()
