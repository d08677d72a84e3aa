"""Reads the file of commit queries, and makes the adapters that ask the databases."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.clock import Clock
from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.kept_facts import ACT_QUERY_ACCEPTED, QUERY_NOT_ACCEPTED
from reconciler.contract.row_rules import QUERY_ACCEPTANCE, QUERY_WITHDRAWAL
from reconciler.contract.secret import Secret
from reconciler.contract.subscription import Subscription
from reconciler.contract.urls import shown_url
from reconciler.errors import InvalidValue, MissingDependency
from reconciler.halves.business_key import judge_halves, tried_halves
from reconciler.halves.classify import Identity
from reconciler.halves.ended_sample import EndedHalves
from reconciler.halves.values import Half, HalfCopy
from reconciler.policy.commit_query import (
    KEYS_MAX,
    BusinessAnswer,
    CommitQuery,
    digest_of_key,
    is_committed,
    without_row,
)
from reconciler.policy.commit_query_dry_run import (
    QueryFinding,
    shared_keys,
    trust,
    try_on_committed,
    try_on_rolled_back,
)
from reconciler.policy.evidence import InboxRow, Lookup, StoredMessage
from reconciler.rocketmq.wire.codes import HALF_TOPICS
from reconciler.telling.ports.actions import OperatorAction
from reconciler.telling.ports.paging import LedgerFilter, all_rows
from reconciler.wiring.effect_queries import ConfiguredEffectQuery, OpenEffectQueries, effect_queries_of_topics
from reconciler.wiring.open_query import OpenQuery, text_of
from reconciler.wiring.query_files import QuerySection, read_sections
from reconciler.wiring.query_trials import refusing, tried_query

if TYPE_CHECKING:
    from reconciler.settings.schema import Settings
    from reconciler.wiring.connections import Connections  # a scan needs no connections

OF_TOPIC = Code("query.of-topic", topic=Field.NAME, told=Field.FACT)

#: Name of the list in the file.
_LIST = "commit_queries"
_OWN_NAMES = ("committed", "rolled_back", "longest_transaction_seconds")
_LONGEST_TRANSACTION_SECONDS = 600.0

Others = Callable[[Sequence[HalfCopy]], Mapping[Identity, bool | None]]


@dataclass(frozen=True, slots=True)
class ConfiguredQuery:
    """A commit query, the URL of its database, and the effect queries of its topic."""

    query: CommitQuery
    url: Secret = field(repr=False)
    effects: tuple[ConfiguredEffectQuery, ...] = ()

    @property
    def digest(self) -> str:
        """Digest of the queries of the topic and of their databases' URLs without login and password.

        An acceptance holds only for queries with the same digest. The order of the subscriptions has no meaning.
        """
        of_effects = "".join(sorted(one.digest for one in self.effects))
        return hashlib.sha256(f"{self.query.meaning}{shown_url(self.url)}{of_effects}".encode()).hexdigest()


def accepted_query(connections: Connections, one: ConfiguredQuery) -> OperatorAction | None:
    """Returns the act by which a person accepted this query. None: the query is not accepted.

    Of a topic's queries, only the one that was accepted last counts as accepted. Raises DatabaseAway.
    """
    standing = standing_acceptance(connections, one.query.topic)
    return standing if standing is not None and accepted_digest(standing) == one.digest else None


def why_not_accepted(connections: Connections, topic: str) -> Fact | None:
    """Returns why this process sends nothing by the topic's query. None: a person has accepted the query.

    Raises DatabaseAway.
    """
    one = connections.shared(_configured).get(topic)
    return None if one is not None and accepted_query(connections, one) is not None else _not_accepted(topic)


def _configured(connections: Connections) -> Mapping[str, ConfiguredQuery]:
    return configured_queries(connections.settings)


def _not_accepted(topic: str) -> Fact:
    return QUERY_NOT_ACCEPTED(topic=topic)


def standing_acceptance(connections: Connections, topic: str) -> OperatorAction | None:
    """Returns the newest acceptance of a query of the topic, unless a later act withdrew it. Raises DatabaseAway."""
    accepted, withdrawn = (_newest_act(connections, of, topic) for of in (QUERY_ACCEPTANCE, QUERY_WITHDRAWAL))
    # If both acts have the same time, nobody knows which act came first, so no query counts as accepted.
    is_over = accepted is None or (withdrawn is not None and withdrawn.started_at_ms >= accepted.started_at_ms)
    return None if is_over else accepted


def accepted_digest(act: OperatorAction) -> str:
    """Returns the digest of the query that an act accepted. Empty: the act cannot be read."""
    return str(act.fact.fields["digest"]) if act.fact is not None and act.fact.code is ACT_QUERY_ACCEPTED else ""


def _newest_act(connections: Connections, command: str, topic: str) -> OperatorAction | None:
    only = LedgerFilter(command=command, topic=topic)
    listing = partial(connections.ledger.reports.actions, connections.settings.environment, only=only)
    return next(all_rows(listing, limit=1), None)


#: The option that names a file of queries. The settings name a file, too.
_OPTION = "--commit-query"


def read_commit_queries(path: Path) -> tuple[ConfiguredQuery, ...]:
    """Returns the commit queries of a file. A topic has at most one query. Raises InvalidValue."""
    sections = read_sections(path, _LIST, setting=_OPTION)
    found = tuple(_query(place, one) for place, one in sections)
    topics = [one.query.topic for one in found]
    if len(set(topics)) < len(topics):
        raise InvalidValue(_LIST, ", ".join(topics), "each topic has one query at most")
    return found


@cache
def _of_file(path: Path) -> Mapping[str, ConfiguredQuery]:
    """Reads a file once for this process, so that after an edit its rounds and its pages still use the same queries."""
    return {one.query.topic: one for one in read_commit_queries(path)}


def configured_queries(settings: Settings) -> dict[str, ConfiguredQuery]:
    """Returns topic -> the commit query that replaces the outbox of the topic's producers.

    A later change of the file has no effect on this process. Raises InvalidValue.
    """
    found: dict[str, ConfiguredQuery] = {}
    for number, producer in enumerate(settings.producers):
        if producer.commit_queries is None:
            continue
        try:
            of_file = _of_file(Path(producer.commit_queries))
        except InvalidValue as error:
            if error.field != _OPTION:
                raise
            raise InvalidValue(f"producers[{number}].commit_queries", error.value, error.remedy) from None
        for topic in producer.topics:
            if topic not in of_file:
                raise InvalidValue(f"producers[{number}].commit_queries", topic, "the file has no query of this topic")
            found[topic] = of_file[topic]
    effects = effect_queries_of_topics(settings) if found else {}
    return {topic: replace(one, effects=effects.get(topic, ())) for topic, one in found.items()}


def with_effects(settings: Settings, one: ConfiguredQuery) -> ConfiguredQuery:
    """Returns the query with the effect queries that the settings name for its topic. Raises InvalidValue."""
    return replace(one, effects=effect_queries_of_topics(settings).get(one.query.topic, ()))


def _query(place: str, values: Any) -> ConfiguredQuery:
    section = QuerySection(place, values, own_names=_OWN_NAMES)
    key, key_type = section.key()
    committed, rolled_back = section.states("committed", "rolled_back")
    seconds = section.values.get("longest_transaction_seconds", _LONGEST_TRANSACTION_SECONDS)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < float("inf"):
        raise InvalidValue(f"{place}.longest_transaction_seconds", seconds, "expected a number of seconds")
    sql, url = section.sql_and_url()
    query = CommitQuery(
        topic=section.text("topic"),
        sql=sql,
        key=key,
        key_type=key_type,
        committed=committed,
        rolled_back=rolled_back,
        longest_transaction_seconds=float(seconds),
    )
    return ConfiguredQuery(query, url)


def require_drivers(configured: Collection[ConfiguredQuery]) -> None:
    """Raises MissingDependency for a driver that is not installed."""
    from reconciler.sql.engines import missing_driver  # loads SQLAlchemy

    for one in configured:
        if (install := missing_driver(one.url)) is not None:
            raise MissingDependency(install)


class Business:
    """The databases of the business that a scan asks. Used by one thread only."""

    def __init__(self, configured: Collection[ConfiguredQuery], *, clock: Clock) -> None:
        """Raises MissingDependency for a driver that is not installed."""
        require_drivers(configured)
        self._configured = configured
        self._clock = clock
        #: Topic -> the place of the business key in the topic's halves.
        self.keys: Mapping[str, str] = {one.query.topic: one.query.key for one in configured}
        #: Topic -> why its query was not asked in the last call of ask().
        self.problems: dict[str, Sequence[Fact]] = {}
        #: Topic -> further remarks about its query in the last call of ask().
        self.notes: dict[str, Sequence[Fact]] = {}

    def ask(self, halves: Sequence[Half], *, others: Others) -> dict[Identity, BusinessAnswer]:
        """Returns the business's answer about each stuck half. Raises nothing.

        A query is not asked if its database or its plan has a problem.
        """
        answers: dict[Identity, BusinessAnswer] = {}
        self.problems, self.notes = {}, {}
        for one in self._configured:
            found = [half for half in halves if half.copy.topic == one.query.topic]
            if found:
                answers |= self._ask_one(one, found, others)
        return answers

    def _ask_one(self, one: ConfiguredQuery, halves: Sequence[Half], others: Others) -> dict[Identity, BusinessAnswer]:
        from reconciler.evidence.business_query import SqlBusinessQuery  # loads SQLAlchemy

        query = one.query
        keys = [value for half in halves if (value := query.key_type.value_of(half.copy.business_key)) is not None]
        with closing(SqlBusinessQuery(query, one.url, clock=self._clock)) as adapter:
            inspection = adapter.inspect(keys[:KEYS_MAX])
            self.problems[query.topic], self.notes[query.topic] = inspection.problems, inspection.notes
            ask = refusing(inspection.problems[0]) if inspection.problems else adapter.ask
            return judge_halves(query, halves, ask=ask, others=others, now_ms=self._clock.now_ms())


class OpenQueries:
    """The port BusinessQueries in SQL. Shared by threads. One thread at a time asks a query."""

    def __init__(
        self,
        configured: Mapping[str, ConfiguredQuery],
        *,
        clock: Clock,
        why_not: Callable[[str], Fact | None] = _not_accepted,
        effects: Collection[ConfiguredEffectQuery] = (),
    ) -> None:
        """`configured`: topic -> query. `why_not`: returns why the queries of a topic are not accepted.

        Connects only when a query is asked. Raises InvalidValue for a malformed URL, and MissingDependency for a
        missing driver.
        """
        from reconciler.evidence.business_query import SqlBusinessQuery  # loads SQLAlchemy

        self.why_not_accepted = why_not
        self._clock = clock
        self._opened = {
            topic: OpenQuery(one.query, SqlBusinessQuery(one.query, one.url, clock=clock))
            for topic, one in configured.items()
        }
        self._effects = OpenEffectQueries(effects, clock=clock)

    def look_up(self, topic: str, copies: Mapping[str, StoredMessage]) -> Mapping[str, BusinessAnswer]:
        """Returns unique key -> the answer for the query key of its copy."""
        opened = self._opened[topic]
        found = opened.ask(copies)
        now_ms = self._clock.now_ms()
        return {
            key: found[key] or without_row(opened.query, stored_ms=_stored_ms(copy), now_ms=now_ms)
            for key, copy in copies.items()
        }

    def effects(
        self, subscription: Subscription, copies: Mapping[str, StoredMessage]
    ) -> Mapping[str, Lookup[InboxRow]]:
        """Returns unique key -> whether the subscription's effect query finds the effect."""
        return self._effects.look_up(subscription, copies)

    def key_digests(self, topic: str, copies: Mapping[str, StoredMessage]) -> Mapping[str, bytes]:
        """Returns unique key -> digest of the query key, in the type that the database compares."""
        values = self._opened[topic].values(copies)
        return {unique_key: digest_of_key(value) for unique_key, value in values.items() if value is not None}

    def key_words(self, topic: str, copies: Mapping[str, StoredMessage]) -> Mapping[str, str]:
        """Returns unique key -> query key as a word of the property KEYS. Keys with a blank are left out."""
        texts = {unique_key: text_of(self._opened[topic].query, copy) for unique_key, copy in copies.items()}
        return {unique_key: text for unique_key, text in texts.items() if text.split() == [text]}

    def close(self) -> None:
        """Closes all connections."""
        for opened in self._opened.values():
            opened.adapter.close()
        self._effects.close()


def _stored_ms(copy: StoredMessage) -> int:
    """Returns the time at which the half first came.

    The stored copy of a half that was put back or parked is later than its transaction, so its time of birth counts.
    """
    is_first = copy.check_times is None and copy.topic in HALF_TOPICS
    return copy.store_timestamp_ms if is_first else copy.born_timestamp_ms


def dry_run(one: ConfiguredQuery, ended: EndedHalves, *, clock: Clock) -> tuple[QueryFinding, ...]:
    """Tries a query on halves whose end is known. Returns the findings; the first finding is the conclusion.

    Raises MissingDependency for a driver that is not installed.
    """
    query = one.query
    halves = (*ended.committed, *ended.rolled_back)
    keys = [query.key_type.value_of(half.business_key) for half in halves]
    found, answers = tried_query(one, keys, proves=is_committed, clock=clock)
    committed, rolled_back = (tried_halves(query, some, answers) for some in (ended.committed, ended.rolled_back))
    found += [shared_keys([*committed, *rolled_back]), try_on_committed(committed), try_on_rolled_back(rolled_back)]
    return (trust(found), *found)
