"""Finds out which dependencies are away, for commands that must not wait and end with exit code 3."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TypeVar

from reconciler.commands.asking.brokers import masters
from reconciler.commands.together import found_by_each
from reconciler.contract.facts import Code, Fact, Field, in_pairs
from reconciler.contract.secret import Secret
from reconciler.errors import (
    BrokerRefused,
    BrokerUnavailable,
    DependencyAway,
    ReconcilerError,
    RedisAway,
    TransientError,
    without_remedy,
)
from reconciler.rocketmq.client.demands import explained
from reconciler.settings.schema import Settings
from reconciler.shards.checks import require_answers, require_room
from reconciler.sql.engines import require_answer
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import EvidenceDatabase, inbox_databases, outbox_databases

T = TypeVar("T")

DATABASE_AWAY = Code("wiring.database-away", database=Field.FACT, why=Field.TEXT)
#: Two facts about one database that several groups share.
SHARED = Code("wiring.shared", first=Field.FACT, second=Field.FACT)
BROKER_AWAY = Code("wiring.broker-away", broker=Field.NAME, why=Field.TEXT)
#: Name -> the fact for a dependency that is away.
AWAY = {
    "ledger": Code("wiring.ledger-away", why=Field.TEXT),
    "redis": Code("wiring.redis-away", why=Field.TEXT),
    "rocketmq": Code("wiring.rocketmq-away", why=Field.TEXT),
    "rights at brokers": Code("wiring.rights-away", why=Field.TEXT),
    "history": Code("wiring.history-away", why=Field.TEXT),
}

REDIS_REMEDY = "start Redis, or correct redis.url (rediss:// or ssl=true where it takes TLS only)"


def who_is_away(asked: Mapping[str, Callable[[], object]]) -> dict[str, TransientError]:
    """Returns name -> error for each dependency that does not answer.

    All dependencies are asked in parallel, so the slowest answer decides how long this takes. Raises errors that no
    waiting can cure, such as missing tables or a wrong driver.
    """
    found = _by_name(asked, _why_away)
    return {name: why for name, why in found.items() if why is not None}


def facts_of_away(settings: Settings, asked: Mapping[str, Callable[[], object]]) -> dict[str, Fact]:
    """Returns name -> fact for each dependency that does not answer. Names with one cause share one fact.

    Each broker has a name of its own. The name `rocketmq` is away if no broker answers. Raises what who_is_away()
    raises.
    """
    names: dict[TransientError, list[str]] = {}
    for name, error in who_is_away(asked).items():
        names.setdefault(error, []).append(name)
    found: dict[str, Fact] = {}
    databases = {one.name: one.fact for one in _databases(settings)}
    for error, of_error in names.items():
        if isinstance(error, _SomeAway):
            of_brokers = {broker_name(one): broker_away(one, str(why)) for one, why in error.brokers.items()}
            found |= of_brokers | (dict.fromkeys(of_error, next(iter(of_brokers.values()))) if error.is_all else {})
        elif of := [databases[name] for name in of_error if name in databases]:
            found |= dict.fromkeys(of_error, database_away(of, str(error)))
        else:
            found |= {name: away(name, str(error)) for name in of_error}
    return found


def broker_name(broker: str) -> str:
    """Returns the name that reports use for a broker that is away."""
    return f"broker {broker}"


def away(name: str, why: str) -> Fact:
    """Returns the fact that one of AWAY does not answer."""
    return AWAY[name](why=why)


def broker_away(broker: str, why: str) -> Fact:
    """Returns the fact that a broker does not answer."""
    return BROKER_AWAY(broker=broker, why=why)


def database_away(databases: Sequence[Fact], why: str) -> Fact:
    """Returns the fact that a database does not answer. `databases`: one fact for each name of the database."""
    shared = in_pairs(lambda first, second: SHARED(first=first, second=second), databases)
    return DATABASE_AWAY(database=shared, why=why)


def _by_name(asked: Mapping[str, Callable[[], object]], find: Callable[[Callable[[], object]], T]) -> dict[str, T]:
    """Returns name -> what `find` returns for the question. A question under several names is asked once."""
    found = found_by_each(find, list(dict.fromkeys(asked.values())))
    return {name: found[ask] for name, ask in asked.items()}


def _why_away(ask: Callable[[], object]) -> TransientError | None:
    try:
        ask()
    except TransientError as error:
        return error
    return None


def results_of(asked: Mapping[str, Callable[[], object]]) -> dict[str, str | None]:
    """Returns name -> what is wrong with the dependency, such as missing tables. None: the dependency answered.

    All dependencies are asked in parallel. A database with several names gets its remedy once. Raises nothing.
    """
    found: dict[str, str | None] = {}
    named: set[ReconcilerError] = set()
    for name, error in _by_name(asked, _error_of).items():
        found[name] = None
        if error is not None:
            found[name] = without_remedy(error) if error in named else str(error)
            named.add(error)
    return found


def _error_of(ask: Callable[[], object]) -> ReconcilerError | None:
    try:
        ask()
    except ReconcilerError as error:
        return error
    return None


def require_all_dependencies(connections: Connections) -> None:
    """Raises DependencyAway with the names of all dependencies that are away. Raises ConfigurationError for a ledger
    without tables."""
    require(ask_redis(connections) | ask_ledger(connections) | ask_databases(connections) | ask_brokers(connections))


def require(asked: Mapping[str, Callable[[], object]]) -> None:
    """Raises DependencyAway with the names of all dependencies in `asked` that are away."""
    found = who_is_away(asked)
    if found:
        raise DependencyAway(_joined(found))


class _SomeAway(BrokerUnavailable):
    def __init__(self, brokers: Mapping[str, TransientError], *, is_all: bool) -> None:
        super().__init__(_joined(brokers))
        self.brokers = brokers
        self.is_all = is_all


def _joined(found: Mapping[str, TransientError]) -> str:
    return "; ".join(f"{name}: {why}" for name, why in found.items())


def ask_ledger(connections: Connections) -> dict[str, Callable[[], object]]:
    """Returns the question whether the ledger answers, has its tables, and keeps no row that was rolled back."""
    ledger = connections.ledger

    def ask() -> None:
        ledger.database.require_transactions()
        ledger.holds.active(connections.settings.environment)

    return {"ledger": ask}


def ask_redis(connections: Connections) -> dict[str, Callable[[], object]]:
    """Returns the question whether Redis answers and has room to write."""

    def ping() -> None:
        try:
            require_answers(connections.redis)
        except RedisAway as error:
            if error.remedy:
                raise
            raise RedisAway(str(error).rstrip("."), remedy=REDIS_REMEDY) from error
        require_room(connections.redis)

    return {"redis": ping}


def ask_brokers(connections: Connections) -> dict[str, Callable[[], object]]:
    """Returns the question whether a name server and every master answer."""

    def ping(address: str) -> None:
        try:
            connections.admin.broker_config(address)
        except BrokerRefused:
            return  # a refusal is an answer
        except BrokerUnavailable as error:
            raise BrokerUnavailable(explained(error, address)) from error

    def ping_all() -> None:
        asked = {name: partial(ping, address) for name, address in masters(connections).items()}
        found = who_is_away(asked)
        if found:
            raise _SomeAway(found, is_all=len(found) == len(asked))

    return {"rocketmq": ping_all}


def ask_databases(connections: Connections) -> dict[str, Callable[[], object]]:
    """Returns the questions whether the databases of outboxes and inboxes answer."""

    @cache
    def ping(url: Secret) -> Callable[[], object]:
        """Returns one question for each database, however many groups share it."""

        def ask() -> None:
            require_answer(connections.engine(url, read_only=True))

        return ask

    return {found.name: ping(found.url) for found in _databases(connections.settings)}


def _databases(settings: Settings) -> Sequence[EvidenceDatabase]:
    return [*outbox_databases(settings), *inbox_databases(settings)]
