"""Reasons for which `run`, `once` and `sweep` refuse to start: a Redis that may lose keys, two outboxes with one
identity.

`doctor` also asks whether Redis can safely keep the sets, and `run` asks again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reconciler.commands.asking.witness_roles import shared_identity
from reconciler.contract.facts import Code, Field
from reconciler.errors import ConfigurationError
from reconciler.settings.schema import Settings
from reconciler.shards.checks import RedisFinding, Severity, check_redis
from reconciler.shards.client import RoundRedis, open_redis
from reconciler.wiring.connections import Connections
from reconciler.wiring.rounds import RoundAssembly
from reconciler.words import said

#: How long `doctor` waits for one answer.
_TIMEOUT_SECONDS = 3.0

UNSAFE_REDIS = Code("safety.unsafe-redis", about=Field.NAME, found=Field.FACT, remedy=Field.FACTS)


def require_safe_redis(assembly: RoundAssembly) -> None:
    """Raises ConfigurationError for a Redis that could lose what it acknowledged, also for one node of a cluster while
    another is away; RedisAway."""
    _judged(assembly.redis, assembly.settings, require_safe)


def redis_findings(connections: Connections) -> Sequence[RedisFinding]:
    """Returns all findings; in a cluster, those of every primary. Raises RedisAway."""
    settings = connections.settings
    redis = open_redis(settings.redis.url, timeout_seconds=_TIMEOUT_SECONDS, silences=connections.redis_silences)
    try:
        return _judged(redis, settings, lambda _: None)
    finally:
        redis.close()


def _judged(
    redis: RoundRedis, settings: Settings, judge: Callable[[Sequence[RedisFinding]], object]
) -> Sequence[RedisFinding]:
    """`judge` gets the findings of each primary, even if another one of the cluster is away. Raises what `judge`
    raises, RedisAway."""
    return check_redis(
        redis.client,
        environment=settings.environment,
        accept_unverified=settings.redis.accept_unverified,
        judge=judge,
    )


def require_safe(findings: Sequence[RedisFinding]) -> None:
    """Raises ConfigurationError with every refusal and its remedy."""
    refused = [
        UNSAFE_REDIS(
            about=f"{one.node} {one.about}".lstrip(),
            found=one.found,
            remedy=() if one.remedy is None else (one.remedy,),
        )
        for one in findings
        if one.severity is Severity.REFUSED
    ]
    if refused:
        raise ConfigurationError("; ".join(map(said, refused)))


def require_own_identities(connections: Connections) -> None:
    """Raises ConfigurationError for two outboxes with one identity."""
    problem = shared_identity(connections)
    if problem is not None:
        raise ConfigurationError(said(problem))
