"""Clients that keep a connection and leave the server waiting, and more of them than it has places for."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from reconciler.clock import SystemClock
from reconciler.settings.file import load_settings
from reconciler.web import application, bounded_listener
from reconciler.web.server import serving_web
from tests.polling import eventually
from tests.services.certificates import Authority
from tests.services.ports import free_port
from tests.unit.web.web_world import with_three_users

ROOT = Path(__file__).parents[3]
WHOLE = b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n"
HALF = WHOLE[:20]
PROBE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
BODILESS = b"POST /api/v1/repairs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 100\r\n\r\n"
ANSWER_OF = application.answer_of
Serve = Callable[..., AbstractContextManager[tuple[str, int]]]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """A server for the length of a block. `variables`: names of settings in [web] -> values."""

    @contextmanager
    def serving(**variables: str) -> Iterator[tuple[str, int]]:
        environment = {f"RECONCILER_WEB__{name.upper()}": value for name, value in variables.items()}
        environment["RECONCILER_LEDGER__URL"] = f"sqlite:///{tmp_path}/none.db"
        settings = load_settings(ROOT / "config" / "reconciler.toml", environment)
        with serving_web(settings, f"127.0.0.1:{free_port()}", clock=SystemClock()) as address:
            yield address

    return serving


@pytest.fixture
def address(serve: Serve) -> Iterator[tuple[str, int]]:
    with serve() as address:
        yield address


class Asked:
    """Pages that were asked for. None is answered before the end."""

    def __init__(self) -> None:
        self._paths: list[str] = []
        self._is_over = threading.Event()

    def answer(self, services: object, route: object, request: object) -> object:
        self._paths.append(request.path)  # type: ignore[attr-defined]
        if self._paths[-1] == "/login":
            self._is_over.wait(60)
        return ANSWER_OF(services, route, request)  # type: ignore[arg-type]

    def await_pages(self, count: int) -> None:
        eventually(lambda: self._paths.count("/login") >= count, within_seconds=60)

    def end(self) -> None:
        self._is_over.set()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Answers at the end of the block at last: the server waits for them when it stops."""
        try:
            yield
        finally:
            self.end()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    found = Asked()
    monkeypatch.setattr(application, "answer_of", found.answer)
    return found


def rest(connection: socket.socket) -> bytes:
    """Until the server closes."""
    found = bytearray()
    with suppress(ConnectionResetError):
        while piece := connection.recv(65_536):
            found += piece
    return bytes(found)


def from_(host: str, address: tuple[str, int]) -> socket.socket:
    """A connection from another address of this machine."""
    return socket.create_connection(address, timeout=60, source_address=(host, 0))


def is_served(host: str, address: tuple[str, int]) -> bool:
    with from_(host, address) as connection:
        with suppress(ConnectionError):
            connection.sendall(PROBE)
        return rest(connection).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("sent", [b"", HALF], ids=["nothing", "half a request"])
def test_a_client_that_sends_no_request_does_not_keep_its_place(
    address: tuple[str, int], sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_listener, "REQUEST_SECONDS_MAX", 0.2)
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
        monkeypatch.setattr(bounded_listener, "REQUEST_SECONDS_MAX", 0.2)
        connection.sendall(HALF)
        assert rest(connection) == b""


def test_a_client_that_never_speaks_tls_does_not_keep_its_place(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_listener, "REQUEST_SECONDS_MAX", 0.2)
    issued = Authority(tmp_path).issue("server")
    with (
        serve(tls_certificate=str(issued.certificate), tls_key=str(issued.key)) as address,
        socket.create_connection(address, timeout=60) as connection,
    ):
        assert rest(connection) == b""


def test_a_body_that_does_not_end_is_not_waited_for(address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "BODY_SECONDS_MAX", 0.2)
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(BODILESS + b"{")
        assert rest(connection).startswith(b"HTTP/1.1 408")


def test_a_client_that_reads_nothing_does_not_keep_its_place(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_listener, "UNREAD_SECONDS_MAX", 0.3)
    monkeypatch.setattr(bounded_listener, "OF_AN_ADDRESS_MAX", 1)
    with serve() as address, from_("127.0.0.2", address) as connection:
        connection.setblocking(False)
        with suppress(BlockingIOError, ConnectionError):  # a slow machine may be cut off before all is full
            for _ in range(10_000):
                connection.send(WHOLE * 100)
        eventually(lambda: is_served("127.0.0.2", address), within_seconds=60)


def test_idle_connections_of_an_address_keep_nobody_there_out(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bounded_listener, "OF_AN_ADDRESS_MAX", 3)
    with serve() as address, ExitStack() as connections:
        idle, served, unfinished = (connections.enter_context(from_("127.0.0.2", address)) for _ in range(3))
        served.sendall(WHOLE)
        assert served.recv(4) == b"HTTP", "so that it waits for less long than the others"
        unfinished.sendall(BODILESS + b"{")
        for longest in (idle, unfinished, served):
            connections.enter_context(from_("127.0.0.2", address))
            assert b"HTTP" not in rest(longest)
        assert is_served("127.0.0.2", address)
    told = [record for record in caplog.records if record.message == "web_connection_displaced"]
    assert [vars(record)["address"] for record in told] == ["127.0.0.2"], "once a minute"


def test_one_address_takes_the_places_of_no_other(serve: Serve, asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_listener, "OF_AN_ADDRESS_MAX", 3)
    with serve(proxy_addresses='["127.0.0.4"]') as address, asked.waiting(), ExitStack() as connections:
        for _ in range(3):
            connections.enter_context(from_("127.0.0.2", address)).sendall(WHOLE)
        asked.await_pages(3)
        assert not is_served("127.0.0.2", address)
        assert is_served("127.0.0.3", address)
        for _ in range(10):
            connections.enter_context(from_("127.0.0.4", address)).sendall(WHOLE)
        asked.await_pages(13)
        assert is_served("127.0.0.4", address), "a proxy is many people"
        asked.end()
        eventually(lambda: is_served("127.0.0.2", address), within_seconds=60)


def test_whoever_waits_for_an_answer_loses_no_place(
    serve: Serve, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_listener, "CONNECTIONS_MAX", 5)
    monkeypatch.setattr(bounded_listener, "KEPT_FOR_PROBES", 1)
    with serve() as address, asked.waiting(), ExitStack() as connections:
        busy = [connections.enter_context(from_(f"127.0.0.{number}", address)) for number in (2, 3)]
        for one in busy:
            one.sendall(WHOLE)
        asked.await_pages(2)
        idle = [connections.enter_context(from_(f"127.0.0.{number}", address)) for number in (4, 5)]
        for one in idle:
            connections.enter_context(from_("127.0.0.6", address)).sendall(WHOLE)
            assert rest(one) == b""
        asked.await_pages(4)
        assert not is_served("127.0.0.7", address)
        asked.end()
        for one in busy:
            assert one.recv(4) == b"HTTP"


def test_connections_that_are_about_to_close_are_bounded(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_listener, "OF_AN_ADDRESS_MAX", 2)
    monkeypatch.setattr(bounded_listener, "LEAVING_MAX", 0)
    with serve() as address, from_("127.0.0.2", address), from_("127.0.0.2", address):
        assert not is_served("127.0.0.2", address)


def test_probes_have_places_that_nobody_else_takes(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bounded_listener, "CONNECTIONS_MAX", 6)
    monkeypatch.setattr(bounded_listener, "KEPT_FOR_PROBES", 2)
    with serve(probe_addresses='["127.0.1.0/24"]') as address, ExitStack() as connections:
        for _ in range(4):
            connections.enter_context(from_("127.0.1.9", address))
        for _ in range(3):
            assert not is_served("127.0.0.9", address)
        assert is_served("127.0.0.1", address)
        assert is_served("127.0.1.7", address)
    told = [record for record in caplog.records if record.message == "web_connection_refused"]
    assert [vars(record)["address"] for record in told] == ["127.0.0.9"], "once a minute"


def test_a_probe_waits_for_no_page(serve: Serve, asked: Asked, tmp_path: Path) -> None:
    with serve(users_file=str(with_three_users(tmp_path))) as address, asked.waiting(), ExitStack() as connections:
        for number in range(45):  # more than there are threads
            connections.enter_context(from_(f"127.0.0.{2 + number % 9}", address)).sendall(WHOLE)
        asked.await_pages(40)
        assert is_served("127.0.0.1", address)
