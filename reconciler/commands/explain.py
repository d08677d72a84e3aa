"""What `reconciler explain` shows: the life of one message, or the lives of all messages of a business id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from reconciler.commands.asking.availability import ask_brokers, ask_databases, facts_of_away
from reconciler.commands.asking.business_ids import (
    BusinessMessages,
    key_shaped,
    messages_of,
    other_case_note,
    require_name,
)
from reconciler.commands.asking.environment import never_run
from reconciler.contract.answers import NO_TOPIC
from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.stored_facts import coded
from reconciler.contract.subscription import Subscription
from reconciler.policy.evidence import InboxRow, Lookup, OutboxRow, StoredMessage
from reconciler.policy.inquiry.business import WITHOUT_COPY
from reconciler.policy.plan import SubscriptionPlan
from reconciler.policy.ports.evidence import WHENEVER_COMMITTED_MS, Horizon
from reconciler.policy.ports.rounds import KeyPlaces
from reconciler.telling.account import UNKNOWN_ENVIRONMENT
from reconciler.telling.life_story import LifeStory, life_story_of
from reconciler.wiring.connections import Connections
from reconciler.wiring.evidence import build_witnesses
from reconciler.wiring.history import rows_of_key
from reconciler.wiring.rounds import key_in_redis, topic_plans
from reconciler.words import said, said_and_coded

UNHEARD = Code("explain.unheard", unique_key=Field.NAME)
UNHEARD_BY_ANSWERING = Code("explain.unheard-by-answering", unique_key=Field.NAME)
UNHEARD_BUSINESS = Code("explain.unheard-business", business_id=Field.NAME)
UNHEARD_BUSINESS_BY_ANSWERING = Code("explain.unheard-business-by-answering", business_id=Field.NAME)
TAKEN_AS_KEY = Code("explain.taken-as-key", unique_keys=Field.NAMES)
TAKEN_AS_KEY_AND_OLDER = Code("explain.taken-as-key-and-older", unique_keys=Field.NAMES, older=Field.NUMBER)
TAKEN_AS_BUSINESS_ID = Code("explain.taken-as-business-id", unique_key=Field.NAME)
OF_OTHER_TOPIC = Code("explain.of-other-topic", unique_key=Field.NAME, topic=Field.NAME)
#: Maximum number of messages of one business id that are shown. Each message costs questions to every broker of its
#: topic.
STORIES_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What `reconciler explain` found under a name."""

    #: The stories of the messages, beginning with the newest message. A unique key has one story, known or not.
    stories: tuple[LifeStory, ...]
    #: Lines that say how the name was understood, and which of the messages are not shown.
    notes: tuple[Fact, ...] = ()
    #: None: the name was taken as a unique key.
    business: BusinessMessages | None = None

    @property
    def is_known(self) -> bool:
        """True if a witness or the ledger knows a message of this name."""
        return any(story.is_known for story in self.stories) or bool(self.business and self.business.messages)

    @property
    def silent(self) -> tuple[Fact, ...]:
        """One line for each witness that gave no answer."""
        of_business = (*self.business.damaged, *self.business.silent) if self.business is not None else ()
        return tuple(dict.fromkeys((*of_business, *self._of_all("silent"))))

    @property
    def away(self) -> tuple[Fact, ...]:
        """One line for each dependency that is away."""
        of_business = self.business.away if self.business is not None else ()
        return tuple(dict.fromkeys((*of_business, *self._of_all("away"))))

    @property
    def unheard(self) -> Fact:
        """The line for a name that is unknown to every witness, or to every witness that answered."""
        is_partial = bool(self.away or self.silent)
        if self.business is None:
            return (UNHEARD_BY_ANSWERING if is_partial else UNHEARD)(unique_key=self.stories[0].unique_key)
        code = UNHEARD_BUSINESS_BY_ANSWERING if is_partial else UNHEARD_BUSINESS
        return code(business_id=self.business.business_id)

    @property
    def exit_code(self) -> int:
        """The exit code.

        Exit code 3: a dependency is away, or no process ever ran with the environment of the settings.
        Exit code 0: the name is known.
        Exit code 2: the name is unknown.
        """
        if self.away or any(note.code is UNKNOWN_ENVIRONMENT for note in self.notes):
            return 3
        return 0 if self.is_known else 2

    def as_dict(self) -> dict[str, object]:
        """Returns plain data for JSON: one story, or `messages` with the stories of a business id."""
        if self.business is None:
            return _story(self.stories[0], notes=self.notes)
        return {
            "business_id": self.business.business_id,
            "known": self.is_known,
            "messages": [_story(story) for story in self.stories],
            "older": self.business.older,
        } | _lines(silent=self.silent, away=self.away, notes=self.notes)

    def _of_all(self, lines: Literal["silent", "away"]) -> Iterator[Fact]:
        for story in self.stories:
            yield from getattr(story, lines)


def _lines(**named: Sequence[Fact]) -> dict[str, object]:
    """Returns each list twice: as sentences, and below `facts` as codes with fields."""
    sentences, facts = said_and_coded(named)
    return {**sentences, "facts": facts}


def _story(story: LifeStory, **other: Sequence[Fact]) -> dict[str, object]:
    """Returns a story as plain data for JSON."""
    return {
        "unique_key": story.unique_key,
        "seen": story.seen,
        "known": story.is_known,
        "events": [
            {
                "at_ms": event.at_ms,
                "witness": event.witness,
                "what": said(event.what),
                "fact": event.what.as_dict(),
                "evidence": coded(event.evidence),
            }
            for event in story.events
        ],
        "incomplete": [effect.as_dict() for effect in story.incomplete],
        **_lines(silent=story.silent, away=story.away, outlook=story.outlook, **other),
    }


def life_stories(connections: Connections, name: str) -> Explanation:
    """Asks every witness about a unique key, or about each message of a business id.

    A name that is both counts as the unique key. Raises InvalidValue for a name that no message can have.
    """
    found = _life_stories(connections, name)
    wrong = never_run(connections)
    return found if wrong is None else replace(found, notes=(*found.notes, wrong))


def _life_stories(connections: Connections, name: str) -> Explanation:
    require_name(name)
    witnesses = _Witnesses(connections)
    key = key_shaped(name)
    story = None if key is None else witnesses.story(key)
    business = messages_of(connections, name, limit=STORIES_MAX)
    if story is not None and (story.is_known or not business.messages):
        note = None if story.is_known else other_case_note(connections, story.unique_key)
        return Explanation(stories=(story,), notes=(note,) if note else _also(business))
    configured = {plan.topic for plan in witnesses.plans}
    shown = [message for message in business.messages if message.topic in configured]
    notes = [TAKEN_AS_BUSINESS_ID(unique_key=key)] if key is not None else []
    notes += [
        OF_OTHER_TOPIC(unique_key=message.unique_key, topic=message.topic)
        for message in business.messages
        if message.topic not in configured
    ]
    notes += (*business.halves, *business.left_out)
    stories = tuple(witnesses.story(message.unique_key) for message in shown)
    return Explanation(stories=stories, notes=tuple(notes), business=business)


def _also(business: BusinessMessages) -> tuple[Fact, ...]:
    if not business.messages:
        return ()
    if business.older:
        return (TAKEN_AS_KEY_AND_OLDER(unique_keys=business.unique_keys, older=business.older),)
    return (TAKEN_AS_KEY(unique_keys=business.unique_keys),)


class _Witnesses:
    """The witnesses of one command. Each witness is asked once whether it answers."""

    def __init__(self, connections: Connections) -> None:
        self.plans = topic_plans(connections.settings)
        self._asked = build_witnesses(connections)
        self._connections = connections
        gone = facts_of_away(connections.settings, {**ask_databases(connections), **ask_brokers(connections)})
        self._away = tuple(dict.fromkeys(gone.values()))
        #: The result for a Redis that has not answered. The command does not wait for this Redis again.
        self._redis_away: Lookup[KeyPlaces] | None = None
        #: One probe for each topic. Every message was named before the probe, so one probe proves absences for all.
        self._horizon = cache(self._asked.brokers.horizon)

    def story(self, unique_key: str) -> LifeStory:
        """Returns the life of one message."""
        settings, asked = self._connections.settings, self._asked
        ledger = self._connections.ledger.reports.life(settings.environment, unique_key)
        topics = dict.fromkeys(c.subscription.topic for c in ledger.candidates)
        outbox: Lookup[OutboxRow] = Lookup.unknown("outbox", NO_TOPIC())
        for topic in [*topics, *(plan.topic for plan in self.plans if plan.topic not in topics)]:
            outbox = asked.outbox.look_up(topic, {unique_key: WHENEVER_COMMITTED_MS})[unique_key]
            if outbox.is_found:
                topics = {topic: None}
                break
        copies: dict[str, Lookup[StoredMessage]] = {}
        inboxes: dict[Subscription, Lookup[InboxRow]] = {}
        places: dict[Subscription, Lookup[KeyPlaces]] = {}
        for plan in self.plans:
            if topics and plan.topic not in topics:
                continue
            horizon = self._horizon(plan.topic)
            seen = self._copies(plan.topic, unique_key, outbox, horizon)
            copies |= seen
            for of in plan.subscriptions:
                subscription = of.subscription
                groups = asked.brokers.group_copies(subscription, unique_key, horizon=horizon)()
                copies |= {f"{subscription} {name}": lookup for name, lookup in groups.items()}
                inboxes[subscription] = self._effect(of, unique_key, seen)
                places[subscription] = self._places(subscription, unique_key)
        history, history_problems = rows_of_key(settings, unique_key)
        evidence = [plan.evidence for plan in self.plans if not topics or plan.topic in topics]
        return life_story_of(
            unique_key,
            outbox=outbox,
            copies=copies,
            inboxes=inboxes,
            places=places,
            ledger=ledger,
            holds=self._connections.ledger.reports.holds(settings.environment),
            history=history,
            history_problems=history_problems,
            away=self._away,
            has_outbox=any(one.has_outbox or not one.asks_business for one in evidence),
        )

    def _effect(
        self, of: SubscriptionPlan, unique_key: str, copies: Mapping[str, Lookup[StoredMessage]]
    ) -> Lookup[InboxRow]:
        """Asks the group's inbox, or its effect query by the query key in a copy."""
        if not of.asks_effects:
            return self._asked.inbox.look_up(of.subscription, [unique_key])[unique_key]
        copy = next((lookup.records[0] for lookup in copies.values() if lookup.is_found), None)
        if copy is None:
            return WITHOUT_COPY
        return self._asked.queries.effects(of.subscription, {unique_key: copy})[unique_key]

    def _places(self, subscription: Subscription, unique_key: str) -> Lookup[KeyPlaces]:
        if self._redis_away is not None:
            return self._redis_away
        found = key_in_redis(self._connections, subscription, unique_key)
        self._redis_away = found if found.is_unknown else None
        return found

    def _copies(
        self, topic: str, unique_key: str, outbox: Lookup[OutboxRow], horizon: Horizon
    ) -> Mapping[str, Lookup[StoredMessage]]:
        brokers = self._asked.brokers
        row = outbox.records[0] if outbox.is_found else None
        since = row.message.created_at_ms if row is not None else 0
        return {
            f"{topic} half": brokers.half_copies(topic, unique_key, horizon=horizon, not_before_ms=since, outbox=row)(),
            f"{topic} committed": brokers.committed_copies(topic, unique_key, horizon=horizon, not_before_ms=since)(),
            f"{topic} parked": brokers.parked_copies(topic, unique_key, horizon=horizon, not_before_ms=since)(),
        }
