"""A TCP proxy in front of Redis that loses chosen replies: the command runs, and its reply never arrives."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


class ReplySwallower:
    """Forwards both ways; `swallow(n)` makes the replies to the next n requests that hold a command vanish.

    The connection is closed instead of answered (`hang=False`), or stays open and silent until the client gives up.
    Threads of its own, one a direction; stopped by `close`.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._closing = False
        self._lock = threading.Lock()
        self._command = b""
        self._to_swallow = 0
        self._hang = False
        self.swallowed = 0
        #: How often the command came through, answered or not.
        self.seen = 0
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._spawn(self._accept)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    def swallow(self, count: int, *, command: bytes = b"\r\nEXEC\r\n", hang: bool = False) -> None:
        with self._lock:
            self._command, self._to_swallow, self._hang = command, count, hang

    def _spawn(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._port))
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets += [client, server]
            silent = threading.Event()
            self._spawn(self._requests, client, server, silent)
            self._spawn(self._replies, client, server, silent)

    def _requests(self, client: socket.socket, server: socket.socket, silent: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                self._look_at(data, silent)
                server.sendall(data)
        _shut(server)

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
        _shut(client)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._sockets:
            _shut(one)
        for thread in self._threads:
            thread.join(60)
        for one in self._sockets:
            one.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
