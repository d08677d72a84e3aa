"""A private redis-server: data in a folder of the test, stopped by its id."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.services.ports import free_port
from tests.services.processes import Child, ServiceFailed, freeze, thaw
from tests.services.requirements import redis_missing as missing

__all__ = ["RedisServer", "missing"]

START_SECONDS = 60.0


class RedisServer:
    """redis-server on a free loopback port, or on a unix socket only.

    ``options`` are redis.conf directives ("maxmemory-policy": "noeviction"). Persistence is an append-only
    file synced at every write unless the options say otherwise, so ``kill`` loses nothing acknowledged.
    Confined to one test; ``start`` after ``stop`` or ``kill`` keeps port and data.
    """

    def __init__(
        self,
        folder: Path,
        *,
        options: dict[str, str] | None = None,
        unix_socket: bool = False,
        program: str = "redis-server",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.program = program
        self.environment = dict(environment or {})
        self.options = dict(options or {})
        self.unix_socket: Path | None = folder / "redis.sock" if unix_socket else None
        self.port = 0 if unix_socket else free_port()
        self._child: Child | None = None
        #: Between freeze and thaw: it answers nobody, who asks need not wait to know.
        self.is_frozen = False
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        """For redis.from_url; without user and password."""
        if self.unix_socket is not None:
            return f"unix://{self.unix_socket}?db=0"
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def log(self) -> Path:
        """The server's log."""
        return self.folder / "redis.log"

    @property
    def pid(self) -> int:
        """The running server's process id."""
        if self._child is None or self._child.exit_code is not None:
            raise ServiceFailed("redis-server is not running")
        return self._child.pid

    def start(self, *, attempts: int = 3) -> Self:
        """Starts it and returns when it answers PING (loading the data has ended)."""
        if self._child is not None and self._child.exit_code is None:
            return self
        for attempt in range(1, attempts + 1):
            self._child = Child(
                [self.program, *self._arguments()], log=self.log, cwd=self.folder, environment=self.environment
            )
            try:
                self._child.until(self.answers, within_seconds=START_SECONDS, what="redis-server")
            except ServiceFailed as error:
                self._child.kill()
                if attempt == attempts or "in use" not in str(error):
                    raise
                self.port = free_port()
            else:
                return self
        raise ServiceFailed("redis-server found no free port")

    def stop(self) -> None:
        """SIGTERM: it saves and leaves."""
        if self._child is not None:
            self._child.stop()

    def kill(self) -> None:
        """kill -9."""
        if self._child is not None:
            self._child.kill()

    def freeze(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        if self._child is not None:
            freeze(self._child.pid)
            self.is_frozen = True

    def thaw(self) -> None:
        """SIGCONT."""
        if self._child is not None:
            thaw(self._child.pid)
            self.is_frozen = False

    def erase(self) -> None:
        """Deletes the data of the stopped server, so that the next start is empty."""
        if self._child is not None and self._child.exit_code is None:
            raise ServiceFailed("stop redis-server before erasing its data")
        shutil.rmtree(self.folder / "data", ignore_errors=True)

    def restart(self, *, empty: bool = False) -> Self:
        """Stops it and starts it again on the same port, with its data or empty."""
        self.stop()
        if empty:
            self.erase()
        return self.start()

    def answers(self) -> bool:
        """Whether PING gets an answer that is not LOADING (NOAUTH counts: it is up)."""
        try:
            with self._connect() as connection:
                connection.settimeout(1.0)
                connection.sendall(b"PING\r\n")
                reply = connection.recv(256)
        except OSError:
            return False
        return bool(reply) and not reply.startswith(b"-LOADING")

    def _connect(self) -> socket.socket:
        if self.unix_socket is None:
            return socket.create_connection(("127.0.0.1", self.port), timeout=1.0)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(self.unix_socket))
        except OSError:
            connection.close()
            raise
        return connection

    def _arguments(self) -> list[str]:
        (self.folder / "data").mkdir(exist_ok=True)
        settings = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self.folder / "data"),
            "daemonize": "no",
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
            "maxmemory-policy": "noeviction",
        }
        if self.unix_socket is not None:
            settings["unixsocket"] = str(self.unix_socket)
        settings.update(self.options)
        arguments: list[str] = []
        for name, value in settings.items():
            # Directives with several words ("user default on ...", "rename-command A B") are words here too.
            arguments += [f"--{name}", *(value.split(" ") if name in {"user", "rename-command"} else [value])]
        return arguments

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.thaw()
        self.kill()
        if self.unix_socket is not None:
            self.unix_socket.unlink(missing_ok=True)


def is_running(pid: int) -> bool:
    """Whether a process with the id exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
