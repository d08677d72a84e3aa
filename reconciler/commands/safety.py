"""Reasons for which `run`, `once` and `sweep` refuse to start.

The reasons are a Redis that may lose keys, and two outboxes with one identity. `doctor` also asks whether Redis can
safely keep the sets, and `run` repeats this question while it runs.
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

#: Longest time that `doctor` waits for one answer.
_TIMEOUT_SECONDS = 3.0

UNSAFE_REDIS = Code("safety.unsafe-redis", about=Field.NAME, found=Field.FACT, remedy=Field.FACTS)


def require_safe_redis(assembly: RoundAssembly) -> None:
    """Raises ConfigurationError for a Redis that could lose what it acknowledged.

    One unsafe node of a cluster is enough, even while another node is away. Raises RedisAway.
    """
    _judged(assembly.redis, assembly.settings, require_safe)


def redis_findings(connections: Connections) -> Sequence[RedisFinding]:
    """Returns all findings about Redis. A cluster has findings for every primary. Raises RedisAway."""
    settings = connections.settings
    redis = open_redis(settings.redis.url, timeout_seconds=_TIMEOUT_SECONDS, silences=connections.redis_silences)
    try:
        return _judged(redis, settings, lambda _: None)
    finally:
        redis.close()


def _judged(
    redis: RoundRedis, settings: Settings, judge: Callable[[Sequence[RedisFinding]], object]
) -> Sequence[RedisFinding]:
    """Returns all findings, after `judge` has got the findings of each primary that answers.

    Raises what `judge` raises. Raises RedisAway if a primary of the cluster is away.
    """
    return check_redis(
        redis.client,
        environment=settings.environment,
        accept_unverified=settings.redis.accept_unverified,
        judge=judge,
    )


def require_safe(findings: Sequence[RedisFinding]) -> None:
    """Raises ConfigurationError if a finding is a refusal. The error has every refusal with its remedy."""
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
