"""What `reconciler doctor` says of the clocks: everything that compares times assumes that they hardly differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import sqlalchemy as sa

from reconciler.commands.finding import Finding
from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Shard
from reconciler.errors import ReconcilerError
from reconciler.evidence.horizon import PROBE_GROUP, Probes
from reconciler.policy.judging.clock_reading import ClockReading
from reconciler.shards.access import translated_errors
from reconciler.shards.values import time_ms_of
from reconciler.sql.engines import database_now_ms, reading
from reconciler.wiring.connections import Connections
from reconciler.wiring.evidence_databases import inbox_databases, outbox_databases
from reconciler.wiring.subscriptions import subscription_of

_REMEDY = "set the clocks right (NTP); while they differ, what was lost is found later, or looked up for nothing"


def check_clocks(connections: Connections) -> Sequence[Finding]:
    """Every server's clock against Redis', which dates the keys. Who is away is told by the check of its own.

    Raises RedisAway. Brokers are asked with a probe each: it tells their time, and whether their index works.
    """
    margin_seconds = connections.settings.rounds.skew_margin_seconds
    redis = _read(connections, partial(_redis_ms, connections))
    compared: list[str] = []
    findings: list[Finding] = []
    for server, found in _others(connections):
        compared.append(server)
        ahead_seconds = found.ahead_of(redis)
        if abs(ahead_seconds) > margin_seconds:
            way = "ahead of" if ahead_seconds > 0 else "behind"
            text = f"{abs(ahead_seconds):.1f} s {way} Redis, more than rounds.skew_margin_seconds = {margin_seconds:g}"
            findings.append(Finding(check=f"clock of {server}", level="fail", found=text, remedy=_REMEDY))
    if not findings and compared:
        text = f"Redis and {', '.join(compared)} differ by less than {margin_seconds:g} s"
        findings.append(Finding(check="clocks", level="ok", found=text))
    return findings


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


def _others(connections: Connections) -> Iterator[tuple[str, ClockReading]]:
    for name, url in _databases(connections):
        with suppress(ReconcilerError):
            engine = connections.engine(url, read_only=True)
            yield name, _read(connections, partial(_database_ms, engine))
    yield from _brokers(connections)


def _databases(connections: Connections) -> Iterator[tuple[str, str]]:
    settings = connections.settings
    urls = {settings.ledger.url.get_secret_value(): "the ledger"}
    for database in [*outbox_databases(settings), *inbox_databases(settings)]:
        urls.setdefault(database.url, f"the {database.name}")
    for url, name in urls.items():
        yield name, url


def _database_ms(engine: sa.Engine) -> int:
    with reading(engine) as connection:
        return database_now_ms(connection)


def _brokers(connections: Connections) -> Iterator[tuple[str, ClockReading]]:
    instance, clock = connections.rocketmq, connections.clock
    probes = Probes(
        instance.client,
        instance.routes,
        instance.sender(PROBE_GROUP),
        instance.unique_keys,
        probe_topic=connections.settings.rocketmq.probe_topic,
    )
    told: set[str] = set()
    for topic in sorted({s.topic for s in connections.settings.subscriptions}):
        asked_seconds = clock.monotonic_seconds()
        answers = probes.probe(topic)
        answered_seconds = clock.monotonic_seconds()
        for broker, answer in sorted(answers.items()):
            if answer.at_ms is None or broker in told:
                continue
            told.add(broker)
            yield (
                f"broker {broker}",
                ClockReading(at_ms=answer.at_ms, asked_seconds=asked_seconds, answered_seconds=answered_seconds),
            )
