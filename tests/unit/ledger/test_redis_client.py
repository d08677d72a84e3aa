"""URLs, error translation and the fake server of the demo."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
import redis
from fakeredis import TcpFakeServer
from redis import exceptions
from redis.sentinel import SentinelConnectionPool

from reconciler.errors import ConfigurationError, InvariantViolation, ReconcilerError, RedisAway
from reconciler.ledger.redis_checks import Severity, check_redis, require_safe
from reconciler.ledger.redis_client import open_client, open_redis, translate, translated_errors
from reconciler.ledger.row_rules import bounded_text
from reconciler.ledger.shard_memory import RedisShardMemory
from tests.contract.ledger.rows import shard


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (exceptions.ConnectionError("refused"), RedisAway),
        (exceptions.TimeoutError("late"), RedisAway),
        (exceptions.AuthenticationError("WRONGPASS"), RedisAway),
        (exceptions.NoPermissionError("no permissions to run 'unknown command'"), RedisAway),
        (exceptions.ReadOnlyError("You can't write against a read only replica."), RedisAway),
        (exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), RedisAway),
        (exceptions.BusyLoadingError("loading"), RedisAway),
        (exceptions.TryAgainError("TRYAGAIN Multiple keys"), RedisAway),
        (exceptions.ClusterDownError("CLUSTERDOWN"), RedisAway),
        (exceptions.RedisClusterException("no node"), RedisAway),
        (exceptions.ResponseError("MISCONF errors writing to the AOF file"), RedisAway),
        (OSError("reset"), RedisAway),
        (exceptions.ResponseError("WRONGTYPE Operation against a key"), InvariantViolation),
        (exceptions.ResponseError("value is not an integer or out of range"), InvariantViolation),
        (exceptions.DataError("bad input"), InvariantViolation),
        (exceptions.ResponseError("unknown command 'ZDIFFSTORE', with args"), ConfigurationError),
    ],
)
def test_every_driver_error_has_one_meaning_and_keeps_its_cause(error: Exception, kind: type[ReconcilerError]) -> None:
    assert type(translate(error)) is kind
    with pytest.raises(kind) as caught, translated_errors():
        raise error
    assert caught.value.__cause__ is error


def test_a_watch_error_is_not_translated() -> None:
    with pytest.raises(exceptions.WatchError), translated_errors():
        raise exceptions.WatchError("changed")


@pytest.mark.parametrize(
    "url", ["redis://u:p@h:7000/0", "rediss://h/0", "unix:///run/r.sock?db=0", "redis+sentinel://u:p@h:1,h2:2/svc"]
)
def test_no_client_ever_repeats_a_command(url: str) -> None:
    clients = open_redis(url, timeout_seconds=3, round_timeout_seconds=77)
    for client, timeout_seconds in ((clients.rounds, 77), (clients.short, 3)):
        assert isinstance(client, redis.Redis)
        settings = client.connection_pool.connection_kwargs
        assert settings["retry"].get_retries() == 0
        assert settings["socket_timeout"] == timeout_seconds
        assert settings["decode_responses"] is False
    clients.close()


def test_sentinel_urls_carry_hosts_service_and_credentials() -> None:
    url = "redis+sentinel://user:pa%40ss@h1,h2:7,[::1]:8/orders?sentinel_password=s&ssl=true&db=0"
    client = open_client(url, timeout_seconds=1)
    assert isinstance(client, redis.Redis)
    pool = client.connection_pool
    assert isinstance(pool, SentinelConnectionPool)
    assert pool.service_name == "orders"
    assert (pool.connection_kwargs["username"], pool.connection_kwargs["password"]) == ("user", "pa@ss")
    hosts = [
        (one.connection_pool.connection_kwargs["host"], one.connection_pool.connection_kwargs["port"])
        for one in pool.sentinel_manager.sentinels
    ]
    assert hosts == [("h1", 26379), ("h2", 7), ("::1", 8)]
    assert {one.connection_pool.connection_kwargs["password"] for one in pool.sentinel_manager.sentinels} == {"s"}
    client.close()


def test_texts_are_made_storable() -> None:
    assert bounded_text("a\x00b\ud800c", 4) == "a\N{REPLACEMENT CHARACTER}b?"


@pytest.fixture
def fake_server() -> Iterator[str]:
    """What the demo starts where there is no redis-server."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    server = TcpFakeServer(("127.0.0.1", port), server_type="redis")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"redis://127.0.0.1:{port}/0"
    server.shutdown()
    server.server_close()
    thread.join(10)


def test_the_fake_server_is_refused_unless_unverified_is_accepted_and_then_works(fake_server: str) -> None:
    clients = open_redis(fake_server)
    with pytest.raises(ConfigurationError, match="accept_unverified"):
        require_safe(check_redis(clients.short, environment="demo"))
    findings = check_redis(clients.short, environment="demo", accept_unverified=True)
    require_safe(findings)
    assert {one.name for one in findings if one.severity is Severity.ADVICE} >= {"eviction", "version"}
    memory, of = RedisShardMemory(clients), shard("demo")
    done = memory.take_round(of, epoch=memory.begin_epoch(of))
    assert done is not None
    assert memory.state(of).generation == 1
    clients.close()
