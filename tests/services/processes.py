"""A child process that is always stopped, by its own id, and whose last words are shown when it fails."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.polling import PATIENCE


class ServiceFailed(RuntimeError):
    """A service did not start, or died; the message carries the end of its log."""


def tail(log: Path, *, lines: int = 40) -> str:
    """The last lines of a log, for messages."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return f"(no log: {error})"
    return "\n".join(text.splitlines()[-lines:])


#: Of a thread that executes nothing: stopped, traced, dead.
STANDING = frozenset("TtZXx")


def freeze(*pids: int) -> None:
    """SIGSTOP; returns when every thread stands still: kill() returns while threads on other cores go on.

    Raises ServiceFailed when one of them does not stop within ten seconds.
    """
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + 10 * PATIENCE
    while not all(_stands(pid) for pid in pids):
        if time.monotonic() > deadline:
            raise ServiceFailed(f"not stopped by SIGSTOP within {10 * PATIENCE:g} s: {pids}")
        time.sleep(0.001)


def thaw(*pids: int) -> None:
    """SIGCONT: what was asked meanwhile is read now."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _stands(pid: int) -> bool:
    states = []
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            states.append(stat.read_text().rpartition(")")[2].split()[0])
    return STANDING.issuperset(states)


class Child:
    """One process in a group of its own, its output in a log file. Confined to the test that started it."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.command = [str(part) for part in command]
        self.log = log
        with log.open("ab") as sink:
            self._process = subprocess.Popen(
                self.command,
                cwd=cwd,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        atexit.register(self.kill)

    @property
    def pid(self) -> int:
        """The process id, also its group's."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def until(self, ready: Callable[[], bool], *, within_seconds: float, what: str) -> None:
        """Waits until it is ready; raises ServiceFailed with the log if it dies or is late."""
        deadline = time.monotonic() + within_seconds * PATIENCE
        while not ready():
            code = self.exit_code
            if code is not None:
                raise ServiceFailed(f"{what} ended with {code}\n{tail(self.log)}")
            if time.monotonic() > deadline:
                raise ServiceFailed(f"{what} was not ready within {within_seconds * PATIENCE:g} s\n{tail(self.log)}")
            time.sleep(0.02)

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal to the process group; nothing if it is gone."""
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def stop(self, *, within_seconds: float = 20.0, number: signal.Signals = signal.SIGTERM) -> int:
        """Asks it to stop, insists after the time; returns the exit code."""
        self.send_signal(number)
        try:
            return self._process.wait(within_seconds)
        except subprocess.TimeoutExpired:
            return self.kill()
        finally:
            atexit.unregister(self.kill)

    def kill(self) -> int:
        """kill -9."""
        self.send_signal(signal.SIGKILL)
        code = self._process.wait(60)
        atexit.unregister(self.kill)
        return code
