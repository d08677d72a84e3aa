"""A TCP proxy in front of Redis that loses chosen replies: the command runs, and its reply never arrives."""

from __future__ import annotations

import contextlib
import socket
import threading

from tests.services.relay import Relay, shut


class ReplySwallower(Relay):
    """Forwards both ways; `swallow(n)` makes the replies to the next n requests that hold a command vanish.

    The connection is closed instead of answered (`hang=False`), or stays open and silent until the client gives up.
    Threads of its own, one a direction; stopped by `close`.
    """

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._command = b""
        self._to_swallow = 0
        self._hang = False
        self.swallowed = 0
        #: How often the command came through, answered or not.
        self.seen = 0
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def swallow(self, count: int, *, command: bytes = b"\r\nEXEC\r\n", hang: bool = False) -> None:
        with self._lock:
            self._command, self._to_swallow, self._hang = command, count, hang

    def serve(self, client: socket.socket, server: socket.socket) -> None:
        """One thread a direction."""
        silent = threading.Event()
        self.spawn(self._requests, client, server, silent)
        self.spawn(self._replies, client, server, silent)

    def _requests(self, client: socket.socket, server: socket.socket, silent: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                self._look_at(data, silent)
                server.sendall(data)
        shut(server)

    def _look_at(self, data: bytes, silent: threading.Event) -> None:
        with self._lock:
            if self._command and self._command in data:
                self.seen += 1
                if self._to_swallow:
                    self._to_swallow -= 1
                    self.swallowed += 1
                    silent.set()

    def _replies(self, client: socket.socket, server: socket.socket, silent: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                if not silent.is_set():
                    client.sendall(data)
                elif not self._hang:
                    break  # the server has executed it: now the connection dies
        shut(client)
