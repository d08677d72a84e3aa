"""Peers of a connection that do what a test says: real sockets, scripted answers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from reconciler.rocketmq.wire.frame import Command, FrameReader, encode_frame, reply_to

Script = Callable[[socket.socket], None]
Answer = Callable[[Command], Command | bytes | None]


class Peer:
    """Listens on a free loopback port and runs the script for every connection, each in a thread of its own."""

    def __init__(self, script: Script, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._script = script
        self._listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        bound = self._listener.getsockname()[1]
        self.port: int = bound
        self.address = f"[{host}]:{bound}" if ":" in host else f"{host}:{bound}"
        self.connections = 0
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the listener and every connection."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join()
        self.drop_connections()
        for thread in self._threads:
            thread.join()

    def drop_connections(self) -> None:
        """Closes what is connected now."""
        for connected in self._open:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connected)
            self.connections += 1
            thread = threading.Thread(target=self._run, args=(connected,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, connected: socket.socket) -> None:
        with connected, contextlib.suppress(OSError):
            self._script(connected)


def requests(connected: socket.socket) -> Iterator[Command]:
    """Requests as they come, until the client closes."""
    reader = FrameReader()
    while data := connected.recv(65_536):
        yield from reader.feed(data)


def drain(connected: socket.socket) -> None:
    """Reads until the client closes."""
    while connected.recv(65_536):
        pass


def answering(answer: Answer) -> Script:
    """A script that answers every request: with a command, with raw bytes, or not at all."""

    def script(connected: socket.socket) -> None:
        for request in requests(connected):
            reply = answer(request)
            if isinstance(reply, bytes):
                connected.sendall(reply)
            elif reply is not None:
                connected.sendall(encode_frame(reply))

    return script


def echo(request: Command) -> Command:
    """Code 0, with the request's fields and body."""
    return reply_to(request, 0, fields=request.fields, body=request.body, language="JAVA", version=479)
