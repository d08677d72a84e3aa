"""The audit as users start it: a process of its own, its output in files, the JVM under it found by parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.polling import eventually

#: A loaded machine starts Spark in minutes.
SECONDS = 600.0
MODULE = (sys.executable, "-P", "-m", "reconciler.audit")


@dataclass(frozen=True)
class Ended:
    """What a process left."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON object on standard output."""
        found: dict[str, Any] = json.loads(self.stdout)
        return found


def audit(*arguments: str | Path, environment: Mapping[str, str] | None = None) -> Ended:
    """Runs one command to its end."""
    return run([*MODULE, *arguments], environment=environment)


def run(command: Sequence[str | Path], *, environment: Mapping[str, str] | None = None) -> Ended:
    """Any command."""
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        env={**os.environ, **(environment or {})},
    )
    return Ended(done.returncode, done.stdout, done.stderr)


class RunningAudit:
    """One that is still running; leaving the block kills its whole group."""

    def __init__(
        self, folder: Path, command: Sequence[str | Path], environment: Mapping[str, str] | None = None
    ) -> None:
        self._out, self._err = folder / "stdout.txt", folder / "stderr.txt"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def jvm(self) -> int:
        """Process id of the JVM below it, once there is one."""

        def found() -> int | None:
            assert self.process.poll() is None, self._err.read_text(errors="replace")
            return next((pid for pid in descendants(self.process.pid) if is_java(pid)), None)

        return eventually(found, within_seconds=SECONDS, message="a JVM runs")

    def ended(self) -> Ended:
        """Waits for it."""
        code = self.process.wait(SECONDS)
        return Ended(code, self._out.read_text(), self._err.read_text(errors="replace"))


def descendants(pid: int) -> list[int]:
    """Children and theirs, by /proc or ps."""
    told = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [tuple(map(int, line.split())) for line in told.splitlines() if line.strip()]
    found, wave = [], [pid]
    while wave:
        wave = [child for child, parent in pairs if parent in wave]
        found += wave
    return found


def command_of(pid: int) -> str:
    """The command line of a process; nothing if it is gone."""
    told = subprocess.run(["ps", "-p", str(pid), "-o", "args="], capture_output=True, text=True, check=False)
    return told.stdout.strip()


def is_java(pid: int) -> bool:
    """Whether a JVM runs there (not the shell script that starts it)."""
    return "/java " in f" {command_of(pid)} " and "org.apache.spark" in command_of(pid)


def is_gone(pid: int) -> bool:
    """Whether the process has ended."""
    return not command_of(pid) or "<defunct>" in command_of(pid)
