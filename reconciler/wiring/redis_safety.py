"""Whether the Redis of the settings is safe to keep the sets: asked by `doctor`, and by `run` again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reconciler.settings.schema import Settings
from reconciler.shards.checks import RedisFinding, check_redis, require_safe
from reconciler.shards.client import RoundRedis, open_redis
from reconciler.wiring.connections import Connections

#: `doctor` waits this long for one answer.
_TIMEOUT_SECONDS = 3.0


def redis_findings(connections: Connections) -> Sequence[RedisFinding]:
    """All findings, of every primary where it is a cluster. Raises RedisAway."""
    settings = connections.settings
    redis = open_redis(settings.redis.url, timeout_seconds=_TIMEOUT_SECONDS, silences=connections.redis_silences)
    try:
        return _findings(redis, settings)
    finally:
        redis.close()


def require_safe_redis(redis: RoundRedis, settings: Settings) -> None:
    """Raises ConfigurationError for a Redis that could lose what it acknowledged, also for a node of a cluster beside
    one that is away; RedisAway."""
    _findings(redis, settings, judge=require_safe)


def _findings(
    redis: RoundRedis, settings: Settings, *, judge: Callable[[Sequence[RedisFinding]], object] = lambda _: None
) -> Sequence[RedisFinding]:
    return check_redis(
        redis.client,
        environment=settings.environment,
        accept_unverified=settings.redis.accept_unverified,
        judge=judge,
    )
