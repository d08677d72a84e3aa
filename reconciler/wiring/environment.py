"""Keeps an environment to one cluster: used by every process that writes its keys and rows."""

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

#: Pause between two looks before the work begins, as long as there is a doubt.
_LOOK_AGAIN_SECONDS = 1.0
#: A longer name or address is left out, because data of name servers must not fill Redis.
_BROKER_CHARACTERS_MAX = 512


def environment_guard(connections: Connections) -> EnvironmentGuard:
    """Makes the guard that keeps this process's use."""
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
    """Looks until there is no doubt, half a minute at most; called before anything is written. False: the stop came
    first.

    Raises InvalidValue if another cluster uses the environment, TransientError.
    """
    doubt = guard.look()
    if doubt is not None:
        logger.warning("environment_doubted", extra={"detail": str(doubt)})
    while doubt is not None and not connections.clock.wait(stop, _LOOK_AGAIN_SECONDS):
        doubt = guard.look()
    return not stop.is_set()


def known_brokers(connections: Connections) -> frozenset[str]:
    """Returns "cluster/broker at address" for every member of every broker; empty if no name server answers."""
    try:
        brokers = connections.rocketmq.routes.brokers().values()
    except BrokerUnavailable:
        return frozenset()
    every = (f"{b.cluster}/{b.broker_name} at {address}" for b in brokers for address in b.addresses.values())
    return frozenset(text for text in every if len(text) <= _BROKER_CHARACTERS_MAX)


def shared_places(connections: Connections) -> list[EnvironmentUses]:
    """Returns the places where each process of the environment stores its use."""
    return [RedisEnvironmentUses(connections.redis), connections.ledger.environment_uses]
