"""What the sweeper does with an outbox row: settle it, announce it again, look at it again after a change of tags.

Pure: rows and the inboxes' answers in, decisions out. The loop that reads and writes is the producers' plug-in's
(producers/checkback_producers/sweeper.py and filter_review.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reconciler.contract.defaults import (
    ANNOUNCE_AGAIN_AFTER_SECONDS,
    OUTBOX_KEEP_DAYS,
    RETENTION_SECONDS,
    SETTLE_AFTER_SECONDS,
    SWEEP_AFTER_SECONDS,
)
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import FORMER_NAMES_TOPIC, OutboxState
from reconciler.policy.evidence import InboxRow, Lookup, Presence
from reconciler.policy.inquiry.delivery import double_effect


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRules:
    """When rows are touched. All ages are database time."""

    #: NEW rows older than this are announced: the producer had its time.
    sweep_after_seconds: float = SWEEP_AFTER_SECONDS
    #: ANNOUNCED rows are looked up in the inboxes when their announcement is older than this.
    settle_after_seconds: float = SETTLE_AFTER_SECONDS
    #: Rows still unsettled after this are announced again.
    announce_again_after_seconds: float = ANNOUNCE_AGAIN_AFTER_SECONDS
    #: SETTLED and ROLLED_BACK rows older than this are deleted. A tombstone must outlive every half that a broker could
    #: still ask about: at least the brokers' retention and eight days.
    keep_seconds: float = OUTBOX_KEEP_DAYS * 86_400.0
    #: fileReservedTime of the brokers: older rows are not judged again after a change of tags.
    retention_seconds: float = RETENTION_SECONDS
    #: Rows deleted in one transaction.
    delete_rows: int = 500
    #: Bounds the deleting in one sweep of one source.
    delete_transactions_maximum: int = 20
    page_rows: int = 1_000
    #: Bounds one sweep of one source; the next sweep goes on where this one stopped.
    pages_maximum: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxFact:
    """A visible outbox row without its content."""

    unique_key: str
    topic: str
    tag: str | None
    state: OutboxState
    #: Database time of `record`.
    created_at_ms: int
    #: Database time of the last announcement; None: there was none.
    announced_at_ms: int | None
    #: Read in pages of announced rows only, which are compared with inboxes; None: no digest, or not read.
    content_digest: bytes | None = None
    #: Why a row of a page cannot be read; None: it can. Of such a row only the place in the page counts: its values may
    #: be of any type.
    damage: str | None = None

    @property
    def is_committed(self) -> bool:
        """Visible and no tombstone."""
        return self.state is not OutboxState.ROLLED_BACK


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledTags:
    """By which tags rows were settled: those with another tag were not waited for."""

    #: None: all rows were waited for, also those without a tag.
    tags: frozenset[str] | None
    #: Version of the stored value that was read; a write must find the same one.
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptSubscription:
    """A group whose inbox must have the key before a row is settled."""

    subscription: Subscription
    #: Tags that the group takes; None: all.
    tags: frozenset[str] | None = None

    def wants(self, tag: str | None) -> bool:
        """False: the group's tag filter excludes the message, so it is not waited for."""
        return is_in(tag, self.tags)


#: What the inboxes of the subscriptions that have one answered, by unique key.
InboxAnswers = Mapping[Subscription, Mapping[str, Lookup[InboxRow]]]


@dataclass(slots=True)
class Settlement:
    """A page of ANNOUNCED rows, sorted by what the inboxes have."""

    #: Every wanting group has the row's message once: SETTLED.
    settled: list[OutboxFact] = field(default_factory=list)
    #: A wanting group has not had it.
    absent: list[OutboxFact] = field(default_factory=list)
    #: An inbox did not answer.
    unknown: list[OutboxFact] = field(default_factory=list)
    #: No inbox is configured for a wanting group, or no group for the topic.
    unprovable: list[OutboxFact] = field(default_factory=list)
    #: With the group whose inbox has another content under the key.
    differing: list[tuple[OutboxFact, str]] = field(default_factory=list)
    #: With the times at which it took effect, in several inboxes of one group.
    doubled: list[tuple[OutboxFact, tuple[int, ...]]] = field(default_factory=list)

    def add(self, fact: OutboxFact, subscribed: Sequence[SweptSubscription], answers: InboxAnswers) -> None:
        """Sorts one row; `subscribed` are its topic's groups."""
        wanting = [swept.subscription for swept in subscribed if swept.wants(fact.tag)]
        if not subscribed or any(subscription not in answers for subscription in wanting):
            self.unprovable.append(fact)
            return
        lookups = [answers[subscription].get(fact.unique_key) for subscription in wanting]
        known = [lookup for lookup in lookups if lookup is not None]
        doubled = next((lookup for lookup in known if double_effect(lookup) is not None), None)
        if doubled is not None:
            self.doubled.append((fact, tuple(row.applied_at_ms for row in doubled.records)))
        elif (other := _of_another_message(wanting, lookups, fact)) is not None:
            self.differing.append((fact, other))
        # An inbox that is away might have the key a second time, and a SETTLED row is looked at no more.
        elif len(known) == len(wanting) and all(lookup.is_found and lookup.is_complete for lookup in known):
            self.settled.append(fact)
        elif any(lookup.is_absent for lookup in known):
            self.absent.append(fact)
        else:
            self.unknown.append(fact)

    def due_again(self, rules: SweepRules, now_ms: int) -> list[OutboxFact]:
        """Rows whose keys are announced again now."""
        again_ms = int(rules.announce_again_after_seconds * 1000)
        settle_ms = int(rules.settle_after_seconds * 1000)
        shown = [fact for fact, _ in (*self.doubled, *self.differing)]
        # A match in Redis has hidden these from the reconciler: announced again at the first look, the key is judged.
        at_once = [fact for fact in shown if _was_announced_once(fact, settle_ms)]
        later = [
            *self.absent,
            *self.unknown,
            *(fact for fact in shown if not _was_announced_once(fact, settle_ms)),
            *(fact for fact in self.unprovable if _was_announced_once(fact, again_ms)),
        ]
        # An announcement of the future was written before the clock was set back: another one heals its time.
        return at_once + [
            fact
            for fact in later
            if fact.announced_at_ms is not None and not now_ms - again_ms < fact.announced_at_ms <= now_ms
        ]


@dataclass(frozen=True, slots=True)
class Widening:
    """A subscription that takes more tags now than when its rows were settled."""

    swept: SweptSubscription
    settled_by: SettledTags

    def concerns(self, fact: OutboxFact) -> bool:
        """True if the row may have been settled without the group, which takes it now."""
        is_of_topic = fact.topic == self.swept.subscription.topic
        return is_of_topic and self.swept.wants(fact.tag) and not is_in(fact.tag, self.settled_by.tags)

    def missing(self, facts: Sequence[OutboxFact], effects: Mapping[str, Lookup[InboxRow]]) -> set[str] | None:
        """Keys that the group should have had once and has not; None: its inbox does not answer for one of them."""
        if any(map(_is_away, effects.values())):
            return None
        return {fact.unique_key for fact in facts if not _is_settled(effects[fact.unique_key], fact)}


def agreed_tags(settled_by: SettledTags | None, swept: SweptSubscription) -> frozenset[str] | None:
    """Tags by which rows may be settled from now on: those that both take. None: all.

    Without an earlier value the group's own: it was never swept for, so it reads all announcements from the earliest.
    """
    if settled_by is None or settled_by.tags is None:
        return swept.tags
    return settled_by.tags if swept.tags is None else settled_by.tags & swept.tags


def is_in(tag: str | None, tags: frozenset[str] | None) -> bool:
    """True if a filter lets the tag through; None: every one."""
    return tags is None or tag in tags


def _is_of_another_message(effect: Lookup[InboxRow], fact: OutboxFact) -> bool:
    """True if the inbox has another content or topic under the key; a missing digest proves nothing."""
    if any(row.topic not in (fact.topic, FORMER_NAMES_TOPIC) for row in effect.records):
        return True
    digests = {row.content_digest for row in effect.records} - {None}
    return fact.content_digest is not None and bool(digests - {fact.content_digest})


def _of_another_message(
    wanting: Sequence[Subscription], effects: Sequence[Lookup[InboxRow] | None], fact: OutboxFact
) -> str | None:
    """The first group whose inbox has another content; None: none is known to."""
    for subscription, effect in zip(wanting, effects, strict=True):
        if effect is not None and _is_of_another_message(effect, fact):
            return str(subscription)
    return None


def _was_announced_once(fact: OutboxFact, again_ms: int) -> bool:
    # An unprovable row is never settled: it is announced a second time (the first may have been lost), no more.
    return fact.announced_at_ms is not None and fact.announced_at_ms - fact.created_at_ms < again_ms


def _is_away(effect: Lookup[InboxRow]) -> bool:
    """A database that does not answer might have the key, or have it a second time; a damaged or incomplete row is an
    answer."""
    return any(
        answer.presence is Presence.UNKNOWN and not answer.is_damaged and not answer.is_incomplete
        for answer in effect.answers
    )


def _is_settled(effect: Lookup[InboxRow], fact: OutboxFact) -> bool:
    is_one = effect.is_found and effect.is_complete and double_effect(effect) is None
    return is_one and not _is_of_another_message(effect, fact)
