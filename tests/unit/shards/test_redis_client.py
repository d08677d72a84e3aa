"""The client of the rounds, and the fake server of the demo."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import redis
from fakeredis import TcpFakeServer

from reconciler.commands.safety import require_safe
from reconciler.contract.row_rules import bounded_text
from reconciler.errors import ConfigurationError
from reconciler.shards.checks import Severity, check_redis
from reconciler.shards.client import open_redis
from reconciler.shards.memory import RedisShardMemory
from tests.contract.ledger.rows import shard
from tests.services.ports import free_port


@pytest.mark.parametrize(
    "url", ["redis://u:p@h:7000/0", "rediss://h/0", "unix:///run/r.sock?db=0", "redis+sentinel://u:p@h:1,h2:2/svc"]
)
def test_no_client_ever_repeats_a_command(url: str) -> None:
    rounds = open_redis(url, timeout_seconds=3, round_timeout_seconds=77)
    assert isinstance(rounds.client, redis.Redis)
    settings = rounds.client.connection_pool.connection_kwargs
    assert settings["retry"].get_retries() == 0
    assert settings["socket_timeout"] == 3
    assert settings["decode_responses"] is False
    rounds.close()


def test_texts_are_made_storable() -> None:
    assert bounded_text("a\x00b\ud800c", 4) == "a\N{REPLACEMENT CHARACTER}b?"


@pytest.fixture
def fake_server() -> Iterator[str]:
    """What the demo starts where there is no redis-server."""
    port = free_port()
    server = TcpFakeServer(("127.0.0.1", port), server_type="redis")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"redis://127.0.0.1:{port}/0"
    server.shutdown()
    server.server_close()
    thread.join(60)


def test_the_fake_server_is_refused_unless_unverified_is_accepted_and_then_works(fake_server: str) -> None:
    rounds = open_redis(fake_server)
    with pytest.raises(ConfigurationError, match="accept_unverified"):
        require_safe(check_redis(rounds.client, environment="demo"))
    findings = check_redis(rounds.client, environment="demo", accept_unverified=True)
    require_safe(findings)
    assert [one.about for one in findings] == ["role", "version", "eviction", "permissions"]
    assert {one.about for one in findings if one.severity is Severity.ADVICE} >= {"eviction", "version"}
    memory, of = RedisShardMemory(rounds), shard("demo")
    done = memory.take_round(of, epoch=memory.begin_epoch(of))
    assert done is not None
    assert memory.state(of).generation == 1
    rounds.close()
