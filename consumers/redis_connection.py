"""Clients for Redis that never repeat a command by themselves, and one translation of redis-py's errors.

redis-py >= 6 retries every command after a time-out or reset: a call that should take 50 ms then takes seconds,
and a script whose reply was lost runs twice. Every client made here has no retry.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry
from redis.sentinel import Sentinel

from reconciler.errors import InvalidValue, InvariantViolation, RedisAway

RedisLike = redis.Redis | RedisCluster

SENTINEL_SCHEME = "redis+sentinel"
CLUSTER_SCHEME = "redis+cluster"
SENTINEL_PORT = 26379


def open_redis(url: str, *, timeout_seconds: float = 2.0, connections_max: int = 64) -> RedisLike:
    """A client for redis://, rediss://, unix://, redis+sentinel://host:port/service[/db] or redis+cluster://host:port.

    No retry; `timeout_seconds` is the longest wait for a connection and for an answer. Members are bytes, so
    nothing is decoded. Raises InvalidValue for a malformed URL, RedisAway if a cluster or Sentinel is away
    (standalone servers are connected to on first use). The caller closes the client.
    """
    options: dict[str, Any] = {
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": timeout_seconds,
        "decode_responses": False,
    }
    parts = urlsplit(url)
    try:
        if parts.scheme == CLUSTER_SCHEME:
            plain = urlunsplit(parts._replace(scheme="redis"))
            with translated_redis_errors():
                return RedisCluster.from_url(plain, retry=_no_retry(), **options)
        if parts.scheme == SENTINEL_SCHEME:
            return _open_sentinel(url, options)
        return redis.Redis.from_url(url, retry=_no_retry(), max_connections=connections_max, **options)
    except ValueError as error:
        shown = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        raise InvalidValue("redis url", shown, f"expected redis://host:port/db ({error})") from error


def _open_sentinel(url: str, options: dict[str, Any]) -> redis.Redis:
    parts = urlsplit(url)
    names = [name for name in parts.path.split("/") if name]
    hosts = [host.rpartition(":") for host in parts.netloc.rpartition("@")[2].split(",")]
    if not names or not all(host for _, _, host in hosts):
        raise ValueError("redis+sentinel://host:port/service")
    nodes = [(name or port, int(port) if name else SENTINEL_PORT) for name, _, port in hosts]
    login = {"username": parts.username or None, "password": parts.password}
    sentinel: Any = Sentinel(nodes, retry=_no_retry(), **options)  # type: ignore[no-untyped-call]  # redis-py
    database = int(names[1]) if len(names) > 1 else 0
    client: redis.Redis = sentinel.master_for(names[0], retry=_no_retry(), db=database, **login, **options)
    return client


def _no_retry() -> Retry:
    return Retry(NoBackoff(), 0)


#: A server that answers with one of these is there but does not take part. redis-py cuts the word off where it has
#: a class for it; then the class is the name.
_AWAY = (
    "READONLY", "OOM", "NOAUTH", "WRONGPASS", "NOPERM", "LOADING", "MISCONF", "MASTERDOWN", "CLUSTERDOWN", "BUSY",
    "TRYAGAIN", "NOREPLICAS", "MOVED", "ASK",
)  # fmt: skip


@contextmanager
def translated_redis_errors() -> Iterator[None]:
    """RedisAway for everything that a later try can cure, InvariantViolation for a key of another type."""
    try:
        yield
    except exceptions.ResponseError as error:
        # Redis 6 wraps what fails inside a script: "ERR Error running script ...: -WRONGTYPE Operation ...".
        text = str(error)[:300]
        if "WRONGTYPE" in text:
            raise InvariantViolation(f"a Redis key of ours has another type: {text}") from error
        reason = next((word for word in _AWAY if word in text), type(error).__name__)
        raise RedisAway(f"Redis refuses ({reason}): {text}") from error
    except (exceptions.RedisError, exceptions.RedisClusterException, OSError) as error:
        raise RedisAway(f"Redis does not answer: {type(error).__name__}: {str(error)[:300]}") from error
