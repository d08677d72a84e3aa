"""Decides the sweeper's act on an outbox row: settle it, announce it again, or look at it again after a change of tags.

The decisions are pure: rows and the inboxes' answers go in, and decisions come out. The loop that reads and writes is
in the producers' plug-in (producers/checkback_producers/sweeper.py and filter_review.py).
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
    """The ages at which rows are worked on. All ages are by database time."""

    #: NEW rows older than this are announced, because their producer had enough time to do so.
    sweep_after_seconds: float = SWEEP_AFTER_SECONDS
    #: ANNOUNCED rows are looked up in the inboxes once their announcement is older than this.
    settle_after_seconds: float = SETTLE_AFTER_SECONDS
    #: Rows that are still unsettled after this are announced again.
    announce_again_after_seconds: float = ANNOUNCE_AGAIN_AFTER_SECONDS
    #: SETTLED and ROLLED_BACK rows that are older than this are deleted. A tombstone must outlive every half about
    #: which a broker could still ask. So this time is at least the brokers' retention plus eight days.
    keep_seconds: float = OUTBOX_KEEP_DAYS * 86_400.0
    #: The brokers' fileReservedTime. Rows that are older are not judged again after a change of tags.
    retention_seconds: float = RETENTION_SECONDS
    #: Maximum number of rows that one transaction deletes.
    delete_rows: int = 500
    #: Maximum number of transactions that delete rows in one sweep of one source.
    delete_transactions_maximum: int = 20
    page_rows: int = 1_000
    #: Maximum number of pages in one sweep of one source. The next sweep continues after these pages.
    pages_maximum: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxFact:
    """A visible outbox row without its content."""

    unique_key: str
    topic: str
    tag: str | None
    state: OutboxState
    #: Database time of the call of `record`.
    created_at_ms: int
    #: Database time of the last announcement. None: the row was not announced.
    announced_at_ms: int | None
    #: The digest. It is read only in pages of announced rows, which are compared with inboxes. None: the row has no
    #: digest, or the digest was not read.
    content_digest: bytes | None = None
    #: Why a row of a page cannot be read. None: the row can be read. Of an unreadable row only the place in the page
    #: counts, because its values may have any type.
    damage: str | None = None

    @property
    def is_committed(self) -> bool:
        """True if the row is not a tombstone."""
        return self.state is not OutboxState.ROLLED_BACK


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledTags:
    """The tags by which rows were settled. Rows with another tag did not wait for the group."""

    #: None: all rows waited for the group, even rows without a tag.
    tags: frozenset[str] | None
    #: The version of the stored value that was read. A write is valid only for this version.
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptSubscription:
    """A group whose inbox must have the key before a row is settled."""

    subscription: Subscription
    #: The tags that the group takes. None: the group takes all tags.
    tags: frozenset[str] | None = None

    def wants(self, tag: str | None) -> bool:
        """Returns False if the group's tag filter excludes the message. Then the row does not wait for the group."""
        return is_in(tag, self.tags)


#: The answers of the configured inboxes, by subscription and unique key.
InboxAnswers = Mapping[Subscription, Mapping[str, Lookup[InboxRow]]]


@dataclass(slots=True)
class Settlement:
    """A page of ANNOUNCED rows, sorted by the inboxes' answers."""

    #: Rows whose message every interested group has once. These rows become SETTLED.
    settled: list[OutboxFact] = field(default_factory=list)
    #: Rows whose message a group takes but has not had.
    absent: list[OutboxFact] = field(default_factory=list)
    #: Rows for which an inbox did not answer.
    unknown: list[OutboxFact] = field(default_factory=list)
    #: Rows whose message a group without a configured inbox takes, or whose topic has no group.
    unprovable: list[OutboxFact] = field(default_factory=list)
    #: Rows whose key has another content in a group's inbox, each with that group.
    differing: list[tuple[OutboxFact, str]] = field(default_factory=list)
    #: Rows whose message took effect in several inboxes of one group, each with the times of these effects.
    doubled: list[tuple[OutboxFact, tuple[int, ...]]] = field(default_factory=list)

    def add(self, fact: OutboxFact, subscribed: Sequence[SweptSubscription], answers: InboxAnswers) -> None:
        """Sorts one row. `subscribed`: the groups of the row's topic."""
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
        # An inbox that is away might have the key a second time, and nobody looks at a SETTLED row again.
        elif len(known) == len(wanting) and all(lookup.is_found and lookup.is_complete for lookup in known):
            self.settled.append(fact)
        elif any(lookup.is_absent for lookup in known):
            self.absent.append(fact)
        else:
            self.unknown.append(fact)

    def due_again(self, rules: SweepRules, now_ms: int) -> list[OutboxFact]:
        """Returns the rows whose keys are announced again now."""
        again_ms = int(rules.announce_again_after_seconds * 1000)
        settle_ms = int(rules.settle_after_seconds * 1000)
        shown = [fact for fact, _ in (*self.doubled, *self.differing)]
        # A match in Redis has hidden these keys from the reconciler. Such keys are announced again at the first look,
        # and so they are judged.
        at_once = [fact for fact in shown if _was_announced_once(fact, settle_ms)]
        later = [
            *self.absent,
            *self.unknown,
            *(fact for fact in shown if not _was_announced_once(fact, settle_ms)),
            *(fact for fact in self.unprovable if _was_announced_once(fact, again_ms)),
        ]
        # An announcement time in the future was written before the clock was set back. Another announcement corrects
        # the time.
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
        """Returns True if the row may have been settled without the group, and the group takes the row now."""
        is_of_topic = fact.topic == self.swept.subscription.topic
        return is_of_topic and self.swept.wants(fact.tag) and not is_in(fact.tag, self.settled_by.tags)

    def missing(self, facts: Sequence[OutboxFact], effects: Mapping[str, Lookup[InboxRow]]) -> set[str] | None:
        """Returns the keys that the group should have had and has not. None: its inbox does not answer for one of the
        keys."""
        if any(map(_is_away, effects.values())):
            return None
        return {fact.unique_key for fact in facts if not _is_settled(effects[fact.unique_key], fact)}


def agreed_tags(settled_by: SettledTags | None, swept: SweptSubscription) -> frozenset[str] | None:
    """Returns the tags by which rows may be settled from now on: the tags in both values. None: all tags.

    Without an earlier value, returns the group's own tags. No sweep knew the group before, so the group reads all
    announcements from the earliest on.
    """
    if settled_by is None or settled_by.tags is None:
        return swept.tags
    return settled_by.tags if swept.tags is None else settled_by.tags & swept.tags


def is_in(tag: str | None, tags: frozenset[str] | None) -> bool:
    """Returns True if a filter accepts the tag. A filter that is None accepts every tag."""
    return tags is None or tag in tags


def _is_of_another_message(effect: Lookup[InboxRow], fact: OutboxFact) -> bool:
    """Returns True if the inbox has another content or topic under the key. A missing digest proves nothing."""
    if any(row.topic not in (fact.topic, FORMER_NAMES_TOPIC) for row in effect.records):
        return True
    digests = {row.content_digest for row in effect.records} - {None}
    return fact.content_digest is not None and bool(digests - {fact.content_digest})


def _of_another_message(
    wanting: Sequence[Subscription], effects: Sequence[Lookup[InboxRow] | None], fact: OutboxFact
) -> str | None:
    """Returns the first group whose inbox has another content. None: no such group is known."""
    for subscription, effect in zip(wanting, effects, strict=True):
        if effect is not None and _is_of_another_message(effect, fact):
            return str(subscription)
    return None


def _was_announced_once(fact: OutboxFact, again_ms: int) -> bool:
    # An unprovable row is never settled. Such a row is announced a second time, because the first announcement may have
    # been lost, but not a third time.
    return fact.announced_at_ms is not None and fact.announced_at_ms - fact.created_at_ms < again_ms


def _is_away(effect: Lookup[InboxRow]) -> bool:
    """Returns True for a database without an answer, because it might have the key, or have it a second time. A damaged
    or incomplete row counts as an answer."""
    return any(
        answer.presence is Presence.UNKNOWN and not answer.is_damaged and not answer.is_incomplete
        for answer in effect.answers
    )


def _is_settled(effect: Lookup[InboxRow], fact: OutboxFact) -> bool:
    is_one = effect.is_found and effect.is_complete and double_effect(effect) is None
    return is_one and not _is_of_another_message(effect, fact)
