"""`systemctl` for the shells of tests: starts and stops the processes of a file of units, one program each.

python units.py FOLDER start|stop|restart|kill|is-active UNIT...: FOLDER/units.json has the words of each one.
What a process prints is in FOLDER/UNIT.log. As under systemd, a unit counts as started when it has said so, where it
knows how to, and as stopped when its process is gone. Standard library only.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["Units"]

#: These say READY=1 (Type=notify of their units).
SAY_READY = frozenset({"reconciler", "reconciler-sweep"})
STOP_SECONDS = 60.0


class Units:
    """The units of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def define(self, units: Mapping[str, Sequence[str]]) -> None:
        """Words of the program of each unit."""
        (self._folder / "units.json").write_text(json.dumps(units))

    def install(self, programs: Path) -> None:
        """Puts `systemctl` into a folder of PATH."""
        program = programs / "systemctl"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {__file__} {self._folder} "$@"\n')
        program.chmod(0o755)

    def do(self, act: str, unit: str) -> int:
        """The exit code of systemctl."""
        name = unit.removesuffix(".service")
        if act == "is-active":
            print("active" if self._pid(name) else "inactive", flush=True)  # noqa: T201 - the answer
            return 0 if self._pid(name) else 3
        if act in {"stop", "restart", "kill"}:
            self._end(name, signal.SIGKILL if act == "kill" else signal.SIGTERM)
        if act in {"start", "restart"} and not self._pid(name):
            self._start(name)
        return 0

    def end_all(self) -> None:
        """Kills what runs."""
        for pid_file in self._folder.glob("*.pid"):
            self._end(pid_file.stem, signal.SIGKILL)

    def _start(self, name: str) -> None:
        words = json.loads((self._folder / "units.json").read_text())[name]
        address = self._folder / f"{name}.notify"
        address.unlink(missing_ok=True)
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener,
            (self._folder / f"{name}.log").open("ab") as log,
        ):
            listener.bind(str(address))
            listener.settimeout(STOP_SECONDS)
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "NOTIFY_SOCKET": str(address)},
                start_new_session=True,
            )
            state = _state(process.pid)
            (self._folder / f"{name}.pid").write_text(f"{process.pid} {state[1] if state else 0}")
            while name in SAY_READY and b"READY=1" not in listener.recv(4096):
                pass

    def _end(self, name: str, number: signal.Signals) -> None:
        pid = self._pid(name)
        if pid is None:
            return
        os.kill(pid, number)
        deadline = time.monotonic() + STOP_SECONDS
        while self._pid(name) is not None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} does not stop")
            time.sleep(0.01)

    def _pid(self, name: str) -> int | None:
        """None where nothing of it runs; one that has ended and was not waited for runs no more."""
        try:
            pid, started = (self._folder / f"{name}.pid").read_text().split()
        except FileNotFoundError:
            return None
        state = _state(int(pid))
        return int(pid) if state is not None and state == ("lives", started) else None


def _state(pid: int) -> tuple[str, str] | None:
    """Whether it lives, and when it started: a pid is given to another process in time."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return "dead" if words[0] == "Z" else "lives", words[19]


if __name__ == "__main__":
    _, folder, act, *units = sys.argv
    sys.exit(max(Units(Path(folder)).do(act, unit) for unit in units))
