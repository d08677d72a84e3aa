"""Reads the files of effect queries, and makes the adapters that ask the databases."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.clock import Clock
from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.secret import Secret
from reconciler.contract.subscription import Subscription
from reconciler.contract.urls import shown_url
from reconciler.errors import InvalidValue
from reconciler.halves.business_key import without_key
from reconciler.policy.commit_query import KEYS_MAX, KeyValue, unknown
from reconciler.policy.commit_query_dry_run import QueryFinding, TriedHalf, trust, try_on_delivered
from reconciler.policy.effect_query import EffectQuery, effect_of, is_applied
from reconciler.policy.evidence import InboxRow, Lookup, StoredMessage
from reconciler.wiring.open_query import OpenQuery, text_of
from reconciler.wiring.query_files import QuerySection, read_sections
from reconciler.wiring.query_trials import tried_query

if TYPE_CHECKING:
    from reconciler.settings.schema import Settings, SubscriptionSettings

EFFECTS_UNFIT = Code("query.effects-unfit", why=Field.FACT)

#: The setting that names a file, in its [[subscriptions]].
_SETTING = "effect_query"
#: Name of the list in the file.
_LIST = "effect_queries"
_OWN_NAMES = ("group", "applied", "not_applied")
#: After this time, what could hide a row from the query is looked for again.
INSPECTED_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class ConfiguredEffectQuery:
    """An effect query, and the URL of its database."""

    query: EffectQuery
    url: Secret = field(repr=False)

    @property
    def digest(self) -> str:
        """Digest of the query, its group, and the URL of its database without login and password."""
        meaning = f"{self.query.meaning}{self.query.group}{shown_url(self.url)}"
        return hashlib.sha256(meaning.encode()).hexdigest()


def read_effect_queries(path: Path) -> tuple[ConfiguredEffectQuery, ...]:
    """Returns the effect queries of a file. A subscription has at most one query. Raises InvalidValue."""
    found = tuple(_query(place, one) for place, one in read_sections(path, _LIST, setting=_SETTING))
    names = [f"{one.query.topic}/{one.query.group}" for one in found]
    if len(set(names)) < len(names):
        raise InvalidValue(_LIST, ", ".join(names), "each topic and group has one query at most")
    return found


@cache
def _of_file(path: Path) -> Mapping[tuple[str, str], ConfiguredEffectQuery]:
    """Reads a file once for this process. An edited file must not mean one thing to running rounds and another to
    `status`."""
    return {(one.query.topic, one.query.group): one for one in read_effect_queries(path)}


def configured_effect_queries(settings: Settings) -> tuple[ConfiguredEffectQuery, ...]:
    """Returns the effect queries that replace inboxes, in the order of the subscriptions.

    A later change of a file has no effect on this process. Raises InvalidValue.
    """
    found = (_of_subscription(number, one) for number, one in enumerate(settings.subscriptions))
    return tuple(one for one in found if one is not None)


def effect_queries_of_topics(settings: Settings) -> Mapping[str, tuple[ConfiguredEffectQuery, ...]]:
    """Returns topic -> its effect queries, for topics that have any. Raises InvalidValue."""
    found: dict[str, tuple[ConfiguredEffectQuery, ...]] = {}
    for one in configured_effect_queries(settings):
        found[one.query.topic] = (*found.get(one.query.topic, ()), one)
    return found


def _of_subscription(number: int, configured: SubscriptionSettings) -> ConfiguredEffectQuery | None:
    if configured.effect_query is None:
        return None
    place, name = (configured.topic, configured.group), f"subscriptions[{number}].{_SETTING}"
    try:
        of_file = _of_file(Path(configured.effect_query))
    except InvalidValue as error:
        if error.field != _SETTING:
            raise
        raise InvalidValue(name, error.value, error.remedy) from None
    if place not in of_file:
        raise InvalidValue(name, "/".join(place), "the file has no query of this topic and group")
    return of_file[place]


def _query(place: str, values: Any) -> ConfiguredEffectQuery:
    section = QuerySection(place, values, own_names=_OWN_NAMES)
    key, key_type = section.key()
    applied, not_applied = section.states("applied", "not_applied")
    sql, url = section.sql_and_url()
    query = EffectQuery(
        topic=section.text("topic"),
        group=section.text("group"),
        sql=sql,
        key=key,
        key_type=key_type,
        applied=applied,
        not_applied=not_applied,
    )
    return ConfiguredEffectQuery(query, url)


def dry_run_of_effects(
    one: ConfiguredEffectQuery, delivered: Mapping[str, StoredMessage], *, clock: Clock
) -> tuple[QueryFinding, ...]:
    """Returns the findings of a try on messages that the group has passed: unique key -> a committed copy. The first
    finding is the conclusion of all.

    Raises MissingDependency for a driver that is not installed.
    """
    query = one.query
    texts = {key: text_of(query, copy) for key, copy in delivered.items()}
    values = {key: query.key_type.value_of(text) for key, text in texts.items()}
    found, answers = tried_query(one, values.values(), proves=is_applied, clock=clock)
    tried = [
        TriedHalf(
            unique_key=key,
            key=texts[key],
            tags=delivered[key].tag or "",
            answer=without_key(query) if value is None else answers[value],
        )
        for key, value in values.items()
    ]
    found.append(try_on_delivered(tried))
    return (trust(found), *found)


class OpenEffectQueries:
    """Effect queries with their databases. Shared by threads. One thread at a time asks a query."""

    def __init__(self, configured: Collection[ConfiguredEffectQuery], *, clock: Clock) -> None:
        """Connects only when a query is asked. Raises InvalidValue for a malformed URL, and MissingDependency for a
        missing driver."""
        from reconciler.evidence.business_query import SqlBusinessQuery  # loads SQLAlchemy

        self._clock = clock
        self._opened = {
            (one.query.topic, one.query.group): OpenQuery(one.query, SqlBusinessQuery(one.query, one.url, clock=clock))
            for one in configured
        }
        #: Until when a query counts as inspected, in monotonic seconds.
        self._inspected_until: dict[tuple[str, str], float] = {}

    def look_up(
        self, subscription: Subscription, copies: Mapping[str, StoredMessage]
    ) -> Mapping[str, Lookup[InboxRow]]:
        """Returns unique key -> whether the query finds the effect. A missing row may lead to a send, so no answer
        counts while rows could be hidden from the query."""
        place = (subscription.topic, subscription.group)
        opened = self._opened[place]
        if (unfit := self._unfit(place, opened, copies)) is not None:
            return dict.fromkeys(copies, effect_of(unknown(EFFECTS_UNFIT(why=unfit))))
        return {key: effect_of(answer) for key, answer in opened.ask(copies).items()}

    def _unfit(
        self, place: tuple[str, str], opened: OpenQuery[EffectQuery], copies: Mapping[str, StoredMessage]
    ) -> Fact | None:
        keys: list[KeyValue] = [key for key in opened.values(copies).values() if key is not None]
        with opened.lock:
            now = self._clock.monotonic_seconds()
            if not keys or now < self._inspected_until.get(place, now):
                return None
            problems = opened.adapter.inspect(keys[:KEYS_MAX]).problems
            if not problems:
                self._inspected_until[place] = now + INSPECTED_SECONDS
        return problems[0] if problems else None

    def close(self) -> None:
        """Closes all connections."""
        for opened in self._opened.values():
            opened.adapter.close()
