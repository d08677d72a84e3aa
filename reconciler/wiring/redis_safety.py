"""Whether the Redis of the settings is safe to keep the sets: asked by `doctor`, and by `run` again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reconciler.settings.schema import Settings
from reconciler.shards.checks import RedisFinding, RedisQuality, Severity, check_redis
from reconciler.shards.client import RoundRedis, open_redis
from reconciler.wiring.connections import Connections

__all__ = ["RedisFinding", "RedisQuality", "Severity", "judged_redis", "redis_findings"]

#: `doctor` waits this long for one answer.
_TIMEOUT_SECONDS = 3.0


def redis_findings(connections: Connections) -> Sequence[RedisFinding]:
    """All findings, of every primary where it is a cluster. Raises RedisAway."""
    settings = connections.settings
    redis = open_redis(settings.redis.url, timeout_seconds=_TIMEOUT_SECONDS, silences=connections.redis_silences)
    try:
        return judged_redis(redis, settings, lambda _: None)
    finally:
        redis.close()


def judged_redis(
    redis: RoundRedis, settings: Settings, judge: Callable[[Sequence[RedisFinding]], object]
) -> Sequence[RedisFinding]:
    """`judge` has the findings of each primary, also of a cluster's beside one that is away. Raises what it raises,
    RedisAway."""
    return check_redis(
        redis.client,
        environment=settings.environment,
        accept_unverified=settings.redis.accept_unverified,
        judge=judge,
    )
