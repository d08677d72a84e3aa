"""Reads the clocks of the configured servers. A reading includes the time that the question took."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias, TypeVar

from reconciler.commands.asking.brokers import broker_fact
from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.secret import Secret
from reconciler.contract.subscription import Shard
from reconciler.errors import ReconcilerError
from reconciler.evidence.horizon import PROBE_GROUP, ROUTE, ProbeAnswer, Probes
from reconciler.policy.judging.clock_reading import ClockReading
from reconciler.shards.access import translated_errors
from reconciler.shards.values import time_ms_of
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import configured_databases
from reconciler.wiring.subscriptions import subscription_of

THE_DATABASE = Code("wiring.the-database", database=Field.FACT)
BROKERS_OF = Code("wiring.brokers-of", topic=Field.NAME)

T = TypeVar("T")

#: Pairs of a broker and the result of its probe. For a topic with an unknown route, the fact names the topic's brokers.
BrokerProbes: TypeAlias = Sequence[tuple[Fact, ProbeAnswer]]


def redis_clock(connections: Connections) -> ClockReading:
    """Reads Redis' clock, which dates the keys. Raises RedisAway."""
    return _read(connections, partial(_redis_ms, connections))


def other_clocks(
    connections: Connections, probed: Callable[[], BrokerProbes]
) -> Iterator[tuple[Fact, ClockReading | Fact]]:
    """Yields each database and each broker with its clock. A broker without a reading comes with the reason.

    Databases that do not answer are left out. `probed`: returns the probes. The copy of a probe has the broker's time.
    """
    databases: dict[Secret, Fact] = {}
    for database in configured_databases(connections.settings):
        databases.setdefault(database.url, THE_DATABASE(database=database.fact))
    for url, fact in databases.items():
        with suppress(ReconcilerError):
            yield fact, _read(connections, partial(connections.database_now_ms, url))
    yield from _by_name(_brokers(probed()))


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


def missing_probes(probed: BrokerProbes) -> Iterator[tuple[Fact, Fact]]:
    """Yields each broker without a probe in its index, and the reason. A broker may have accepted no probe."""
    return _by_name({broker: answer.why for broker, answer in probed if answer.why is not None})


def _brokers(probed: BrokerProbes) -> Mapping[Fact, ClockReading | Fact]:
    found: dict[Fact, ClockReading | Fact] = {}
    for broker, answer in probed:
        known = answer.clock or answer.why
        if known is not None and not isinstance(found.get(broker), ClockReading):
            found[broker] = known
    return found


def _by_name(found: Mapping[Fact, T]) -> Iterator[tuple[Fact, T]]:
    yield from sorted(found.items(), key=lambda one: one[0].values)


def probe_brokers(connections: Connections) -> BrokerProbes:
    """Sends a probe to each broker of each topic, one topic after the other. Probes show clocks and indexes."""
    instance = connections.rocketmq
    probes = Probes(
        instance.client,
        instance.routes,
        instance.sender(PROBE_GROUP),
        instance.unique_keys,
        probe_topic=connections.settings.rocketmq.probe_topic,
    )
    return [
        (BROKERS_OF(topic=topic) if broker == ROUTE else broker_fact(broker), answer)
        for topic in sorted({s.topic for s in connections.settings.subscriptions})
        for broker, answer in probes.probe(topic).items()
    ]
