"""The settings accept what the client opens."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from reconciler.errors import InvalidValue
from reconciler.settings.types import RedisUrl
from reconciler.shards.access import CONNECTIONS_MAX, SENTINEL_PORT_DEFAULT, open_client

URL: TypeAdapter[object] = TypeAdapter(RedisUrl)


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://user:secret@h1:26379,h2:26380/orders",
        "redis+cluster://h1:6379,h2:6379,h3:6379",
        "redis+cluster://h1:6379",
        "unix:///run/redis.sock?db=0",
        "rediss://h1:6380/0",
    ],
)
def test_a_url_of_each_kind_is_accepted(url: str) -> None:
    assert URL.validate_python(url)


@pytest.mark.parametrize("url", ["redis+cluster://h1:6379,h2:x", "redis+sentinel://h1,h2:99999/svc", "redis://h:x"])
def test_a_malformed_host_among_several_is_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        URL.validate_python(url)


def test_a_port_a_login_or_a_database_is_lost_on_its_way_to_the_sentinels() -> None:
    text = "redis+sentinel://app:word@h1:26380,[::1]/orders/3?sentinel_username=look&sentinel_password=other&ssl=true"
    client: Any = open_client(text, timeout_seconds=2.5, primary_only=True)
    pool = client.connection_pool
    assert (pool.service_name, pool.connection_kwargs["db"], pool.is_master) == ("orders", 3, True)
    assert (pool.connection_kwargs["username"], pool.connection_kwargs["password"]) == ("app", "word")
    assert pool.connection_kwargs["redis_connect_func"] is not None
    asked = [sentinel.connection_pool.connection_kwargs for sentinel in pool.sentinel_manager.sentinels]
    assert [(one["host"], one["port"]) for one in asked] == [("h1", 26380), ("::1", SENTINEL_PORT_DEFAULT)]
    for one in asked:
        assert (one["username"], one["password"]) == ("look", "other"), "those of the data would be refused there"
        assert (one["socket_timeout"], one["socket_connect_timeout"]) == (2.5, 2.5)
        assert one["retry"].get_retries() == 0


def test_waiting_for_a_connection_takes_as_long_as_waiting_for_an_answer() -> None:
    client: Any = open_client("redis://h:1/2", timeout_seconds=5.0, connect_timeout_seconds=0.5)
    pool = client.connection_pool
    kept = pool.connection_kwargs
    assert (kept["socket_timeout"], kept["socket_connect_timeout"], kept["db"]) == (5.0, 0.5, 2)
    assert (kept["socket_keepalive"], kept["decode_responses"], pool.max_connections) == (True, False, CONNECTIONS_MAX)
    assert "redis_connect_func" not in kept
    with pytest.raises(InvalidValue, match="redis url"):
        open_client("redis+sentinel://h1,h2:x/svc")
