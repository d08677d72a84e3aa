"""The embedded broker as a process of its own, the way users start it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.services.ports import free_port
from tests.services.processes import ServiceFailed, freeze, tail, thaw
from tests.services.remoting_probe import RemotingProbe, route_names
from tests.services.rocketmq import QUICK, UPDATE_BROKER_CONFIG

__all__ = ["EmbeddedBroker", "configure"]

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60.0


class EmbeddedBroker:
    """Name server and broker on one port. Confined to the test that started it.

    Without ``listen`` the port is one that no other test process gets while this one lives: a broker that its test
    stopped is away, and nobody else's broker answers in its place.

    ``properties`` are set over the wire with the names of a real broker's configuration, over the same short
    intervals that real brokers get in tests.
    """

    def __init__(
        self,
        *,
        family: str = "5.x",
        arguments: Sequence[str] = (),
        properties: dict[str, str] | None = None,
        listen: str | None = None,
    ) -> None:
        self.family = family
        self.arguments = list(arguments)
        self.properties = {**QUICK, **(properties or {})}
        self.name_servers = listen or f"127.0.0.1:{free_port(neighbours=(-2,))}"  # the VIP channel is two below
        self._folder = tempfile.TemporaryDirectory(prefix="reconciler-embedded-")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        """Port of both, name server and broker."""
        return int(self.name_servers.rpartition(":")[2])

    @property
    def broker_name(self) -> str:
        """The only broker name in its routes."""
        (name,) = route_names(self.port, "TBW102")
        return name

    @property
    def log(self) -> Path:
        """Its standard error."""
        return Path(self._folder.name) / "embedded.log"

    def start(self) -> Self:
        """Starts it (again on the same port) and returns when it has said where it listens."""
        command = [sys.executable, "-m", "reconciler.embedded", "--listen", self.name_servers]
        command += ["--family", self.family, *self.arguments]
        with self.log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        self.name_servers = str(json.loads(self._first_line())["listen"])
        self.configure(self.properties)
        return self

    def configure(self, properties: dict[str, str]) -> None:
        """UPDATE_BROKER_CONFIG on the running broker."""
        configure(self.name_servers, properties)

    def stop(self) -> int:
        """SIGTERM; returns its exit code."""
        return self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        if self._process is not None:
            freeze(self._process.pid)

    def thaw(self) -> None:
        """SIGCONT."""
        if self._process is not None:
            thaw(self._process.pid)

    def kill(self) -> int:
        """kill -9."""
        return self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> int:
        process = self._process
        if process is None:
            return 0
        self._process = None
        process.send_signal(number)
        try:
            code = process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait(60)
        assert process.stdout is not None
        process.stdout.close()
        return code

    def _first_line(self) -> bytes:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        line, deadline = b"", time.monotonic() + START_SECONDS
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(process.stdout.fileno(), 4096) if ready else b""
            if not part:
                self.kill()
                raise ServiceFailed(f"the embedded broker did not start: {line!r}\n{tail(self.log)}")
            line += part
        return line.splitlines()[0]

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.kill()
            self._folder.cleanup()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._folder.cleanup()


def configure(address: str, properties: dict[str, str]) -> None:
    """UPDATE_BROKER_CONFIG on a running embedded broker."""
    body = "".join(f"{name}={value}\n" for name, value in properties.items())
    with RemotingProbe(int(address.rpartition(":")[2]), timeout_seconds=60) as probe:
        reply = probe.ask(UPDATE_BROKER_CONFIG, {}, body.encode())
    if reply.code != 0:
        raise ServiceFailed(f"embedded broker refused {properties}: {reply.code} {reply.remark}")
