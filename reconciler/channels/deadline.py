"""The time limit of one delivery. A socket's time-out is not enough, because it begins again with each byte: a receiver
that sends one byte now and then would hold the thread for ever."""

from __future__ import annotations

import errno
import io
import socket
from typing import Any

from reconciler.clock import Clock


class Deadline:
    """The time limit of one delivery, counted from the creation of this object."""

    def __init__(self, clock: Clock, seconds: float, *, step_seconds: float = float("inf")) -> None:
        """`seconds`: limit for the whole delivery. `step_seconds`: limit for each wait."""
        self._clock = clock
        self._end_seconds = clock.monotonic_seconds() + seconds
        self._step_seconds = step_seconds

    def next_wait_seconds(self, *, shares: int = 1) -> float:
        """Returns the longest time for the next wait if `shares` waits share the remaining time. Raises TimeoutError at
        the end."""
        remaining = self._end_seconds - self._clock.monotonic_seconds()
        if remaining <= 0:
            raise TimeoutError("the delivery took too long")
        return min(remaining / shares, self._step_seconds)


class ReceivedBytes(io.RawIOBase):
    """Bytes that a socket receives until the deadline, for a buffered reader. Reading more than `bytes_max` raises
    OSError."""

    def __init__(self, connection: socket.socket, deadline: Deadline, *, bytes_max: float = float("inf")) -> None:
        self._connection = connection
        self._deadline = deadline
        self._bytes_max = bytes_max
        self._bytes = 0

    def readable(self) -> bool:
        """Required by io.BufferedReader."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Returns the number of received bytes. 0: the sender has ended. Raises OSError, such as TimeoutError."""
        if self._bytes >= self._bytes_max:
            raise OSError(errno.EMSGSIZE, f"the answers are longer than {self._bytes_max} bytes")
        self._connection.settimeout(self._deadline.next_wait_seconds())
        received = self._connection.recv_into(buffer)
        self._bytes += received
        return received
