"""Runs the programs of tests/brokers/java with the stock Java client of a version."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from tests.brokers.jars import cache_folder, client_jars, locked
from tests.polling import PATIENCE

SOURCE = Path(__file__).parent / "java" / "StockClient.java"
RUN_SECONDS = 150
#: How long a JVM that hangs may take to write down its threads, and lines of them that are shown.
DUMP_SECONDS = 10
THREAD_LINES = 200

Event = dict[str, Any]


def compiled(jars: Path, source: Path, version: str) -> Path:
    """Folder with the classes of a program, compiled once against the client's jars."""
    stamp = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    folder = cache_folder() / "classes" / f"{version}-{stamp}"
    with locked(f"javac-{version}"):
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder.parent))
            subprocess.run(
                ["javac", "-nowarn", "-Xlint:-options", "-cp", f"{jars}/*", "-d", str(partial), str(source)],
                check=True,
                timeout=180,
            )
            partial.rename(folder)
    return folder


def command_of(source: Path, jars: Sequence[Path], *, version: str, folder: Path) -> list[str]:
    """How to start a program of the source; the client's jars are the first ones."""
    return [
        "java",
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Duser.home={folder}",  # logs and offsets of the client go there
        "-Drocketmq.client.rebalance.waitInterval=1000",
        "-cp",
        os.pathsep.join([str(compiled(jars[0], source, version)), *(f"{one}/*" for one in jars)]),
        source.stem,
    ]


def run(scenario: str, *, version: str, name_servers: str, topic: str, folder: Path) -> list[Event]:
    """Runs a scenario to its end and returns the events it printed; fails with its output otherwise."""
    command = [
        *command_of(SOURCE, [client_jars(version)], version=version, folder=folder),
        scenario,
        name_servers,
        topic,
    ]
    output, errors = folder / f"{scenario}.out", folder / f"{scenario}.err"
    with output.open("wb") as out, errors.open("wb") as err:
        code = _code(command, out, err, folder)
    lines = output.read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines if line.startswith('{"event"')]
    if code != 0 or not events or events[-1]["event"] != "end":
        threads = [line for line in lines if not line.startswith('{"event"')] if code is None else lines[-30:]
        said = "\n".join([*threads[-THREAD_LINES:], *errors.read_text(encoding="utf-8").splitlines()[-30:]])
        raise AssertionError(f"{scenario} with client {version} ended with {code}, events {events}:\n{said}")
    return events


def _code(command: list[str], out: IO[bytes], err: IO[bytes], folder: Path) -> int | None:
    """The exit code; None for a JVM that hangs: it has written its threads to `out` (SIGQUIT) and was killed."""
    with subprocess.Popen(command, stdout=out, stderr=err, cwd=folder) as process:
        try:
            return process.wait(RUN_SECONDS * PATIENCE)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGQUIT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(DUMP_SECONDS)
            return None
        finally:
            process.kill()
