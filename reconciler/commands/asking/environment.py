"""Findings about the environment: whether another cluster uses it, and whether a process ever ran with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.urls import shown_url
from reconciler.errors import InvalidValue, RedisAway
from reconciler.policy.environment import conflict, told_redis
from reconciler.policy.ports.environment import EnvironmentUses
from reconciler.shards.environment_uses import RedisEnvironmentUses
from reconciler.telling.account import unknown_environment
from reconciler.telling.ports.reports import EnvironmentTraces
from reconciler.wiring.connections import Connections
from reconciler.wiring.environment import known_brokers, shared_places

OTHER_CLUSTER = Code("status.other-cluster", why=Field.TEXT)


def ask_environment(connections: Connections) -> dict[str, Callable[[], None]]:
    """Returns place -> a question whether another installation uses the environment there now.

    The question raises InvalidValue if a process of another cluster, or with another Redis, uses the environment.
    Raises TransientError.
    """
    environment, brokers = connections.settings.environment, known_brokers(connections)
    redis = RedisEnvironmentUses(connections.redis)

    def ask(uses: EnvironmentUses) -> None:
        use, told = uses.current(environment), None
        with suppress(RedisAway):  # a Redis that is away has its own line
            told = told_redis(redis.identity(environment), shown_url(connections.settings.redis.url))
        error = conflict(uses.place, environment, use, brokers, told)
        if error is not None:
            raise error

    return {uses.place: partial(ask, uses) for uses in shared_places(connections)}


def other_clusters(connections: Connections) -> Iterator[Fact]:
    """Yields one fact for each place where another cluster uses the environment.

    The data there may belong to that cluster. Raises DatabaseAway.
    """
    for ask in ask_environment(connections).values():
        with suppress(RedisAway):  # `away` reports it
            try:
                ask()
            except InvalidValue as error:
                yield OTHER_CLUSTER(why=str(error))


def traces_of(connections: Connections, *, before_ms: int) -> EnvironmentTraces:
    """Returns the traces that processes of the environment have left in the ledger and in Redis.

    A Redis that has lost its memory has lost these traces, too. A Redis that is away has its own line, and the
    environment may still be known. Raises DatabaseAway.
    """
    environment = connections.settings.environment
    traces = connections.ledger.reports.traces(environment, before_ms=before_ms)
    try:
        is_used = RedisEnvironmentUses(connections.redis).identity(environment) != ""
    except RedisAway:
        is_used = True
    return replace(traces, is_known=traces.is_known or is_used)


def never_run(connections: Connections) -> Fact | None:
    """Returns a fact if no process ever ran with the environment of the settings although other environments are known.

    An empty answer about such an environment proves nothing. Raises DatabaseAway.
    """
    before_ms = connections.ledger_now_ms()
    return unknown_environment(connections.settings.environment, traces_of(connections, before_ms=before_ms))
