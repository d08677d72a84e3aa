"""Wiring of the commands that prepare: logging, tables, topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reconciler.announcing.source import PULL_GROUP
from reconciler.errors import BrokerUnavailable, ConfigurationError
from reconciler.evidence.queue_scan import SCAN_GROUP
from reconciler.instrumentation.log import configure_logging
from reconciler.rocketmq.client.admin import Admin
from reconciler.settings.schema import Settings
from reconciler.sql import schema
from reconciler.sql.engines import missing_driver
from reconciler.wiring.connections import Connections
from reconciler.wiring.evidence_databases import inbox_databases, outbox_databases


def start_logging(settings: Settings, *, is_service: bool = True) -> None:
    """Logs of the whole process to standard error, as configured; a command that ends soon tells warnings only."""
    is_chatty = settings.logging.level == "info" and not is_service
    configure_logging("warning" if is_chatty else settings.logging.level, settings.logging.format)


def upgrade_database(url: str, tree: str) -> str:
    """Creates or upgrades the tables of a tree (outbox, inbox, ledger); returns the revision."""
    return schema.upgrade(url, tree)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradedDatabase:
    """A database whose tables are up to date now."""

    name: str
    revision: str


def upgrade_configured(settings: Settings, tree: str) -> list[UpgradedDatabase]:
    """The same for every database that the settings name for a tree, each once; an error leaves the later ones."""
    named = {url: name for url, (name, _) in _configured(settings, (tree,)).items()}
    if not named:
        raise ConfigurationError(f"the settings name no {tree}_url: name the database with --url or RECONCILER_DB_URL")
    return [UpgradedDatabase(name=name, revision=upgrade_database(url, tree)) for url, name in named.items()]


def missing_drivers(settings: Settings) -> list[str]:
    """One line for each setting whose database cannot be reached by what is installed, with what to install."""
    return [
        f"{setting}: {missing}"
        for url, (_, setting) in _configured(settings, schema.TREES).items()
        if (missing := missing_driver(url)) is not None
    ]


def _configured(settings: Settings, trees: Sequence[str]) -> dict[str, tuple[str, str]]:
    """URL of each database -> its name and the setting that names it first."""
    found: dict[str, tuple[str, str]] = {}
    if "ledger" in trees:
        found[settings.ledger.url.get_secret_value()] = ("ledger", "ledger.url")
    for database in (*outbox_databases(settings), *inbox_databases(settings)):
        if database.tree in trees:
            found.setdefault(database.url, (database.name, database.setting))
    return found


def database_ddl(tree: str, dialect: str) -> str:
    """The DDL of a tree as text."""
    return schema.ddl(tree, dialect)


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
        admin = Admin(connections.rocketmq.client)
        brokers = connections.rocketmq.routes.brokers()
        if not brokers:
            raise BrokerUnavailable("no broker is registered at the name servers")
        for broker, addresses in brokers.items():
            if addresses.master is None:
                raise BrokerUnavailable(f"{broker} has no master: topics must be on every one")
            for group in (PULL_GROUP, SCAN_GROUP):  # brokers with autoCreateSubscriptionGroup=false refuse to be read
                admin.create_group(addresses.master, group)
            for topic, queues in wanted:
                admin.create_topic(addresses.master, topic, queues=queues)
                created.append(CreatedTopic(topic=topic, broker=broker, queues=queues))
            if business_queues is not None:
                missing = _create_business(admin, addresses.master, settings, queues=business_queues)
                created += [CreatedTopic(topic=topic, broker=broker, queues=business_queues) for topic in missing]
    return created


def _create_business(admin: Admin, address: str, settings: Settings, *, queues: int) -> list[str]:
    """Topics and groups of the settings that the master lacks; returns the topics."""
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
