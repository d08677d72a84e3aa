"""The clocks of the servers that the settings name, each read with the time that the question took."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.secret import Secret
from reconciler.contract.subscription import Shard
from reconciler.errors import ReconcilerError
from reconciler.evidence.horizon import PROBE_GROUP, Probes
from reconciler.policy.judging.clock_reading import ClockReading
from reconciler.shards.access import translated_errors
from reconciler.shards.values import time_ms_of
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import configured_databases
from reconciler.wiring.subscriptions import subscription_of


def redis_clock(connections: Connections) -> ClockReading:
    """Redis dates the keys. Raises RedisAway."""
    return _read(connections, partial(_redis_ms, connections))


def other_clocks(connections: Connections) -> Iterator[tuple[str, ClockReading]]:
    """Databases and brokers, by name; those that do not answer are left out.

    Each broker gets a probe, whose copy carries the broker's time and proves that its index works.
    """
    names: dict[Secret, str] = {}
    for database in configured_databases(connections.settings):
        names.setdefault(database.url, f"the {database.name}")
    for url, name in names.items():
        with suppress(ReconcilerError):
            yield name, _read(connections, partial(connections.database_now_ms, url))
    yield from _brokers(connections)


def _read(connections: Connections, clock_ms: Callable[[], int]) -> ClockReading:
    asked_seconds = connections.clock.monotonic_seconds()
    at_ms = clock_ms()
    answered_seconds = connections.clock.monotonic_seconds()
    return ClockReading(at_ms=at_ms, asked_seconds=asked_seconds, answered_seconds=answered_seconds)


def _redis_ms(connections: Connections) -> int:
    subscription = subscription_of(connections.settings, connections.settings.subscriptions[0])
    client = connections.redis
    with translated_errors():
        return time_ms_of(client, client, ShardKeys(Shard(subscription=subscription, number=0)))


def _brokers(connections: Connections) -> Iterator[tuple[str, ClockReading]]:
    instance, clock = connections.rocketmq, connections.clock
    probes = Probes(
        instance.client,
        instance.routes,
        instance.sender(PROBE_GROUP),
        instance.unique_keys,
        probe_topic=connections.settings.rocketmq.probe_topic,
    )
    answered: set[str] = set()
    for topic in sorted({s.topic for s in connections.settings.subscriptions}):
        asked_seconds = clock.monotonic_seconds()
        answers = probes.probe(topic)
        answered_seconds = clock.monotonic_seconds()
        for broker, answer in sorted(answers.items()):
            if answer.at_ms is None or broker in answered:
                continue
            answered.add(broker)
            yield (
                f"broker {broker}",
                ClockReading(at_ms=answer.at_ms, asked_seconds=asked_seconds, answered_seconds=answered_seconds),
            )
