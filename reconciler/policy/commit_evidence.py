"""Commit evidence, outboxes of a producer group, a commit query or its announcements alone; effect evidence, inboxes
of a subscription.

`reconciler/wiring/databases.py` makes both from the settings. Nothing else tells whether an announcement is trusted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from reconciler.contract.facts import Fact
from reconciler.contract.properties import OUTBOX_MARK
from reconciler.contract.reasons import NAMED_LACKS_ROW, NAMED_NOT_ASKED
from reconciler.contract.secret import Secret
from reconciler.contract.subscription import Subscription
from reconciler.errors import InvariantViolation
from reconciler.policy.commit_query import CommitQuery
from reconciler.policy.evidence import Commit, Lookup, OutboxRow, Presence, StoredMessage

#: Characters of a half's mark that count: marks of plug-ins have 32, and anybody may write one.
IDENTITY_CHARACTERS_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSource:
    """One source of evidence for the commits of a producer group. A group may have several."""

    producer_group: str
    topics: frozenset[str]
    #: The database of its outbox. None: a query, or the announcement alone, because no outbox can be read.
    url: Secret | None = field(repr=False)
    #: What the business's own tables are asked in place of an outbox.
    query: CommitQuery | None = None
    #: Where the settings name the database.
    setting: str = ""
    #: `sweep` answers the check-backs of the group.
    answers_checks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedOutbox:
    """The outbox that a half names as the only one that can have its row."""

    #: The half's mark: what `reconciler_outbox_identity` says there.
    identity: str
    producer_group: str
    #: Where the half lies: broker@offset.
    half_at: str


@dataclass(frozen=True, slots=True)
class CommitEvidence:
    """Every source, in the order of the settings."""

    sources: tuple[CommitSource, ...]

    def of_topic(self, topic: str) -> CommitEvidence:
        """The sources of the groups that send to the topic."""
        return CommitEvidence(tuple(source for source in self.sources if topic in source.topics))

    @property
    def outboxes(self) -> Iterator[tuple[CommitSource, Secret]]:
        """Sources that are an outbox, with its URL."""
        return ((source, source.url) for source in self.sources if source.url is not None)

    @property
    def has_outbox(self) -> bool:
        """An outbox proves a commit, and every source must answer before one is called missing."""
        return any(self.outboxes)

    @property
    def trusts_announcements(self) -> bool:
        """The declared weaker mode: the announcement counts as the evidence of the commit. Without any source nothing
        is evidence."""
        return bool(self.sources) and not self.has_outbox and not self.asks_business

    @property
    def asks_business(self) -> bool:
        """Rows of the business prove commits, by a commit query: an announcement proves none."""
        return any(source.query is not None for source in self.sources)

    @property
    def announced_only(self) -> tuple[str, ...]:
        """The producer group of each source that is neither an outbox nor a query."""
        return tuple(source.producer_group for source in self.sources if source.url is None and source.query is None)

    @property
    def producer_groups(self) -> frozenset[str]:
        """Groups that may own a half."""
        return frozenset(source.producer_group for source in self.sources)

    def commit_of_copy(self, copy: StoredMessage) -> Commit:
        """What an announced copy proves by itself. Raises InvariantViolation where the announcement is not trusted."""
        if not self.trusts_announcements:
            raise InvariantViolation(f"no evidence proves the commit of {copy.unique_key}: nothing is sent")
        return Commit.of_copy(copy)

    def commit_by_row(self, copy: StoredMessage) -> Commit:
        """What a row of the business proves of the one message that it can be of. Raises InvariantViolation where no
        query proves commits."""
        if not self.asks_business:
            raise InvariantViolation(f"no query proves the commit of {copy.unique_key}: nothing is sent")
        return Commit.of_copy(copy)

    def missed_row(self, named: NamedOutbox, outbox: Lookup[OutboxRow] | None) -> Fact | None:
        """Why a key without a committed row cannot be called rolled back: the half says where its row must be.

        The outbox that it names has no row; or the half is one of a configured producer group, and no outbox that was
        asked is the one that it names. None: nothing speaks against the absence.
        """
        answers = [one for one in outbox.answers if one.presence is Presence.ABSENT] if outbox is not None else []
        group, half_at = named.producer_group, named.half_at
        for one in answers:
            if one.identity is not None and one.identity[:IDENTITY_CHARACTERS_MAX] == named.identity:
                return NAMED_LACKS_ROW(producer_group=group, half_at=half_at, witness=one.witness, why=one.fact)
        if outbox is not None and outbox.is_absent and group in self.producer_groups:
            return NAMED_NOT_ASKED(producer_group=group, half_at=half_at, identity=named.identity, why=outbox.reason)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectSource:
    """One source of evidence for the effects of a subscription. A subscription may have several."""

    subscription: Subscription
    #: The database of its inbox. None: its effects cannot be known.
    url: Secret | None = field(repr=False)
    #: Where the settings name the database.
    setting: str


@dataclass(frozen=True, slots=True)
class EffectEvidence:
    """Every source, in the order of the settings."""

    sources: tuple[EffectSource, ...]

    @property
    def inboxes(self) -> Iterator[tuple[EffectSource, Secret]]:
        """Sources that are an inbox, with its URL."""
        return ((source, source.url) for source in self.sources if source.url is not None)

    def inboxes_of(self, subscription: Subscription) -> tuple[Secret, ...]:
        """The databases of the subscription's inbox; none: effects cannot be known."""
        return tuple(url for source, url in self.inboxes if source.subscription == subscription)


def named_outboxes(halves: Lookup[StoredMessage], *, topic: str) -> tuple[NamedOutbox, ...]:
    """What the halves of a key say; one without a mark (another client's) says nothing."""
    marked = [(half.properties.get(OUTBOX_MARK), half) for half in halves.records if half.real_topic == topic]
    return tuple(
        NamedOutbox(
            identity=mark[:IDENTITY_CHARACTERS_MAX],
            producer_group=half.producer_group,
            half_at=f"{half.broker}@{half.commit_log_offset}",
        )
        for mark, half in marked
        if mark
    )
