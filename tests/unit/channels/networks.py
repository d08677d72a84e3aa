"""What a network can do to a sender: addresses that swallow packets, proxies, servers that never end an answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import pytest


@contextmanager
def swallowing() -> Iterator[int]:
    """A port of the loopback that answers no connection: Linux drops what comes once the queue is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = listener.getsockname()
        waiting: list[socket.socket] = []
        try:
            for _ in range(8):
                one = socket.socket()
                waiting.append(one)
                one.settimeout(0.1)
                with suppress(TimeoutError):
                    one.connect(address)
                    continue
                break
            else:
                pytest.fail("the queue never was full")
            yield address[1]
        finally:
            for one in waiting:
                one.close()


def resolve_as(monkeypatch: pytest.MonkeyPatch, ports: Sequence[int]) -> None:
    """Each name has these addresses from now on, which a test tells apart by their ports."""
    addresses = [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", port)) for port in ports]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)


@contextmanager
def serving(serve: Callable[[socket.socket, threading.Event], None]) -> Iterator[int]:
    """Takes one connection and serves it until the event is set; the port."""
    stop = threading.Event()

    def run() -> None:
        with suppress(OSError):
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                serve(connection, stop)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            stop.set()
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def drip(connection: socket.socket, stop: threading.Event) -> None:
    """One byte of a header again and again, which never ends."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    while not stop.wait(0.02):
        connection.sendall(b"x")


def flood(connection: socket.socket, stop: threading.Event) -> None:
    """Headers without end."""
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while not stop.is_set():
        connection.sendall(b"X: y\r\n" * 1_000)


def say_nothing(_connection: socket.socket, stop: threading.Event) -> None:
    """Takes what is sent, and is silent."""
    while not stop.wait(1):  # without a time, a signal that comes just before the wait does not end it
        pass


class TunnelProxy:
    """Answers CONNECT, and passes on what follows to the port that was asked for. For `serving`."""

    def __init__(self) -> None:
        self.request = b""

    def __call__(self, connection: socket.socket, _stop: threading.Event) -> None:
        while b"\r\n\r\n" not in self.request:
            self.request += connection.recv(1)
        port = int(self.request.split(b" ")[1].rpartition(b":")[2])
        with socket.create_connection(("127.0.0.1", port)) as receiver:
            connection.sendall(b"HTTP/1.1 200 Connection established\r\nVia: a proxy\r\n\r\n")
            back = threading.Thread(target=self._pass_on, args=(receiver, connection))
            back.start()
            self._pass_on(connection, receiver)
            back.join()

    @staticmethod
    def _pass_on(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while received := source.recv(65_536):
                target.sendall(received)
            target.shutdown(socket.SHUT_WR)
