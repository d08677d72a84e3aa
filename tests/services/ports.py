"""Free ports on the loopback address, each drawn once by all test processes of a user."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import re
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Below the range that Linux hands out to outgoing connections (32768-60999).
FIRST_PORT = 15_000
LAST_PORT = 32_000
#: Lines "port pid": a JVM binds its ports many seconds after they were drawn, and a server that a test stops wants
#: its port back, so a port stays with the process that drew it until that process ends.
CLAIMS = Path(tempfile.gettempdir()) / f"reconciler-test-ports-{os.getuid()}"


def is_free(port: int) -> bool:
    """Whether a server could bind the port now, on loopback and on every address."""
    for address in ("127.0.0.1", "0.0.0.0"):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError:
                return False
    return True


def free_port(*, neighbours: tuple[int, ...] = ()) -> int:
    """A free port whose neighbours (differences, e.g. -2 and 1) are free as well; all of them are this process's."""
    draw = random.SystemRandom()
    with _claims() as claimed:
        for _ in range(1_000):
            port = draw.randrange(FIRST_PORT, LAST_PORT)
            wanted = [port + difference for difference in (0, *neighbours)]
            if not claimed.keys() & set(wanted) and all(map(is_free, wanted)):
                claimed.update(dict.fromkeys(wanted, os.getpid()))
                return port
    raise RuntimeError(f"no free port between {FIRST_PORT} and {LAST_PORT} with neighbours {neighbours}")


def answers(port: int, *, host: str = "127.0.0.1", timeout_seconds: float = 1.0) -> bool:
    """Whether a server accepts connections there."""
    try:
        with socket.create_connection((host, port), timeout=timeout_seconds):
            return True
    except OSError:
        return False


@contextlib.contextmanager
def _claims() -> Iterator[dict[int, int]]:
    """Port -> process of every living process, written back at the end; other processes wait meanwhile."""
    with os.fdopen(os.open(CLAIMS, os.O_RDWR | os.O_CREAT, 0o600), "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        whole = (line.split() for line in file if re.fullmatch(r"\d+ \d+\n", line))  # its writer may have been killed
        claimed = {int(port): int(pid) for port, pid in whole}
        living = {pid for pid in set(claimed.values()) if _lives(pid)}
        kept = {port: pid for port, pid in claimed.items() if pid in living}
        yield kept
        file.seek(0)
        file.truncate()
        file.writelines(f"{port} {pid}\n" for port, pid in kept.items())


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
