"""Hosts: where actors live. A host has one wall clock, which a run may set wrong, and forks its actors quickly."""

from __future__ import annotations

import itertools
import json
import os
import queue
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from tests.services.processes import ServiceFailed, tail

ROOT = Path(__file__).parents[2]
START_SECONDS = 180.0
#: Names the file with the nanoseconds by which a host's clock is wrong, one native int64.
CLOCK_FILE = "CHAOS_CLOCK_FILE"
#: Set where the clock is wrong for the whole process, not only for the product's own clock.
PRELOADED = "LD_PRELOAD"
_INT64 = struct.Struct("q")


def environment_of(release: Path) -> dict[str, str]:
    """For a process that runs a checkout's code: plug-ins, too, are its own, and not those that are installed."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (release, release / "producers", release / "consumers"))),
    }


def build_clock(folder: Path) -> Path | None:
    """Compiles the library that steps wall clocks; None without a C compiler."""
    library = folder / "wall_clock.so"
    source = Path(__file__).with_name("wall_clock.c")
    try:
        done = subprocess.run(
            ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=False, capture_output=True
        )
    except OSError:
        return None
    return library if done.returncode == 0 else None


def set_clock_file(file: Path, wrong_by_seconds: float) -> None:
    """In place: processes have it mapped."""
    with file.open("r+b" if file.exists() else "wb") as opened:
        opened.write(_INT64.pack(round(wrong_by_seconds * 1e9)))


def read_clock_file(file: Path) -> float:
    """Seconds."""
    return float(_INT64.unpack(file.read_bytes())[0]) / 1e9


class Actor:
    """One forked process of ours and what becomes of it."""

    def __init__(self, *, role: str, name: str, host: Host, arguments: list[str], sentence: str) -> None:
        self.role = role
        self.name = name
        self.host = host
        self.arguments = arguments
        #: As failpoints.py says, or empty.
        self.sentence = sentence
        self.frozen = False
        self._code: int | None = None
        self._dead = threading.Event()
        self._pid_fd: int | None = None

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._code if self._dead.is_set() else None

    def send_signal(self, number: signal.Signals) -> None:
        """Nothing if it is gone; never hits another process that got its id."""
        if self._pid_fd is not None and not self._dead.is_set():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pid_fd, number)

    def kill(self) -> None:
        """kill -9, and its end."""
        self.send_signal(signal.SIGKILL)
        if not self._dead.wait(60):
            raise ServiceFailed(f"{self.name} does not die")

    def stop(self) -> None:
        """SIGTERM, and its end. Raises ServiceFailed if it does not end."""
        self.send_signal(signal.SIGTERM)
        if not self._dead.wait(60):
            raise ServiceFailed(f"{self.name} does not stop")

    def born(self, pid: int) -> None:
        """For the host."""
        with suppress(ProcessLookupError):  # it died at once; its end will be told
            self._pid_fd = os.pidfd_open(pid)

    def died(self, code: int) -> None:
        """For the host."""
        self._code = code
        self._dead.set()
        if self._pid_fd is not None:
            os.close(self._pid_fd)
            self._pid_fd = None


class Host:
    """One nursery. Actors are spawned by one thread; deaths are noted by a thread of its own."""

    def __init__(
        self, name: str, folder: Path, *, clock: Path | None = None, nice: int = 0, release: Path = ROOT
    ) -> None:
        """`clock` is the library of build_clock; without it only the product's own clock hears of a step. `release` is
        the checkout whose code the actors run.
        """
        self.name = name
        self.nice = nice
        self._clock_file = folder / f"{name}.clock"
        self._log = folder / f"{name}.log"
        self._numbers = itertools.count()
        self._births: queue.Queue[int] = queue.Queue()
        self._actors: dict[int, Actor] = {}
        self._early: dict[int, int] = {}
        self._lock = threading.Lock()
        self.set_clock(0.0)
        environment = {**environment_of(release), CLOCK_FILE: str(self._clock_file)}
        if clock is not None:
            environment[PRELOADED] = str(clock)
        with self._log.open("ab") as sink:
            self._process = subprocess.Popen(
                ["nice", "-n", str(nice), sys.executable, "-m", "tests.chaos.nursery"],
                cwd=release, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink,
                start_new_session=True,
            )  # fmt: skip
        self._listener = threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True)
        self._listener.start()

    def set_clock(self, wrong_by_seconds: float) -> None:
        """Steps the wall clock of every actor of this host."""
        set_clock_file(self._clock_file, wrong_by_seconds)

    def spawn(self, role: str, name: str, arguments: Sequence[str], *, log: Path, sentence: str) -> Actor:
        """Forks an actor. Raises ServiceFailed if the nursery does not answer."""
        actor = Actor(role=role, name=name, host=self, arguments=list(arguments), sentence=sentence)
        order = {
            "number": next(self._numbers),
            "role": role,
            "arguments": actor.arguments,
            "log": str(log),
            "sentence": sentence,
        }
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
            pid = self._births.get(timeout=START_SECONDS)
        except (OSError, queue.Empty) as error:
            raise ServiceFailed(f"host {self.name} spawns nothing\n{tail(self._log)}") from error
        with self._lock:
            actor.born(pid)
            if pid in self._early:
                actor.died(self._early.pop(pid))
            else:
                self._actors[pid] = actor
        return actor

    def close(self) -> None:
        """Kills every actor and the nursery."""
        with self._lock:
            actors = list(self._actors.values())
        for actor in actors:
            actor.send_signal(signal.SIGKILL)
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(60)
        self._listener.join(60)  # its pipe has ended
        with self._lock:
            for actor in self._actors.values():
                actor.died(-signal.SIGKILL)
            self._actors.clear()

    def _listen(self, told: IO[bytes]) -> None:
        with told:
            for line in told:
                what = json.loads(line)
                if "born" in what:
                    self._births.put(what["pid"])
                elif "dead" in what:
                    self._died(what["dead"], what["code"])

    def _died(self, pid: int, code: int) -> None:
        with self._lock:
            actor = self._actors.pop(pid, None)
            if actor is None:
                self._early[pid] = code
            else:
                actor.died(code)
