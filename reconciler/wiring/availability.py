"""Which dependencies are away: asked by commands that must not wait, and end with exit code 3."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import sqlalchemy as sa

from reconciler.contract.secret import Secret
from reconciler.errors import (
    BrokerRefused,
    BrokerUnavailable,
    DependencyAway,
    ReconcilerError,
    RedisAway,
    TransientError,
)
from reconciler.rocketmq.client.demands import explained
from reconciler.shards.access import translated_errors
from reconciler.shards.checks import require_room
from reconciler.sql.engines import reading
from reconciler.wiring.brokers import masters
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import inbox_databases, outbox_databases

REDIS_REMEDY = "start Redis, or correct redis.url (rediss:// or ssl=true where it takes TLS only)"


def who_is_away(asked: Mapping[str, Callable[[], object]]) -> tuple[str, ...]:
    """One line for each that does not answer. Raises what no waiting can cure: missing tables, a wrong driver."""
    away = []
    for name, ask in asked.items():
        try:
            ask()
        except TransientError as error:
            away.append(f"{name}: {error}")
    return tuple(away)


def results_of(asked: Mapping[str, Callable[[], object]]) -> dict[str, str | None]:
    """Each with what is wrong with it, missing tables and drivers included; None: it answered. Raises nothing."""
    return {name: _result_of(ask) for name, ask in asked.items()}


def _result_of(ask: Callable[[], object]) -> str | None:
    try:
        ask()
    except ReconcilerError as error:
        return str(error)
    return None


def require_all_dependencies(connections: Connections) -> None:
    """Raises DependencyAway with all that are away; ConfigurationError for a ledger without tables."""
    require(ask_redis(connections) | ask_ledger(connections) | ask_databases(connections) | ask_brokers(connections))


def require(asked: Mapping[str, Callable[[], object]]) -> None:
    """Raises DependencyAway with all of them that are away."""
    away = who_is_away(asked)
    if away:
        raise DependencyAway("; ".join(away))


def ask_ledger(connections: Connections) -> dict[str, Callable[[], object]]:
    """Whether the ledger answers and has its tables."""
    return {"ledger": lambda: connections.ledger.holds.active(connections.settings.environment)}


def ask_redis(connections: Connections) -> dict[str, Callable[[], object]]:
    """Whether Redis answers and has room to write."""

    def ping() -> None:
        try:
            with translated_errors():
                connections.redis.ping()
        except RedisAway as error:
            if error.remedy:
                raise
            raise RedisAway(str(error).rstrip("."), remedy=REDIS_REMEDY) from error
        require_room(connections.redis)

    return {"redis": ping}


def ask_brokers(connections: Connections) -> dict[str, Callable[[], object]]:
    """Whether a name server answers, and every master that it knows."""

    def ping() -> None:
        for address in masters(connections).values():
            try:
                connections.admin.broker_config(address)
            except BrokerRefused:
                continue  # a refusal is an answer
            except BrokerUnavailable as error:
                raise BrokerUnavailable(explained(error, address)) from error

    return {"rocketmq": ping}


def ask_databases(connections: Connections) -> dict[str, Callable[[], object]]:
    """Whether the databases of outboxes and inboxes answer."""

    def ping(url: Secret) -> Callable[[], object]:
        def ask() -> None:
            with reading(connections.engine(url, read_only=True)) as connection:
                connection.execute(sa.text("SELECT 1"))

        return ask

    settings = connections.settings
    return {found.name: ping(found.url) for found in [*outbox_databases(settings), *inbox_databases(settings)]}
