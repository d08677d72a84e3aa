"""What the private database servers have in common: a folder of their own, a port, a process, databases by number."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import tempfile
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.services.ports import free_port
from tests.services.processes import Child, freeze, thaw


class PrivateServer(ABC):
    """Runs from entry to exit, which removes its folder."""

    def __init__(self, prefix: str, *, options: dict[str, str] | None = None) -> None:
        # A folder of its own directly under /tmp: pytest's are closed to other users, and a unix socket's
        # path is short.
        self.folder = Path(tempfile.mkdtemp(prefix=prefix))
        self.port = free_port()
        self.options = dict(options or {})
        #: Variables of the server's process besides those of the tests, as they are when it starts.
        self.environment: dict[str, str] = {}
        self._child: Child | None = None
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    @abstractmethod
    def start(self) -> Self:
        """Returns when it accepts logins."""

    def stop(self) -> None:
        """SIGTERM."""
        if self._child is not None:
            self._child.stop()

    def freeze(self) -> None:
        """SIGSTOP of every process of the server: connections stay open, new ones are taken by the kernel, and nothing
        answers.
        """
        if self._child is not None:
            freeze(self._child.pid)  # first: it makes no further ones
            freeze(*_children(self._child.pid))

    def thaw(self) -> None:
        """Lets all of them go on: what was asked meanwhile is read now."""
        if self._child is not None:
            thaw(*_children(self._child.pid), self._child.pid)

    def _new_database_name(self, prefix: str) -> str:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", prefix):
            raise ValueError(f"database prefix {prefix!r}")
        with self._lock:
            return f"{prefix}_{os.getpid()}_{next(self._numbers)}"

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.thaw()
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def _children(pid: int) -> list[int]:
    """Of PostgreSQL each is in a process group of its own."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []
