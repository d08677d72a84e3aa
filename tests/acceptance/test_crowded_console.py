"""The console among thousands of connections that ask for nothing, or read nothing: a probe is answered."""

from __future__ import annotations

import http.client
import resource
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tests.acceptance.deployment import Service
from tests.polling import eventually
from tests.services.ports import free_port

# Ten thousand connections a few times over: it would take the processors from the tests beside it.
pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
IDLE, UNREAD = 2_000, 500
#: Each takes fewer connections than one address may have.
ADDRESSES = [f"127.0.{number}.2" for number in range(1, 51)]
PAGES = b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500
SECONDS = 25.0
ANSWER_SECONDS_MAX = 1.0
#: A closed connection is made again after this.
AGAIN_SECONDS = 1.0


class Crowd:
    """Connections of other addresses; those that the server closes are made again."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._over = threading.Event()
        self._poll = select.poll()
        self._sockets: dict[int, tuple[socket.socket, int]] = {}
        self.is_whole = threading.Event()
        #: Connections that were made again.
        self.closed = 0

    def run(self) -> None:
        """Until `end`."""
        for number in range(IDLE + UNREAD):
            self._connect(number)
        self.is_whole.set()
        while not self._over.is_set():
            self._over.wait(AGAIN_SECONDS)
            for descriptor, _ in self._poll.poll(0):
                connection, number = self._sockets[descriptor]
                if number < IDLE or self._is_closed(connection):
                    self._poll.unregister(descriptor)
                    self._sockets.pop(descriptor)[0].close()
                    self.closed += 1
                    self._connect(number)
        for connection, _ in self._sockets.values():
            connection.close()

    def end(self) -> None:
        self._over.set()

    def _connect(self, number: int) -> None:
        source = (ADDRESSES[number % len(ADDRESSES)], 0)
        with suppress(OSError):
            connection = socket.create_connection(("127.0.0.1", self._port), timeout=10, source_address=source)
            if number >= IDLE:
                connection.setblocking(False)
                with suppress(OSError):
                    connection.send(PAGES)
            # A reader that never reads is told of the end only.
            self._poll.register(connection, select.POLLIN if number < IDLE else select.POLLHUP | select.POLLERR)
            self._sockets[connection.fileno()] = (connection, number)

    @staticmethod
    def _is_closed(connection: socket.socket) -> bool:
        try:
            return connection.send(b"\r\n") == 0
        except BlockingIOError:
            return False
        except OSError:
            return True


@contextmanager
def crowded(port: int) -> Iterator[Crowd]:
    crowd = Crowd(port)
    thread = threading.Thread(target=crowd.run)
    thread.start()
    try:
        yield crowd
    finally:
        crowd.end()
        thread.join()


def probed(port: int) -> float:
    """Seconds to the answer."""
    began = time.monotonic()
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("GET", "/livez")
        assert connection.getresponse().status == 200
    return time.monotonic() - began


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Of a server that has 1,024 descriptors, as many systems allow."""
    port = free_port()
    variables = {
        "RECONCILER_CONFIG": str(ROOT / "config" / "reconciler.toml"),
        "RECONCILER_LEDGER__URL": f"sqlite:///{tmp_path}/none.db",
        "RECONCILER_WEB__LISTEN": f"127.0.0.1:{port}",
    }
    service = Service(tmp_path / "web.log", ["web"], variables=variables)
    try:
        eventually(lambda: "web_listening" in service.output, within_seconds=60)
        resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE, (1_024, 1_024))
        yield port
    finally:
        assert service.end() == 0
    assert "out of system resource" not in service.output
    assert "web_connection_refused" in service.output or "web_connection_displaced" in service.output


def test_a_crowd_keeps_no_probe_from_its_answer(port: int) -> None:
    needed = 2 * (IDLE + UNREAD)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(needed, hard)), hard))
    answers: list[float] = []
    with crowded(port) as crowd:
        while not crowd.is_whole.is_set() or len(answers) < 50:
            answers.append(probed(port))
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            answers.append(probed(port))
    assert crowd.closed > IDLE, "idle connections were closed"
    assert max(answers) < ANSWER_SECONDS_MAX
