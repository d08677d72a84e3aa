"""Free ports on the loopback address."""

from __future__ import annotations

import random
import socket

# Below the range that Linux hands out to outgoing connections (32768-60999): a port found free here stays
# free until the service binds it, unless another test run draws the same number, and then the start retries.
FIRST_PORT = 15_000
LAST_PORT = 32_000


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
    """A free port whose neighbours (differences, e.g. -2 and 1) are free as well."""
    draw = random.SystemRandom()
    for _ in range(1_000):
        port = draw.randrange(FIRST_PORT, LAST_PORT)
        if all(is_free(port + difference) for difference in (0, *neighbours)):
            return port
    raise RuntimeError(f"no free port between {FIRST_PORT} and {LAST_PORT} with neighbours {neighbours}")


def answers(port: int, *, host: str = "127.0.0.1", timeout_seconds: float = 1.0) -> bool:
    """Whether somebody accepts connections there."""
    try:
        with socket.create_connection((host, port), timeout=timeout_seconds):
            return True
    except OSError:
        return False
