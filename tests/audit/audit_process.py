"""The audit as users start it: a process of its own, its output in files, the JVM under it found by parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.ended import Ended
from tests.polling import eventually

#: A loaded machine starts Spark in minutes.
SECONDS = 600.0
MODULE = (sys.executable, "-P", "-m", "reconciler.audit")


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


@contextmanager
def _sigint_not_ignored() -> Iterator[None]:
    """A shell lets what it starts in the background ignore SIGINT, and so all that follows from it."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class RunningAudit:
    """One that is still running; leaving the block kills its whole group."""

    def __init__(
        self, folder: Path, command: Sequence[str | Path], environment: Mapping[str, str] | None = None
    ) -> None:
        self._out, self._err = folder / "stdout.txt", folder / "stderr.txt"
        with self._out.open("wb") as out, self._err.open("wb") as err, _sigint_not_ignored():
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
            self.require_running()
            seen = processes()
            return next((pid for pid in descendants(self.process.pid, seen) if seen[pid].is_spark), None)

        return eventually(found, within_seconds=SECONDS, message="a JVM runs")

    def require_running(self) -> None:
        """Raises RuntimeError, with what it said, once it has ended: waiting for it would be in vain."""
        if self.process.poll() is not None:
            raise RuntimeError(f"ended with {self.process.poll()}\n{self._err.read_text(errors='replace')[-3000:]}")

    def ended(self) -> Ended:
        """Waits for it."""
        code = self.process.wait(SECONDS)
        return Ended(code, self._out.read_text(), self._err.read_text(errors="replace"))


@dataclass(frozen=True)
class Process:
    """One process as ps sees it."""

    parent: int
    command: str

    @property
    def is_spark(self) -> bool:
        """Whether a JVM of Spark runs there (not the shell script that starts it)."""
        return "/java " in f" {self.command} " and "org.apache.spark" in self.command


def processes() -> dict[int, Process]:
    """All of this machine, in one look."""
    told = subprocess.run(["ps", "-e", "-ww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
    rows = (line.split(maxsplit=2) for line in told.stdout.splitlines())
    return {int(row[0]): Process(int(row[1]), row[2]) for row in rows if len(row) == 3}


def descendants(pid: int, seen: Mapping[int, Process]) -> list[int]:
    """Children and theirs."""
    found: list[int] = []
    wave = [pid]
    while wave:
        wave = [child for child, process in seen.items() if process.parent in wave]
        found += wave
    return found


def is_gone(pid: int) -> bool:
    """Whether the process has ended."""
    process = processes().get(pid)
    return process is None or "<defunct>" in process.command
