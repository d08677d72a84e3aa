"""The clocks of the servers that the settings name, each read with the time that the question took."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias

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

#: Name of a broker, or of a topic whose route is not known, and what came of its probe.
BrokerProbes: TypeAlias = Sequence[tuple[str, ProbeAnswer]]


def redis_clock(connections: Connections) -> ClockReading:
    """Redis dates the keys. Raises RedisAway."""
    return _read(connections, partial(_redis_ms, connections))


def other_clocks(
    connections: Connections, probed: Callable[[], BrokerProbes]
) -> Iterator[tuple[str, ClockReading | str]]:
    """Databases and brokers by name, each with its clock; of a broker also the reason why it could not be read.

    Databases that do not answer are left out. `probed`: probes of the brokers, whose copies carry their times.
    """
    names: dict[Secret, str] = {}
    for database in configured_databases(connections.settings):
        names.setdefault(database.url, f"the {database.name}")
    for url, name in names.items():
        with suppress(ReconcilerError):
            yield name, _read(connections, partial(connections.database_now_ms, url))
    yield from sorted(_brokers(probed()).items())


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


def missing_probes(probed: BrokerProbes) -> Mapping[str, str]:
    """Brokers whose index does not show a probe that they have stored, or that take none, each with the reason."""
    return {name: answer.detail for name, answer in probed if answer.at_ms is None}


def _brokers(probed: BrokerProbes) -> Mapping[str, ClockReading | str]:
    found: dict[str, ClockReading | str] = {}
    for name, answer in probed:
        if not isinstance(found.get(name), ClockReading):
            found[name] = answer.clock or answer.detail
    return found


def probe_brokers(connections: Connections) -> BrokerProbes:
    """A probe to each broker of each topic, one topic after the other, which tells its clock and its index."""
    instance = connections.rocketmq
    probes = Probes(
        instance.client,
        instance.routes,
        instance.sender(PROBE_GROUP),
        instance.unique_keys,
        probe_topic=connections.settings.rocketmq.probe_topic,
    )
    return [
        (f"brokers of {topic}" if broker == ROUTE else f"broker {broker}", answer)
        for topic in sorted({s.topic for s in connections.settings.subscriptions})
        for broker, answer in probes.probe(topic).items()
    ]
