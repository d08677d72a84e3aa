"""Makes sure that only one cluster uses an environment. Every process that writes keys and rows uses this guard."""

from __future__ import annotations

import logging
import threading

from reconciler.announcing.consumer import process_token
from reconciler.contract.urls import shown_url
from reconciler.errors import BrokerUnavailable
from reconciler.policy.environment import EnvironmentGuard
from reconciler.policy.ports.environment import EnvironmentUses
from reconciler.shards.environment_uses import RedisEnvironmentUses
from reconciler.wiring.connections import Connections

logger = logging.getLogger(__name__)

#: Pause between two looks at the environment. A process with a doubt looks again before it begins its work.
_LOOK_AGAIN_SECONDS = 1.0
#: Maximum number of characters of a broker's name and address. Longer texts are left out, so that name servers cannot
#: fill Redis.
_BROKER_CHARACTERS_MAX = 512


def environment_guard(connections: Connections) -> EnvironmentGuard:
    """Makes the guard that records that this process uses the environment."""
    return EnvironmentGuard(
        shared_places(connections),
        lambda: known_brokers(connections),
        RedisEnvironmentUses(connections.redis),
        redis_at=shown_url(connections.settings.redis.url),
        environment=connections.settings.environment,
        by=process_token(),
        clock=connections.clock,
    )


def enter_environment(connections: Connections, guard: EnvironmentGuard, *, stop: threading.Event) -> bool:
    """Looks for up to half a minute until there is no doubt. Call this before anything is written.

    Returns False if the stop came first. Raises InvalidValue if another cluster uses the environment. Raises
    TransientError.
    """
    doubt = guard.look()
    if doubt is not None:
        logger.warning("environment_doubted", extra={"detail": str(doubt)})
    while doubt is not None and not connections.clock.wait(stop, _LOOK_AGAIN_SECONDS):
        doubt = guard.look()
    return not stop.is_set()


def known_brokers(connections: Connections) -> frozenset[str]:
    """Returns "cluster/broker at address" for every member of every broker. Empty: no name server answers."""
    try:
        brokers = connections.rocketmq.routes.brokers().values()
    except BrokerUnavailable:
        return frozenset()
    every = (f"{b.cluster}/{b.broker_name} at {address}" for b in brokers for address in b.addresses.values())
    return frozenset(text for text in every if len(text) <= _BROKER_CHARACTERS_MAX)


def shared_places(connections: Connections) -> list[EnvironmentUses]:
    """Returns the places in which each process stores its use of the environment."""
    return [RedisEnvironmentUses(connections.redis), connections.ledger.environment_uses]
