"""Makes unique keys in the classic layout of 32 digits (MessageClientIDSetter, 4.0.0).

A key has five parts: IPv4 address (4 bytes), process id (2), salt (4), milliseconds since the month began in local time
(4), and counter (2). Java's salt is the hash of the class loader. When a clock steps back, Java relies on the counter
alone, and it repeats keys after a month. In this class, time never goes back under one salt. A new salt is drawn after
a fork, at the beginning of every month, and when the clock steps back far.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
import threading
import time
import weakref

from reconciler.clock import Clock

_LAYOUT = struct.Struct(">4sHIIH")
_COUNTS_PER_MS = 0x1_0000
#: Smallest step back of the clock that keys follow. After such a step, a new salt keeps the keys unique.
_BELIEVED_STEP_MS = 1_000
_MAXIMUM_SINCE_MONTH_MS = 0xFFFF_FFFF

_generators: weakref.WeakSet[UniqueKeyGenerator] = weakref.WeakSet()


class UniqueKeyGenerator:
    """Makes keys for all producers of a process. A lock protects this object. After a fork, the child draws a new
    salt."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._address = _own_address()
        self._salt = 0
        self._last_ms = self._month_ms = self._next_month_ms = 0
        self._counter = self._used = 0
        self._begin_again()
        _generators.add(self)

    def next_key(self) -> str:
        """Makes a key that no other call, thread or process gets, in any month."""
        with self._lock:
            now_ms = self._clock.now_ms()
            if now_ms > self._last_ms:
                if now_ms >= self._next_month_ms:
                    self._enter_month(now_ms)
                self._last_ms, self._used = now_ms, 0
            elif now_ms < self._last_ms - _BELIEVED_STEP_MS:
                self._enter_month(now_ms)
                self._last_ms, self._used = now_ms, 0
            elif self._used == _COUNTS_PER_MS:
                self._last_ms, self._used = self._last_ms + 1, 0
            self._used += 1
            self._counter = (self._counter + 1) % _COUNTS_PER_MS
            since_month_ms = min(max(self._last_ms - self._month_ms, 0), _MAXIMUM_SINCE_MONTH_MS)
            packed = _LAYOUT.pack(self._address, self._process, self._salt, since_month_ms, self._counter)
        return packed.hex().upper()

    def _begin_again(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid() & 0xFFFF
        self._counter = secrets.randbelow(_COUNTS_PER_MS)
        self._last_ms = self._clock.now_ms()
        self._used = 0
        self._enter_month(self._last_ms)

    def _enter_month(self, now_ms: int) -> None:
        old_salt = self._salt
        while self._salt == old_salt:
            self._salt = secrets.randbits(32)
        self._month_ms, self._next_month_ms = _month_around(now_ms)


def _month_around(now_ms: int) -> tuple[int, int]:
    """Returns the beginnings of the local month and of the next month. Readers of a key count from the beginning of
    their own month."""
    local = time.localtime(now_ms / 1000)
    begin = time.mktime((local.tm_year, local.tm_mon, 1, 0, 0, 0, 0, 0, -1))
    following = time.mktime((local.tm_year, local.tm_mon + 1, 1, 0, 0, 0, 0, 0, -1))
    return int(begin) * 1000, int(following) * 1000


def _own_address() -> bytes:
    """Returns this host's IPv4 address, or four random bytes. Connecting a UDP socket sends nothing."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))
            return socket.inet_aton(probe.getsockname()[0])
    except OSError:
        return secrets.token_bytes(4)


def _renew_after_fork() -> None:
    for generator in list(_generators):
        generator._begin_again()  # noqa: SLF001  # a thread that the child lacks may hold its lock


os.register_at_fork(after_in_child=_renew_after_fork)
