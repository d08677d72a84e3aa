"""Keeps the environment to one cluster: asked by what writes its keys and rows, by `doctor` and by `status`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from reconciler.announcing.consumer import process_token
from reconciler.contract.facts import Fact
from reconciler.contract.urls import shown_url
from reconciler.errors import BrokerUnavailable, RedisAway
from reconciler.policy.environment import EnvironmentGuard, conflict, told_redis
from reconciler.policy.ports.environment import EnvironmentUses
from reconciler.shards.environment_uses import RedisEnvironmentUses
from reconciler.telling.account import unknown_environment
from reconciler.telling.ports.reports import EnvironmentTraces
from reconciler.wiring.connections import Connections

logger = logging.getLogger(__name__)

#: Pause between two looks before the work begins, while there is a doubt.
_LOOK_AGAIN_SECONDS = 1.0
#: A longer name or address is left out: what name servers tell must not fill Redis.
_BROKER_CHARACTERS_MAX = 512


def environment_guard(connections: Connections) -> EnvironmentGuard:
    """The use of this process."""
    return EnvironmentGuard(
        _places(connections),
        lambda: _known_brokers(connections),
        RedisEnvironmentUses(connections.redis),
        redis_at=shown_url(connections.settings.redis.url),
        environment=connections.settings.environment,
        by=process_token(),
        clock=connections.clock,
    )


def enter_environment(connections: Connections, guard: EnvironmentGuard, *, stop: threading.Event) -> bool:
    """Before anything is written: looks until there is no doubt, half a minute at most. False: the stop came first.

    Raises InvalidValue if another cluster is run with the environment, TransientError.
    """
    doubt = guard.look()
    if doubt is not None:
        logger.warning("environment_doubted", extra={"detail": str(doubt)})
    while doubt is not None and not connections.clock.wait(stop, _LOOK_AGAIN_SECONDS):
        doubt = guard.look()
    return not stop.is_set()


def ask_environment(connections: Connections) -> dict[str, Callable[[], None]]:
    """Place -> raises InvalidValue if a process of another cluster, or with another Redis, keeps its use there now.

    Raises TransientError.
    """
    environment, brokers = connections.settings.environment, _known_brokers(connections)
    redis = RedisEnvironmentUses(connections.redis)

    def ask(uses: EnvironmentUses) -> None:
        use, told = uses.current(environment), None
        with suppress(RedisAway):  # it has a line of its own
            told = told_redis(redis.identity(environment), shown_url(connections.settings.redis.url))
        error = conflict(uses.place, environment, use, brokers, told)
        if error is not None:
            raise error

    return {uses.place: partial(ask, uses) for uses in _places(connections)}


def traces_of(connections: Connections, *, before_ms: int) -> EnvironmentTraces:
    """What processes of the environment have left, in the ledger and in Redis since it lost its memory last.

    A Redis that is away has a line of its own, and is no sign that the environment is unknown. Raises DatabaseAway.
    """
    environment = connections.settings.environment
    traces = connections.ledger.reports.traces(environment, before_ms=before_ms)
    try:
        is_used = RedisEnvironmentUses(connections.redis).identity(environment) != ""
    except RedisAway:
        is_used = True
    return replace(traces, is_known=traces.is_known or is_used)


def never_run(connections: Connections) -> Fact | None:
    """That nothing ever ran with the environment of the settings, beside others: what is not found proves nothing then.

    Raises DatabaseAway.
    """
    before_ms = connections.ledger_now_ms()
    return unknown_environment(connections.settings.environment, traces_of(connections, before_ms=before_ms))


def _known_brokers(connections: Connections) -> frozenset[str]:
    """ "cluster/broker at address" of every member of every broker; empty where no name server answers."""
    try:
        brokers = connections.rocketmq.routes.brokers().values()
    except BrokerUnavailable:
        return frozenset()
    every = (f"{b.cluster}/{b.broker_name} at {address}" for b in brokers for address in b.addresses.values())
    return frozenset(text for text in every if len(text) <= _BROKER_CHARACTERS_MAX)


def _places(connections: Connections) -> list[EnvironmentUses]:
    return [RedisEnvironmentUses(connections.redis), connections.ledger.environment_uses]
