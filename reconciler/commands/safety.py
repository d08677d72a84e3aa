"""What `run`, `once` and `sweep` refuse to start with: a Redis that may lose keys, two outboxes of one identity."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.contract.facts import Code, Field
from reconciler.errors import ConfigurationError
from reconciler.wiring.connections import Connections
from reconciler.wiring.evidence import shared_identity
from reconciler.wiring.redis_safety import RedisFinding, Severity, judged_redis
from reconciler.wiring.rounds import RoundAssembly
from reconciler.words import said

UNSAFE_REDIS = Code("safety.unsafe-redis", about=Field.NAME, found=Field.FACT, remedy=Field.FACTS)


def require_safe_redis(assembly: RoundAssembly) -> None:
    """Raises ConfigurationError for a Redis that could lose what it acknowledged, also for a node of a cluster beside
    one that is away; RedisAway."""
    judged_redis(assembly.redis, assembly.settings, require_safe)


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
