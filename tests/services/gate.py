"""A TCP relay before a server, which counts who waits for it, and can stand still in its place."""

from __future__ import annotations

import contextlib
import socket

from tests.services.relay import Relay, shut


class Gate(Relay):
    """Passes on both ways between a port of its own and a server's. Threads of its own, two a connection.

    `hold()`: it goes on to take connections and bytes, as the kernel does for a server that stands still, and nothing
    comes back. `asked` counts the connections on which something was sent since the last `count()`: where nothing comes
    back, each has cost its client a deadline. `waiting`: those of them whose client still waits.
    """

    def __init__(
        self, port: int, *, listen: tuple[str, int] = ("127.0.0.1", 0), rewrites: tuple[bytes, bytes] = (b"", b"")
    ) -> None:
        """`rewrites`: words of clients that the server gets other ones for, of the same length."""
        super().__init__(port, listen=listen)
        self._rewrites = rewrites
        self._is_holding = False
        self._asked: set[int] = set()
        self._waiting: set[int] = set()
        self.start()

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

    @property
    def waiting(self) -> int:
        """Connections on which something was sent that is not answered, and which their clients have not closed."""
        with self._lock:
            return len(self._waiting)

    def serve(self, client: socket.socket, server: socket.socket) -> None:
        """One thread a direction."""
        self.spawn(self._requests, client, server)
        self.spawn(self._answers, client, server)

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                with self._lock:
                    is_holding = self._is_holding
                    self._asked.add(id(client))
                    if is_holding:
                        self._waiting.add(id(client))
                if not is_holding:
                    server.sendall(data.replace(*self._rewrites) if self._rewrites[0] else data)
        with self._lock:
            self._waiting.discard(id(client))
        shut(server)

    def _answers(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                with self._lock:
                    is_holding = self._is_holding
                if not is_holding:
                    client.sendall(data)
        if not self._is_holding:
            shut(client)
