"""Redis connections that never repeat a command by themselves, speak to the primary only, and fail with our errors.

redis-py 6 and newer sends MULTI/EXEC again after a time-out or a reset; when only the reply of EXEC was lost, the
second run sees empty sets and reports nothing missing. Hence Retry(NoBackoff(), 0), and a time-out far above the
longest round. URLs:

    redis://user:password@host:6379/0                 rediss:// the same over TLS
    unix://user:password@/run/redis.sock?db=0
    redis+sentinel://user:password@host:26379,host2:26379/service?sentinel_password=...&ssl=true
    redis+cluster://user:password@host:6379,host2:6379?ssl=true
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import SplitResult, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import parse_url
from redis.exceptions import (
    ConnectionError as RedisConnectionError,
)
from redis.exceptions import (
    DataError,
    NoPermissionError,
    RedisClusterException,
    RedisError,
    ResponseError,
    WatchError,
)
from redis.retry import Retry
from redis.sentinel import Sentinel

from reconciler.errors import ConfigurationError, InvalidValue, InvariantViolation, RedisAway

RedisClient: TypeAlias = "redis.Redis | RedisCluster"

#: Longest wait for a round's reply: a round of 20 000 keys takes 16 ms, one of 10 000 000 under 30 s.
ROUND_TIMEOUT_SECONDS_DEFAULT = 120.0
TIMEOUT_SECONDS_DEFAULT = 5.0
CONNECT_TIMEOUT_SECONDS_DEFAULT = 3.0
SENTINEL_PORT_DEFAULT = 26379
PORT_DEFAULT = 6379


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisClients:
    """Two clients of one Redis; both are thread-safe connection pools that connect at first use."""

    #: For the round's MULTI: long time-out.
    rounds: RedisClient
    #: For everything else.
    short: RedisClient

    def close(self) -> None:
        """Closes all connections."""
        self.rounds.close()
        self.short.close()


def open_redis(
    url: str,
    *,
    round_timeout_seconds: float = ROUND_TIMEOUT_SECONDS_DEFAULT,
    timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT,
    connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS_DEFAULT,
) -> RedisClients:
    """Clients for a URL; the caller closes them.

    Raises InvalidValue for a malformed URL. A cluster is asked for its nodes at once: RedisAway if none answers.
    """
    rounds = open_client(url, timeout_seconds=round_timeout_seconds, connect_timeout_seconds=connect_timeout_seconds)
    try:
        short = open_client(url, timeout_seconds=timeout_seconds, connect_timeout_seconds=connect_timeout_seconds)
    except BaseException:
        rounds.close()
        raise
    return RedisClients(rounds=rounds, short=short)


def open_client(
    url: str, *, timeout_seconds: float, connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS_DEFAULT
) -> RedisClient:
    """One client without retries; see open_redis."""
    arguments: dict[str, Any] = {
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": connect_timeout_seconds,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),
        "health_check_interval": 0,
        "decode_responses": False,
    }
    parts = urlsplit(url)
    if parts.scheme != "redis+cluster":  # a cluster's replica sends every command to its primary
        arguments["redis_connect_func"] = _PrimaryOnly()
    try:
        match parts.scheme:
            case "redis" | "rediss" | "unix":
                if parts.scheme == "unix":
                    del arguments["socket_keepalive"], arguments["socket_connect_timeout"]
                client: RedisClient = redis.Redis.from_url(url, **arguments)
            case "redis+sentinel":
                client = _sentinel(parts, arguments)
            case "redis+cluster":
                client = _cluster(parts, arguments)
            case scheme:
                raise InvalidValue("redis url", scheme, "use redis, rediss, unix, redis+sentinel or redis+cluster")
    except ValueError as error:
        raise InvalidValue("redis url", _without_password(parts), str(error)) from error
    return client


def _sentinel(parts: SplitResult, arguments: dict[str, Any]) -> redis.Redis:
    service = parts.path.strip("/")
    if not service or "/" in service:
        raise ValueError("expected redis+sentinel://host:port,host:port/name-of-the-service")
    options = _options(parts)
    sentinel_options = {
        name.removeprefix("sentinel_"): options.pop(name)
        for name in ("sentinel_username", "sentinel_password")
        if name in options
    }
    plain = {name: value for name, value in arguments.items() if name not in ("decode_responses", "redis_connect_func")}
    if options.get("ssl"):
        sentinel_options["ssl"] = True
    # redis-py leaves these two without annotations.
    sentinel: Any = Sentinel(_hosts(parts, SENTINEL_PORT_DEFAULT), sentinel_kwargs=plain | sentinel_options)  # type: ignore[no-untyped-call]
    client: redis.Redis = sentinel.master_for(service, **arguments, **options)
    return client


def _cluster(parts: SplitResult, arguments: dict[str, Any]) -> RedisCluster:
    nodes = [ClusterNode(host, port) for host, port in _hosts(parts, PORT_DEFAULT)]  # type: ignore[no-untyped-call]
    with translated_errors():
        return RedisCluster(startup_nodes=nodes, **(arguments | _options(parts)))


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
    """User, password and query options as redis-py reads them from a plain URL."""
    credentials, at, _ = parts.netloc.rpartition("@")
    found = dict(parse_url(f"redis://{credentials}{at}localhost/?{parts.query}"))  # type: ignore[no-untyped-call]
    found.pop("host", None)
    if "ssl" in found:
        found["ssl"] = str(found["ssl"]).lower() in {"1", "true", "yes"}
    return found


def _without_password(parts: SplitResult) -> str:
    return f"{parts.scheme}://…@{parts.netloc.rpartition('@')[2]}{parts.path}"


class _PrimaryOnly:
    """Logs in, then asks ROLE: a replica's data is old and its pending set would be verified twice.

    Shared by the connections of one pool; the flag only ever goes from True to False.
    """

    def __init__(self) -> None:
        self._server_knows_role = True

    def __call__(self, connection: Any) -> None:
        connection.on_connect()
        if not self._server_knows_role:
            return
        connection.send_command("ROLE")
        try:
            role = connection.read_response()
        except ResponseError as error:
            # Not allowed, or unknown: redis_checks reports it.
            if "unknown command" in str(error).lower():
                # fakeredis' TCP server closes a connection after an error reply.
                self._server_knows_role = False
                connection.disconnect()
                connection.connect()
            return
        if role and role[0] not in (b"master", "master"):
            raise RedisConnectionError(f"{getattr(connection, 'host', 'this Redis')} is not the primary")


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turns redis-py's errors into ours, cause kept; WatchError passes, its meaning is the caller's."""
    try:
        yield
    except WatchError:
        raise
    except (RedisError, RedisClusterException, OSError) as error:
        raise translate(error) from error


def translate(error: Exception) -> RedisAway | ConfigurationError | InvariantViolation:
    """What a redis-py error means here.

    WRONGTYPE and a counter that is no number are damage: InvariantViolation. A command that the server does not
    know is a server that is too old: ConfigurationError. All else passes by itself or by an operator's hand, and
    nothing is lost meanwhile: RedisAway (away, loading, read-only, out of memory, no permission, slot moving).
    """
    text = str(error)[:300]
    if isinstance(error, DataError):
        return InvariantViolation(f"redis-py refused a value: {text}")
    if isinstance(error, ResponseError) and not isinstance(error, NoPermissionError):
        if "WRONGTYPE" in text or "Operation against a key holding the wrong kind" in text:
            return InvariantViolation(f"Redis key of a wrong type: {text}")
        if "not an integer" in text or "not a valid float" in text:
            return InvariantViolation(f"Redis value that is no number: {text}")
        if "unknown command" in text.lower():
            return ConfigurationError(f"Redis is older than 6.2 or renames commands: {text}")
    return RedisAway(f"Redis: {text or type(error).__name__}")
