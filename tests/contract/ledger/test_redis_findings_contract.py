"""What `doctor` and the start of `run` find out about a real Redis."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from reconciler.errors import RedisAway
from reconciler.shards.checks import RedisQuality, Severity, check_redis, require_room
from reconciler.words import said
from tests.polling import eventually
from tests.services.redis_server import RedisServer

pytestmark = pytest.mark.redis


def test_a_finding_about_a_good_redis_is_missing_or_says_otherwise(
    new_redis_server: Callable[..., RedisServer],
) -> None:
    server = new_redis_server(options={"maxmemory-policy": "noeviction"})
    with redis.Redis.from_url(server.url) as client:
        client.config_set("lazyfree-lazy-server-del", "no")
        client.config_set("appendonly", "yes")
        found = {one.about: (one.severity, said(one.found)) for one in check_redis(client, environment="findings")}
        version = found.pop(RedisQuality.VERSION)
        assert version[0] is Severity.OK
        assert found == {
            RedisQuality.ROLE: (Severity.OK, "primary"),
            RedisQuality.EVICTION: (Severity.OK, "noeviction"),
            RedisQuality.PERSISTENCE: (Severity.OK, "append-only file"),
            RedisQuality.LAZY_FREE: (
                Severity.ADVICE,
                "lazyfree-lazy-server-del is no: replacing a big set frees it in place",
            ),
            RedisQuality.PERMISSIONS: (Severity.OK, "every command is allowed"),
        }
        client.config_set("lazyfree-lazy-server-del", "yes")
    with redis.Redis.from_url(server.url, max_connections=1) as client:  # each check gives its connection back
        assert "lazy-free" not in {one.about for one in check_redis(client, environment="findings")}
        assert "lazy-free" not in {one.about for one in check_redis(client, environment="findings")}
        require_room(client)
        client.config_set("maxmemory", 1)
        with pytest.raises(RedisAway, match=r"it is full, .* of maxmemory 1: raise maxmemory"):
            require_room(client)


@pytest.mark.parametrize(
    ("setting", "value", "remedy"),
    [("maxmemory", 1, "raise maxmemory of Redis"), ("min-replicas-to-write", 1, "start the replicas of Redis")],
)
def test_a_redis_that_refuses_everybody_is_away_and_no_permission_is_missing(
    new_redis_server: Callable[..., RedisServer], setting: str, value: int, remedy: str
) -> None:
    server = new_redis_server(options={"maxmemory-policy": "noeviction"})
    with redis.Redis.from_url(server.url, max_connections=1) as client:
        client.config_set(setting, value)
        with pytest.raises(RedisAway, match=remedy):
            check_redis(client, environment="findings")
        client.config_set(setting, 0)
        findings = check_redis(client, environment="findings")
        assert (RedisQuality.PERMISSIONS, Severity.OK) in {(one.about, one.severity) for one in findings}


def test_a_redis_that_is_busy_with_somebodys_script_is_away_and_tells_nothing_about_itself(
    new_redis_server: Callable[..., RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = new_redis_server(options={"maxmemory-policy": "noeviction", "busy-reply-threshold": "1"})
    with redis.Redis.from_url(server.url) as client, redis.Redis.from_url(server.url) as other:
        with ThreadPoolExecutor(1) as threads:
            script = threads.submit(other.eval, "while true do end", 0)
            try:
                eventually(lambda: _is_busy(client), within_seconds=30)
                with pytest.raises(RedisAway, match="end the script that keeps Redis busy"):
                    check_redis(client, environment="findings")
                with monkeypatch.context() as before_the_script:
                    before_the_script.setattr(client, "ping", lambda: True)
                    with pytest.raises(RedisAway, match="end the script that keeps Redis busy"):
                        check_redis(client, environment="findings")
            finally:
                client.script_kill()
                assert isinstance(script.exception(), redis.ResponseError)
        findings = check_redis(client, environment="findings")
        assert (RedisQuality.VERSION, Severity.OK) in {(one.about, one.severity) for one in findings}


def _is_busy(client: redis.Redis) -> bool:
    try:
        client.ping()
    except redis.ResponseError:
        return True
    return False
