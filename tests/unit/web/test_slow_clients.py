"""Clients that begin a request and never end it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from reconciler.clock import SystemClock
from reconciler.settings.file import load_settings
from reconciler.web import application, slow_clients
from reconciler.web.server import serving_web
from tests.services.ports import free_port

ROOT = Path(__file__).parents[3]
WHOLE = b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n"
HALF = WHOLE[:20]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[tuple[str, int]]:
    variables = {"RECONCILER_LEDGER__URL": f"sqlite:///{tmp_path}/none.db"}
    settings = load_settings(ROOT / "config" / "reconciler.toml", variables)
    with serving_web(settings, f"127.0.0.1:{free_port()}", clock=SystemClock()) as address:
        yield address


def rest(connection: socket.socket) -> bytes:
    """Until the server closes."""
    found = bytearray()
    with suppress(ConnectionResetError):
        while piece := connection.recv(65_536):
            found += piece
    return bytes(found)


@pytest.mark.parametrize("sent", [b"", HALF], ids=["nothing", "half a request"])
def test_a_client_that_sends_no_request_does_not_keep_its_place(
    address: tuple[str, int], sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_clients, "HEADERS_SECONDS_MAX", 0.2)
    with socket.create_connection(address, timeout=60) as connection:
        with suppress(ConnectionError):  # a slow machine is no quick client
            connection.sendall(sent)
        assert rest(connection) == b""


def test_a_client_that_was_served_once_does_not_keep_its_place_either(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(WHOLE)
        answered = b""
        while b"</html>" not in answered:
            piece = connection.recv(65_536)
            assert piece, answered
            answered += piece
        assert answered.startswith(b"HTTP/1.1 404")
        monkeypatch.setattr(slow_clients, "HEADERS_SECONDS_MAX", 0.2)
        connection.sendall(HALF)
        assert rest(connection) == b""


def test_a_body_that_does_not_end_is_not_waited_for(address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "BODY_SECONDS_MAX", 0.2)
    headers = b"POST /api/v1/repairs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 100\r\n\r\n"
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(headers + b"{")
        assert rest(connection).startswith(b"HTTP/1.1 408")
