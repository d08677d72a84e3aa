"""A TCP relay between clients and a server."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Relay:
    """Takes connections on a port of its own and opens one to the server for each. Two threads a connection, which
    subclasses give their work: `serve` begins it. Stopped by `close`."""

    def __init__(self, port: int, *, listen: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self._server = ("127.0.0.1", port)
        self._listener = socket.create_server(listen)
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Takes connections from now on."""
        self.spawn(self._accept)

    def lead_to(self, port: int) -> None:
        """New connections go to another server, as behind a name that has moved; those that are open stay."""
        self._server = ("127.0.0.1", port)

    def serve(self, client: socket.socket, server: socket.socket) -> None:
        """Spawns what works for this pair."""
        raise NotImplementedError

    def spawn(self, target: Callable[..., None], *arguments: object) -> None:
        """A thread that `close` waits for."""
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
            self.serve(client, server)

    def close(self) -> None:
        """Closes every connection, and stops listening."""
        shut(self._listener)
        self._listener.close()
        for one in self._sockets:
            shut(one)
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


def shut(one: socket.socket) -> None:
    """Ends both directions, if it is open."""
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
