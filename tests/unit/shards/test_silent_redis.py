"""A Redis that takes connections and answers nothing costs who looks one deadline, over all clients of the process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from fakeredis import TcpFakeServer

from reconciler.clock import ManualClock
from reconciler.errors import RedisAway
from reconciler.shards.access import RedisClient, RedisSilences, open_client, translated_errors
from reconciler.shards.client import open_redis
from reconciler.silence import NEVER, PAUSES
from tests.polling import eventually
from tests.services.ports import free_port


class SilentServer:
    """Takes connections, and counts them."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", free_port()))
        self.port: int = self._listener.getsockname()[1]
        self._taken: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    @property
    def connections(self) -> int:
        return len(self._taken)

    def _accept(self) -> None:
        while True:
            try:
                self._taken.append(self._listener.accept()[0])
            except OSError:
                return

    def close(self) -> None:
        """Stops listening: connections are refused."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        for one in self._taken:
            one.close()


@pytest.fixture
def silent() -> Iterator[SilentServer]:
    server = SilentServer()
    yield server
    if server._thread.is_alive():
        server.close()


def opened(port: int, silences: RedisSilences, *, timeout_seconds: float = 0.5) -> RedisClient:
    return open_client(f"redis://127.0.0.1:{port}/0", timeout_seconds=timeout_seconds, silences=silences)


def ping(client: RedisClient) -> None:
    with translated_errors():
        client.ping()


def test_a_silent_redis_is_not_asked_again_by_any_client(silent: SilentServer) -> None:
    silences = RedisSilences(NEVER, ManualClock())
    rounds = open_redis(f"redis://127.0.0.1:{silent.port}/0", timeout_seconds=0.5, silences=silences)
    with closing(opened(silent.port, silences)) as commands, closing(rounds):
        with pytest.raises(RedisAway, match="Timeout"):
            ping(commands)
        for client in (commands, rounds.client) * 5:
            with pytest.raises(RedisAway, match="not asked again"):
                ping(client)
    eventually(lambda: silent.connections == 1, within_seconds=60)  # the kernel takes it before its thread does


def test_a_silent_redis_is_asked_again_after_its_pause_by_one(silent: SilentServer) -> None:
    clock = ManualClock()
    silences = RedisSilences(PAUSES, clock)
    with closing(opened(silent.port, silences)) as client:
        for connections in (1, 2):
            with pytest.raises(RedisAway, match="Timeout"):
                ping(client)
            with pytest.raises(RedisAway, match="asked again later"):
                ping(client)
            eventually(lambda count=connections: silent.connections == count, within_seconds=60)  # type: ignore[misc]
            clock.advance(PAUSES.first_seconds)


def test_a_redis_that_answers_again_is_asked_as_ever(silent: SilentServer) -> None:
    clock = ManualClock()
    silences = RedisSilences(PAUSES, clock)
    with closing(opened(silent.port, silences, timeout_seconds=5)) as client:
        with pytest.raises(RedisAway):
            ping(client)
        clock.advance(PAUSES.first_seconds)
        silent.close()
        with pytest.raises(RedisAway, match="refused"):  # says nothing: it may be asked at once
            ping(client)
        server = TcpFakeServer(("127.0.0.1", silent.port))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            ping(client)
            ping(client)
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
