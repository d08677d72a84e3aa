"""A TLS socket from which one thread reads, and to which several threads write.

Two threads must not use an SSL object of openssl at once. A reader that waits under a lock would stop every writer. For
this reason the socket does not block: each call is made under the lock, and threads wait without the lock.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading

#: Maximum number of bytes that one TLS record holds.
_RECORD_BYTES = 16 * 1024


class TlsSocket:
    """The part of socket.socket that Connection uses. One thread reads. Threads that write must hold a lock of their
    own."""

    def __init__(self, encrypted: ssl.SSLSocket, *, read_seconds: float, write_seconds: float) -> None:
        """recv() raises BlockingIOError if nothing arrives within `read_seconds`. sendall() raises TimeoutError if the
        peer takes nothing within `write_seconds`."""
        encrypted.settimeout(0.0)
        self._encrypted = encrypted
        self._read_milliseconds = max(1, int(read_seconds * 1000))
        self._write_seconds = write_seconds
        self._lock = threading.Lock()

    def recv(self, most_bytes: int) -> bytes:
        """Waits for bytes and returns those that have arrived. Returns b"" at the end of the stream. Raises
        BlockingIOError if nothing arrives, or another OSError."""
        data = self._read_ready(most_bytes)
        if data is None:
            self._wait(select.POLLIN, self._read_milliseconds)
            data = self._read_ready(most_bytes)
        if data is None:
            raise BlockingIOError
        return data

    def sendall(self, data: bytes) -> None:
        """Sends all bytes. Raises OSError, perhaps after sending some."""
        rest = memoryview(data)
        while rest:
            try:
                with self._lock:
                    sent = self._encrypted.send(rest)
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                # A write waits only while the peer takes no bytes, because TLS renegotiation is not used.
                if not self._wait(select.POLLOUT, int(self._write_seconds * 1000)):
                    raise TimeoutError(f"takes no bytes for {self._write_seconds} s") from None
                continue
            rest = rest[sent:]

    def shutdown(self, how: int) -> None:
        """Ends the connection below TLS, so that the calls of both sides return. SSLSocket's own method would continue
        in plain text."""
        socket.socket.shutdown(self._encrypted, how)

    def close(self) -> None:
        """Closes the socket. No other call may be under way."""
        self._encrypted.close()

    def _read_ready(self, most_bytes: int) -> bytes | None:
        """Reads without waiting. Returns None if nothing has arrived."""
        parts: list[bytes] = []
        size = 0
        while size < most_bytes:
            try:
                with self._lock:
                    part = self._encrypted.recv(min(_RECORD_BYTES, most_bytes - size))
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except OSError:
                if parts:  # returns earlier bytes first; the next call meets the end again
                    break
                raise
            if not part:
                if parts:
                    break
                return b""
            parts.append(part)
            size += len(part)
        return b"".join(parts) if parts else None

    def _wait(self, event: int, milliseconds: int) -> bool:
        poll = select.poll()
        poll.register(self._encrypted.fileno(), event)
        return bool(poll.poll(milliseconds))
