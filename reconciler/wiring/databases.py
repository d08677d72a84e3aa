"""The databases of the settings: the ledger, the outboxes of producer groups, and the inboxes of subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.secret import Secret, SecretText, secret_text
from reconciler.policy.commit_evidence import CommitEvidence, CommitSource, EffectEvidence, EffectSource
from reconciler.policy.commit_query import CommitQuery
from reconciler.settings.schema import ProducerSettings, Settings
from reconciler.sql import schema
from reconciler.sql.engines import missing_driver
from reconciler.sql.folded_names import folded_columns
from reconciler.sql.table_shapes import TableShapes, read_shapes
from reconciler.wiring.commit_queries import ConfiguredQuery, configured_queries
from reconciler.wiring.connections import Connections
from reconciler.wiring.effect_queries import configured_effect_queries
from reconciler.wiring.subscriptions import subscription_of

LEDGER = Code("wiring.ledger")
OUTBOX = Code("wiring.outbox", owners=Field.NAME)
INBOX = Code("wiring.inbox", owners=Field.NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceDatabase:
    """One outbox or inbox database of one group. A database that groups share is listed once for each group."""

    tree: Literal["outbox", "inbox"]
    #: The producer group, or the "topic/group" of a subscription.
    owner: str
    url: SecretText = field(repr=False)
    #: The setting that names the database.
    setting: str
    #: The part of the name that distinguishes several databases of one group.
    which: str

    @property
    def name(self) -> str:
        """The name for people."""
        return f"{self.tree} of {self.owner}{self.which}"

    @property
    def fact(self) -> Fact:
        """The database as a fact."""
        return database_fact(self.tree, f"{self.owner}{self.which}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredDatabase:
    """One database with the tables of one tree. Several owners may share these tables."""

    tree: str
    url: SecretText = field(repr=False)
    #: The first setting that names the database.
    setting: str
    #: The names of all owners, for people. Empty: the database belongs to all.
    owners: str

    @property
    def name(self) -> str:
        """The name for people, in English."""
        return f"{self.tree} of {self.owners}" if self.owners else self.tree

    @property
    def fact(self) -> Fact:
        """The database as a fact."""
        return database_fact(self.tree, self.owners)

    def upgrade(self) -> str:
        """Creates or upgrades the tables, and returns their revision."""
        return schema.upgrade(self.url, self.tree)

    def has_tables(self, connections: Connections) -> bool:
        """Returns True if all tables exist. Raises DatabaseAway."""
        return schema.has_tables(connections.engine(self.url, read_only=True), self.tree)

    def revision(self, connections: Connections) -> str | None:
        """Returns the revision of the tables. None: no migration made these tables. Raises DatabaseAway."""
        return schema.current(connections.engine(self.url, read_only=True), self.tree)

    def folded_names(self, connections: Connections) -> list[str]:
        """Returns the columns of names and keys that are not compared byte for byte. Raises DatabaseAway."""
        return folded_columns(connections.engine(self.url, read_only=True), self.tree)

    def shapes(self, connections: Connections) -> TableShapes:
        """Returns how the tables differ from their definitions. Raises DatabaseAway."""
        return read_shapes(connections.engine(self.url, read_only=True), self.tree)

    def newest_revision(self) -> str:
        """The newest revision that this release knows."""
        return schema.head(self.tree)

    def oldest_revision(self) -> str:
        """The oldest revision that this release upgrades."""
        return schema.base(self.tree)

    def missing_driver(self) -> str | None:
        """Returns the package that is missing to reach the database. None: nothing is missing."""
        return missing_driver(self.url)


def database_fact(tree: str, owners: str) -> Fact:
    """Returns a database as a fact. The database need not be in the settings."""
    match tree:
        case "outbox":
            return OUTBOX(owners=owners)
        case "inbox":
            return INBOX(owners=owners)
    return LEDGER()


def commit_evidence(settings: Settings) -> CommitEvidence:
    """Returns the proofs of the commits of each producer group: its outboxes, its commit queries, or none.

    Without outbox_url and commit queries, nothing but announcements shows a group's commits. Raises InvalidValue for a
    file of queries that cannot be read.
    """
    queries = configured_queries(settings)
    return CommitEvidence(
        tuple(
            CommitSource(
                producer_group=producer.group,
                topics=topics,
                url=url,
                query=query,
                setting=f"producers[{number}].outbox_url{_place(place, producer.outbox_urls)}",
                answers_checks=producer.answer_checks,
            )
            for number, producer in enumerate(settings.producers)
            for topics, query in _queried(producer, queries)
            for place, url in enumerate(producer.outbox_urls or (None,))
        )
    )


def _queried(
    producer: ProducerSettings, queries: Mapping[str, ConfiguredQuery]
) -> list[tuple[frozenset[str], CommitQuery | None]]:
    """Returns pairs of topics and their query. All topics without a query form one pair."""
    if producer.commit_queries is None:
        return [(frozenset(producer.topics), None)]
    return [(frozenset({topic}), queries[topic].query) for topic in producer.topics]


def effect_evidence(settings: Settings) -> EffectEvidence:
    """Returns what proves the effects of each subscription: its inboxes, its effect query, or nothing.

    Raises InvalidValue for a file of queries that cannot be read.
    """
    queries = {(one.query.topic, one.query.group): one.query for one in configured_effect_queries(settings)}
    return EffectEvidence(
        tuple(
            EffectSource(
                subscription=subscription_of(settings, configured),
                url=url,
                setting=f"subscriptions[{number}].inbox_url{_place(place, configured.inbox_urls)}",
                query=queries.get((configured.topic, configured.group)),
            )
            for number, configured in enumerate(settings.subscriptions)
            for place, url in enumerate(configured.inbox_urls or (None,))
        )
    )


def configured_databases(settings: Settings) -> list[ConfiguredDatabase]:
    """Returns every database once for each tree of its tables. The ledger comes first, then outboxes, then inboxes."""
    ledger_url = settings.ledger.url
    found = {("ledger", ledger_url): ConfiguredDatabase(tree="ledger", url=ledger_url, setting="ledger.url", owners="")}
    for database in (*outbox_databases(settings), *inbox_databases(settings)):
        place = (database.tree, database.url)
        owner = f"{database.owner}{database.which}"
        if place in found:
            found[place] = replace(found[place], owners=f"{found[place].owners}, {owner}")
        else:
            found[place] = ConfiguredDatabase(
                tree=database.tree, url=database.url, setting=database.setting, owners=owner
            )
    return list(found.values())


def named_database(url: Secret, tree: str) -> ConfiguredDatabase:
    """Returns a database that a person names on the command line, instead of those of the settings."""
    return ConfiguredDatabase(tree=tree, url=secret_text(url), setting="--url", owners="")


def outbox_databases(settings: Settings) -> list[EvidenceDatabase]:
    """Returns every outbox database of every producer group once, even if several sections of the group name it."""
    return _databases(
        "outbox",
        (
            (source.producer_group, secret_text(url), source.setting)
            for source, url in commit_evidence(settings).outboxes
        ),
    )


def outbox_databases_of_topics(settings: Settings) -> Mapping[str, Sequence[EvidenceDatabase]]:
    """Returns topic -> the outbox databases of the groups that send to it, for topics that have one."""
    topics: dict[tuple[str, Secret], set[str]] = {}
    for source, url in commit_evidence(settings).outboxes:
        topics.setdefault((source.producer_group, url), set()).update(source.topics)
    found: dict[str, list[EvidenceDatabase]] = {}
    for one in outbox_databases(settings):
        for topic in topics[one.owner, one.url]:
            found.setdefault(topic, []).append(one)
    return found


def inbox_databases(settings: Settings) -> list[EvidenceDatabase]:
    """Returns every inbox database of every subscription."""
    return _databases(
        "inbox",
        (
            (str(source.subscription), secret_text(url), source.setting)
            for source, url in effect_evidence(settings).inboxes
        ),
    )


def _place(place: int, urls: tuple[SecretText, ...]) -> str:
    return f"[{place}]" if len(urls) > 1 else ""


def _databases(
    tree: Literal["outbox", "inbox"], named: Iterable[tuple[str, SecretText, str]]
) -> list[EvidenceDatabase]:
    owners: dict[str, dict[SecretText, str]] = {}
    for owner, url, setting in named:
        owners.setdefault(owner, {}).setdefault(url, setting)
    return [found for owner, urls in owners.items() for found in _of_owner(tree, owner, urls)]


def _of_owner(tree: Literal["outbox", "inbox"], owner: str, urls: dict[SecretText, str]) -> Iterator[EvidenceDatabase]:
    for number, (url, setting) in enumerate(urls.items(), start=1):
        which = f" ({number} of {len(urls)})" if len(urls) > 1 else ""
        yield EvidenceDatabase(tree=tree, owner=owner, url=url, setting=setting, which=which)
