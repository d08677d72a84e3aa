"""Child processes of the demo, with their output in files. The demo watches its children, and stops them by pid.

Producers and consumers are killed and restarted often. A process that has imported all modules forks each of them,
because otherwise each start would need seconds of processor time for imports.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from multiprocessing.process import BaseProcess
from pathlib import Path

from reconciler.clock import Clock
from reconciler.contract.extras import install
from reconciler.demo.truth import DemoFiles
from reconciler.errors import DependencyAway, MissingDependency, ReconcilerError

#: Time limit after SIGTERM for a child whose exit code is checked. deploy/ gives `run` the same time to end its turns
#: and to seal its history.
STOP_SECONDS = 90.0
#: Time limit for all remaining children at the end, whose exit codes are not checked.
LEFT_SECONDS = 20.0
#: Modules whose processes are forked.
FORKED = ("reconciler.demo.producer", "reconciler.demo.consumer")
_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload([*FORKED])
#: Names of the children that are stopped last, because all others need them.
INFRASTRUCTURE = frozenset({"broker", "redis"})


class DemoFailed(ReconcilerError):
    """A part of the demo failed. The message contains the end of its output."""

    exit_code = 1


class _Forked:
    """A process of the fork server, with the methods of Popen that Child uses."""

    def __init__(self, process: BaseProcess) -> None:
        self._process = process

    def poll(self) -> int | None:
        """Returns None while the process runs. A negative number is the signal that ended the process."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless the process has ended."""
        if self._process.pid is not None and self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def terminate(self) -> None:
        """Sends SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Does what Popen.wait() does."""
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0.0)
        return code


@dataclass(slots=True)
class Child:
    """One running process."""

    name: str
    process: subprocess.Popen[bytes] | _Forked
    log: Path

    @property
    def exit_code(self) -> int | None:
        """Exit code of the process. None: the process runs. A negative number is the signal that ended the process."""
        return self.process.poll()

    def tail(self, lines: int = 15) -> str:
        """Returns the end of the process's output."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return "(no output)"


@dataclass(slots=True)
class Children:
    """All child processes of a demo. One thread uses this object. `stop_all` leaves no process behind."""

    files: DemoFiles
    clock: Clock
    _children: list[Child] = field(default_factory=list)

    def start(self, name: str, command: Sequence[str | Path]) -> Child:
        """Starts a process whose output goes to <name>.log."""
        log = self.files.log(name)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RECONCILER_")}
        with log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603 - our own commands
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                cwd=self.files.folder,
            )
        child = Child(name=name, process=process, log=log)
        self._children.append(child)
        return child

    def start_module(self, name: str, module: str, *arguments: str | Path) -> Child:
        """Starts `python -m module` with this interpreter."""
        return self.start(name, [sys.executable, "-P", "-m", module, *arguments])

    def fork(self, name: str, module: str, *arguments: str | Path) -> Child:
        """Starts the `main` of a module of FORKED with these arguments, like start_module, but faster."""
        log = self.files.log(name)
        place = (str(log), str(self.files.folder), module, [str(one) for one in arguments])
        process = _FORKING.Process(target=_become, name=name, args=place)
        process.start()
        child = Child(name=name, process=_Forked(process), log=log)
        self._children.append(child)
        return child

    def stop(self, child: Child, *, expected: Sequence[int] = (0,)) -> None:
        """Sends SIGTERM, then SIGKILL after STOP_SECONDS. Raises DemoFailed if the exit code is not expected."""
        if child.exit_code is None:
            child.process.send_signal(signal.SIGTERM)
            try:
                child.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
        if child in self._children:
            self._children.remove(child)
        if child.exit_code not in expected:
            raise DemoFailed(f"{child.name} ended with {child.exit_code}:\n{child.tail()}")

    def forget(self, child: Child) -> None:
        """Forgets a child whose end was handled."""
        self._children.remove(child)

    def require_alive(self) -> None:
        """Raises DemoFailed if a process that should run has ended."""
        for child in self._children:
            if child.exit_code is not None and not child.name.startswith(("producer", "consumer")):
                raise DemoFailed(f"{child.name} ended with {child.exit_code}:\n{child.tail()}")

    def stop_all(self) -> None:
        """Ends all processes: first the users of broker and Redis, then broker and Redis. Never raises."""
        infrastructure = [child for child in self._children if child.name in INFRASTRUCTURE]
        self._end([child for child in reversed(self._children) if child not in infrastructure])
        self._end(infrastructure)
        self._children.clear()

    def _end(self, children: Sequence[Child]) -> None:
        for child in children:
            if child.exit_code is None:
                child.process.terminate()
        deadline = self.clock.monotonic_seconds() + LEFT_SECONDS
        for child in children:
            try:
                child.process.wait(max(0.1, deadline - self.clock.monotonic_seconds()))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()


def _become(log: str, folder: str, module: str, arguments: Sequence[str]) -> None:
    """Runs in the forked process. Sends the output to the log, and exits with the result of `main`."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(folder)
    for name in [name for name in os.environ if name.startswith("RECONCILER_")]:
        del os.environ[name]
    sys.exit(importlib.import_module(module).main(*arguments))


def free_port() -> int:
    """Returns a loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_redis(children: Children) -> tuple[Child, str, bool]:
    """Starts a private redis-server from PATH; if there is none, fakeredis' TCP server. Returns the child, its URL, and
    True for redis-server."""
    port = free_port()
    server = shutil.which("redis-server")
    if server is None:
        if find_spec("fakeredis") is None:
            raise MissingDependency(
                "redis-server is not on PATH and fakeredis is missing: install redis-server, name one with "
                f"--redis-url, or {install('demo')}"
            )
        child = children.start_module("redis", "reconciler.demo.fake_redis", str(port))
    else:
        options = {"port": port, "bind": "127.0.0.1", "save": "", "appendonly": "no", "maxmemory-policy": "noeviction"}
        child = children.start("redis", [server, *(part for k, v in options.items() for part in (f"--{k}", str(v)))])
    wait_for_port(child, port, children.clock)
    return child, f"redis://127.0.0.1:{port}/0", server is not None


def wait_for_port(child: Child, port: int, clock: Clock, within_seconds: float = 30.0) -> None:
    """Waits until the child's port answers. Raises DemoFailed if the child ends first, and DependencyAway after the
    time limit."""
    deadline = clock.monotonic_seconds() + within_seconds
    while True:
        if child.exit_code is not None:
            raise DemoFailed(f"{child.name} ended with {child.exit_code}:\n{child.tail()}")
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if clock.monotonic_seconds() > deadline:
            raise DependencyAway(f"{child.name} does not answer on port {port} after {within_seconds:g} s")
        clock.sleep(0.05)


def wait_for_line(child: Child, start: str, clock: Clock, within_seconds: float = 30.0) -> str:
    """Returns the first line of the child's output that begins with `start`. Raises DemoFailed if the child ends first,
    and DependencyAway after the time limit."""
    deadline = clock.monotonic_seconds() + within_seconds
    while True:
        for line in child.log.read_text(errors="replace").splitlines():
            if line.startswith(start):
                return line
        if child.exit_code is not None:
            raise DemoFailed(f"{child.name} ended with {child.exit_code}:\n{child.tail()}")
        if clock.monotonic_seconds() > deadline:
            raise DependencyAway(f"{child.name} has not said {start!r} after {within_seconds:g} s:\n{child.tail()}")
        clock.sleep(0.05)
