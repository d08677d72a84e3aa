"""Wiring of the commands that prepare: logging, tables, topics."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.errors import BrokerUnavailable, ConfigurationError
from reconciler.instrumentation.log import configure_logging
from reconciler.settings.schema import Settings
from reconciler.wiring.brokers import READER_GROUPS
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import configured_databases, named_database, tables_as_sql


def start_logging(settings: Settings, *, is_service: bool = True) -> None:
    """Logs of the whole process to standard error, as configured; a command that ends soon tells warnings only."""
    is_chatty = settings.logging.level == "info" and not is_service
    configure_logging("warning" if is_chatty else settings.logging.level, settings.logging.format)


def upgrade_database(url: str, tree: str) -> str:
    """Creates or upgrades the tables of a tree (outbox, inbox, ledger); returns the revision."""
    return named_database(url, tree).upgrade()


def database_ddl(tree: str, dialect: str) -> str:
    """The DDL of a tree as text."""
    return tables_as_sql(tree, dialect)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradedDatabase:
    """A database whose tables are up to date now."""

    name: str
    revision: str


def upgrade_configured(settings: Settings, tree: str) -> list[UpgradedDatabase]:
    """The same for every database that the settings name for a tree, each once; an error leaves the later ones."""
    named = [database for database in configured_databases(settings) if database.tree == tree]
    if not named:
        raise ConfigurationError(f"the settings name no {tree}_url: name the database with --url or RECONCILER_DB_URL")
    return [UpgradedDatabase(name=database.name, revision=database.upgrade()) for database in named]


def missing_drivers(settings: Settings) -> list[str]:
    """One line for each setting whose database cannot be reached by what is installed, with what to install."""
    first = {database.url: database for database in reversed(configured_databases(settings))}
    return [
        f"{database.setting}: {missing}"
        for database in reversed(first.values())
        if (missing := database.missing_driver()) is not None
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """A topic on one master."""

    topic: str
    broker: str
    queues: int


def create_topics(settings: Settings, *, business_queues: int | None = None) -> list[CreatedTopic]:
    """The unique-key topics with exactly the configured queues, the probe topic and our groups, on every master.

    With business_queues, also the configured business topics and consumer groups that a master does not have yet;
    those that exist are left as they are. Raises BrokerUnavailable if a name server or a master is away: a topic that
    is missing on one broker would cost announcements when the others are away.
    """
    names = dict.fromkeys(settings.unique_key_topic.name_for(s.topic) for s in settings.subscriptions)
    wanted = [(name, settings.unique_key_topic.queues) for name in names] + [(settings.rocketmq.probe_topic, 1)]
    created: list[CreatedTopic] = []
    with Connections(settings) as connections:
        admin = connections.admin
        brokers = connections.rocketmq.routes.brokers()
        if not brokers:
            raise BrokerUnavailable("no broker is registered at the name servers")
        for broker, addresses in brokers.items():
            if addresses.master is None:
                raise BrokerUnavailable(f"{broker} has no master: topics must be on every one")
            for group in READER_GROUPS:  # brokers with autoCreateSubscriptionGroup=false refuse to be read
                admin.create_group(addresses.master, group)
            for topic, queues in wanted:
                admin.create_topic(addresses.master, topic, queues=queues)
                created.append(CreatedTopic(topic=topic, broker=broker, queues=queues))
            if business_queues is not None:
                missing = _create_business(connections, addresses.master, queues=business_queues)
                created += [CreatedTopic(topic=topic, broker=broker, queues=business_queues) for topic in missing]
    return created


def _create_business(connections: Connections, address: str, *, queues: int) -> list[str]:
    """Topics and groups of the settings that the master lacks; returns the topics."""
    admin, settings = connections.admin, connections.settings
    topics = dict.fromkeys(
        [s.topic for s in settings.subscriptions] + [t for p in settings.producers for t in p.topics]
    )
    known = admin.topics(address)
    missing = [topic for topic in topics if topic not in known]
    for topic in missing:
        admin.create_topic(address, topic, queues=queues)
    groups = set(admin.groups(address))
    for group in dict.fromkeys(s.group for s in settings.subscriptions):
        if group not in groups:
            admin.create_group(address, group)
    return missing
