"""The sources of evidence. A producer group's outboxes, a commit query or the announcements alone prove commits. A
subscription's inboxes, or an effect query, prove effects.

`reconciler/wiring/databases.py` makes both from the settings. Only these values say whether an announcement is trusted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from reconciler.contract.facts import Fact
from reconciler.contract.properties import OUTBOX_MARK
from reconciler.contract.reasons import NAMED_LACKS_ROW, NAMED_NOT_ASKED, UNNAMED_LACKS_ROW
from reconciler.contract.secret import Secret
from reconciler.contract.subscription import Subscription
from reconciler.errors import InvariantViolation
from reconciler.policy.commit_query import CommitQuery
from reconciler.policy.effect_query import EffectQuery
from reconciler.policy.evidence import Commit, Lookup, OutboxRow, Presence, StoredMessage

#: Longer marks of halves are ignored. Marks of plug-ins have 32 characters, but any sender can write a mark.
IDENTITY_CHARACTERS_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSource:
    """One source of evidence for the commits of a producer group. A group may have several sources."""

    producer_group: str
    topics: frozenset[str]
    #: The database of the group's outbox. None: no outbox can be read, so a query or the announcement alone is the
    #: source.
    url: Secret | None = field(repr=False)
    #: The query of the business's own tables that takes the place of an outbox.
    query: CommitQuery | None = None
    #: The setting that names the database.
    setting: str = ""
    #: True if `sweep` answers the group's check-backs.
    answers_checks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedOutbox:
    """The outbox that a half names. No other outbox can have the half's row."""

    #: The half's mark, which is the text in that outbox's `reconciler_outbox_identity`. Empty: the half of a client
    #: without marks, so that any outbox of its producer group may have its row.
    identity: str
    producer_group: str
    #: The place of the half: broker@offset.
    half_at: str


@dataclass(frozen=True)  # without slots, because an index is kept beside the field
class CommitEvidence:
    """All sources of a topic, in the order of the settings."""

    sources: tuple[CommitSource, ...]
    #: The producer groups of all topics: a section that lacks this topic was perhaps forgotten.
    groups_of_all_topics: frozenset[str] = frozenset()

    def of_topic(self, topic: str) -> CommitEvidence:
        """Returns the sources of the groups that send to the topic."""
        return CommitEvidence(self._by_topic.get(topic, ()), self.producer_groups)

    @cached_property
    def _by_topic(self) -> Mapping[str, tuple[CommitSource, ...]]:
        found: dict[str, list[CommitSource]] = {}
        for source in self.sources:
            for topic in source.topics:
                found.setdefault(topic, []).append(source)
        return {topic: tuple(sources) for topic, sources in found.items()}

    @property
    def outboxes(self) -> Iterator[tuple[CommitSource, Secret]]:
        """Yields the sources that are an outbox, each with its URL."""
        return ((source, source.url) for source in self.sources if source.url is not None)

    @property
    def has_outbox(self) -> bool:
        """True if an outbox proves commits. Then every source must answer before a commit is called missing."""
        return any(self.outboxes)

    @property
    def trusts_announcements(self) -> bool:
        """True in the declared weaker mode, in which the announcement counts as evidence of the commit. False without
        any source, because then no evidence exists."""
        return bool(self.sources) and not self.has_outbox and not self.asks_business

    @property
    def asks_business(self) -> bool:
        """True if a commit query proves commits by rows of the business. Then an announcement proves nothing."""
        return any(source.query is not None for source in self.sources)

    @property
    def announced_only(self) -> tuple[str, ...]:
        """The producer groups of sources that are neither an outbox nor a query."""
        return tuple(source.producer_group for source in self.sources if source.url is None and source.query is None)

    @cached_property
    def producer_groups(self) -> frozenset[str]:
        """Groups to which a half may belong."""
        return frozenset(source.producer_group for source in self.sources)

    def commit_of_copy(self, copy: StoredMessage) -> Commit:
        """Returns the commit that an announced copy proves by itself. Raises InvariantViolation if announcements are
        not trusted."""
        if not self.trusts_announcements:
            raise InvariantViolation(f"no evidence proves the commit of {copy.unique_key}: nothing is sent")
        return Commit.of_copy(copy)

    def commit_by_row(self, copy: StoredMessage) -> Commit:
        """Returns the commit that a row of the business proves for the only message to which the row can belong. Raises
        InvariantViolation if no query proves commits."""
        if not self.asks_business:
            raise InvariantViolation(f"no query proves the commit of {copy.unique_key}: nothing is sent")
        return Commit.of_copy(copy)

    def missed_row(self, named: NamedOutbox, outbox: Lookup[OutboxRow] | None) -> Fact | None:
        """Returns why a key without a committed row cannot be called rolled back, although its half says where the row
        must be.

        There are three reasons. The outbox that the half names shows no row. Or the half is of a producer group that
        some section names, but the named outbox is not among the outboxes that were asked: its URL is wrong, or the
        topic is missing in its section. Or the half is of a group of this topic and names no outbox; the caller knows
        that it was not rolled back. None: the absence is believed.
        """
        answers = [one for one in outbox.answers if one.presence is Presence.ABSENT] if outbox is not None else []
        group, half_at = named.producer_group, named.half_at
        for one in answers if named.identity else ():
            if one.identity is not None and one.identity[:IDENTITY_CHARACTERS_MAX] == named.identity:
                return NAMED_LACKS_ROW(producer_group=group, half_at=half_at, witness=one.witness, why=one.fact)
        if outbox is None or not outbox.is_absent:
            return None
        if named.identity and group in self.producer_groups | self.groups_of_all_topics:
            return NAMED_NOT_ASKED(producer_group=group, half_at=half_at, identity=named.identity, why=outbox.reason)
        if not named.identity and group in self.producer_groups:
            return UNNAMED_LACKS_ROW(producer_group=group, half_at=half_at, why=outbox.reason)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectSource:
    """One source of evidence for the effects of a subscription. A subscription may have several sources."""

    subscription: Subscription
    #: The database of the subscription's inbox. None: effects are found by a query, or cannot be known.
    url: Secret | None = field(repr=False)
    #: The setting that names the database.
    setting: str
    #: The query of the consuming business's own tables that takes the place of an inbox.
    query: EffectQuery | None = None


@dataclass(frozen=True)  # without slots, because an index is kept beside the field
class EffectEvidence:
    """All sources, in the order of the settings."""

    sources: tuple[EffectSource, ...]

    @property
    def inboxes(self) -> Iterator[tuple[EffectSource, Secret]]:
        """Yields the sources that are an inbox, each with its URL."""
        return ((source, source.url) for source in self.sources if source.url is not None)

    def inboxes_of(self, subscription: Subscription) -> tuple[Secret, ...]:
        """Returns the databases of the subscription's inbox. Empty: it has none."""
        return tuple(one.url for one in self._by_subscription.get(subscription, ()) if one.url is not None)

    def asks_business(self, subscription: Subscription) -> bool:
        """Returns True if an effect query proves the effects of the subscription."""
        return any(one.query is not None for one in self._by_subscription.get(subscription, ()))

    @cached_property
    def _by_subscription(self) -> Mapping[Subscription, tuple[EffectSource, ...]]:
        found: dict[Subscription, list[EffectSource]] = {}
        for source in self.sources:
            found.setdefault(source.subscription, []).append(source)
        return {subscription: tuple(sources) for subscription, sources in found.items()}

    @property
    def unknown(self) -> tuple[Subscription, ...]:
        """The subscriptions whose effects cannot be known."""
        return tuple(one.subscription for one in self.sources if one.url is None and one.query is None)


def named_outboxes(halves: Lookup[StoredMessage], *, topic: str) -> tuple[NamedOutbox, ...]:
    """Returns the outboxes that the halves of a key name. A half without a mark names none: its identity is empty."""
    return tuple(
        NamedOutbox(
            identity=half.properties.get(OUTBOX_MARK, "")[:IDENTITY_CHARACTERS_MAX],
            producer_group=half.producer_group,
            half_at=f"{half.broker}@{half.commit_log_offset}",
        )
        for half in halves.records
        if half.real_topic == topic
    )
