"""Clients for Redis that never repeat a command by themselves, and one translation of redis-py's errors.

redis-py >= 6 retries every command after a time-out or reset: a call that should take 50 ms then takes seconds,
and a script whose reply was lost runs twice. Every client made here has no retry.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import SplitResult, urlsplit

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import parse_url
from redis.retry import Retry
from redis.sentinel import Sentinel

from reconciler.errors import InvalidValue, InvariantViolation, RedisAway

RedisLike = redis.Redis | RedisCluster

REDIS_PORT = 6379
SENTINEL_PORT = 26379


def open_redis(url: str, *, timeout_seconds: float = 2.0, connections_max: int = 64) -> RedisLike:
    """A client for redis://, rediss://, unix://, redis+sentinel://host:port,host:port/service or
    redis+cluster://host:port,host:port; user, password and redis-py's query options (?ssl=true) as in a plain URL.

    No retry; `timeout_seconds` is the longest wait for a connection and for an answer. Members are bytes, so
    nothing is decoded. Raises InvalidValue for a malformed URL, RedisAway if no cluster node answers (standalone
    servers and Sentinels are connected to on first use). The caller closes the client.
    """
    arguments: dict[str, Any] = {"socket_timeout": timeout_seconds, "retry": Retry(NoBackoff(), 0)}
    parts = urlsplit(url)
    if parts.scheme != "unix":
        arguments["socket_connect_timeout"] = timeout_seconds
    try:
        match parts.scheme:
            case "redis+cluster":
                nodes = [_cluster_node(host, port) for host, port in _hosts(parts, REDIS_PORT)]
                with translated_redis_errors():
                    return RedisCluster(startup_nodes=nodes, **(arguments | _options(parts)))
            case "redis+sentinel":
                return _open_sentinel(parts, arguments)
            case _:
                return redis.Redis.from_url(url, max_connections=connections_max, **arguments)
    except ValueError as error:
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        raise InvalidValue("redis url", shown, f"expected redis://host:port/db ({error})") from error


def _open_sentinel(parts: SplitResult, arguments: dict[str, Any]) -> redis.Redis:
    service, _, database = parts.path.strip("/").partition("/")
    if not service:
        raise ValueError("redis+sentinel://host:port,host:port/service")
    options = _options(parts)
    if database:
        options["db"] = int(database)
    # sentinel_username and sentinel_password log in at the Sentinels themselves.
    own = {
        name.removeprefix("sentinel_"): options.pop(name)
        for name in ("sentinel_username", "sentinel_password")
        if name in options
    }
    if options.get("ssl"):
        own["ssl"] = True
    hosts = _hosts(parts, SENTINEL_PORT)
    sentinel: Any = Sentinel(hosts, sentinel_kwargs=arguments | own)  # type: ignore[no-untyped-call]  # redis-py
    client: redis.Redis = sentinel.master_for(service, **(arguments | options))
    return client


def _cluster_node(host: str, port: int) -> ClusterNode:
    return ClusterNode(host, port)  # type: ignore[no-untyped-call]  # redis-py


def _hosts(parts: SplitResult, default_port: int) -> list[tuple[str, int]]:
    hosts: list[tuple[str, int]] = []
    for part in parts.netloc.rpartition("@")[2].split(","):
        host, separator, port = part.rpartition(":")
        if not separator or part.endswith("]"):
            host, port = part, str(default_port)
        if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise ValueError(f"{part!r} is no host:port")
        hosts.append((host.strip("[]"), int(port)))
    return hosts


def _options(parts: SplitResult) -> dict[str, Any]:
    """User, password and query options, read by redis-py as those of a plain URL."""
    credentials, at, _ = parts.netloc.rpartition("@")
    plain = f"redis://{credentials}{at}localhost/?{parts.query}"
    found: dict[str, Any] = dict(parse_url(plain))  # type: ignore[no-untyped-call]  # redis-py
    found.pop("host", None)
    if "ssl" in found:
        found["ssl"] = str(found["ssl"]).lower() in {"1", "true", "yes"}
    return found


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
