"""A TCP relay before a server, which counts who waits for it, and can stand still in its place."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Gate:
    """Passes on both ways between a port of its own and a server's. Threads of its own, two a connection.

    `hold()`: it goes on to take connections and bytes, as the kernel does for a server that stands still, and nothing
    comes back. `asked` counts the connections on which something was sent since the last `count()`: where nothing comes
    back, each has cost its client a deadline.
    """

    def __init__(
        self, port: int, *, listen: tuple[str, int] = ("127.0.0.1", 0), rewrites: tuple[bytes, bytes] = (b"", b"")
    ) -> None:
        """`rewrites`: words of clients that the server gets other ones for, of the same length."""
        self._server = ("127.0.0.1", port)
        self._rewrites = rewrites
        self._listener = socket.create_server(listen)
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._is_holding = False
        self._asked: set[int] = set()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._spawn(self._accept)

    def count(self) -> None:
        """Counts from zero."""
        with self._lock:
            self._asked.clear()

    def hold(self) -> None:
        """Nothing comes back from now on."""
        with self._lock:
            self._is_holding = True

    def let_go(self) -> None:
        """New connections are served again; those that sent something meanwhile have lost it."""
        with self._lock:
            self._is_holding = False

    @property
    def asked(self) -> int:
        """Connections on which something was sent since count()."""
        with self._lock:
            return len(self._asked)

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
            server = socket.create_connection(self._server)
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets += [client, server]
            self._spawn(self._requests, client, server)
            self._spawn(self._answers, client, server)

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                with self._lock:
                    is_holding = self._is_holding
                    self._asked.add(id(client))
                if not is_holding:
                    server.sendall(data.replace(*self._rewrites) if self._rewrites[0] else data)
        _shut(server)

    def _answers(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                with self._lock:
                    is_holding = self._is_holding
                if not is_holding:
                    client.sendall(data)
        if not self._is_holding:
            _shut(client)

    def close(self) -> None:
        """Closes every connection, and stops listening."""
        _shut(self._listener)
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
