"""The plans of a topic and of its subscriptions. reconciler/wiring makes them from the settings."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.contract.defaults import GRACE_PERIOD_SECONDS, LAG_ALARM_SECONDS
from reconciler.contract.keyspace import SHARDS_DEFAULT
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import REPAIR_ORDER_DEFAULT, Rung
from reconciler.contract.unique_key import shard_of
from reconciler.policy.commit_evidence import CommitEvidence

#: A value of `SubscriptionPlan.since_ms`: the group answers for every message.
EVERY_MESSAGE_MS = 0

#: Inbox rows count as deleted this much before their deletion, because the effect comes some time after the inbox was
#: asked.
INBOX_MARGIN_SECONDS = 3600.0


def inbox_reaches(keep_seconds: float | None, written_ms: int, *, now_ms: int) -> bool:
    """Returns True if a missing inbox row proves that a message had no effect: False once the row may have been deleted
    because of its age. `keep_seconds` is the age at which rows are
    deleted; None: rows are never deleted.
    """
    return keep_seconds is None or now_ms - written_ms < (keep_seconds - INBOX_MARGIN_SECONDS) * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionPlan:
    """One group of a topic, as the settings describe it."""

    subscription: Subscription
    #: The tags that the group takes. None: the group takes all messages, even those without a tag.
    tags: frozenset[str] | None = None
    #: Keys that are younger than this are never judged.
    grace_period_seconds: float = GRACE_PERIOD_SECONDS
    #: The age at which the reconciler deletes inbox rows. None: they are never deleted.
    inbox_keep_seconds: float | None = None
    #: True if the group's inbox lies in several databases, so that several of these may have a key.
    has_several_inboxes: bool = False
    #: People are told of a message that waits longer than this for the group. 0: they are never told.
    lag_alarm_seconds: float = LAG_ALARM_SECONDS
    #: The group does not answer for messages that groups were given before this time. None: the ledger has the time,
    #: and a round reads it first.
    since_ms: int | None = None
    #: True if the first round recorded the time; False if a person set it.
    is_since_noted: bool = False
    #: True if the half messages are the subscription's announcements. Such an announcement does not say whether the
    #: message was committed.
    reads_halves: bool = False
    #: True if an effect query proves the group's effects in place of an inbox.
    asks_effects: bool = False

    def answers_for(self, given_ms: int, *, skew_margin_seconds: float) -> bool:
        """Returns False for a message that groups were surely given before `since_ms`. `given_ms` is of another
        server's clock."""
        since_ms = EVERY_MESSAGE_MS if self.since_ms is None else self.since_ms
        return given_ms + skew_margin_seconds * 1000 >= since_ms

    @property
    def group(self) -> str:
        """The consumer group."""
        return self.subscription.group

    def accepts(self, tag: str | None) -> bool:
        """Returns True if the group's filter accepts the tag (FilterAPI: a message without a tag matches '*' only)."""
        return self.tags is None or tag in self.tags

    def inbox_reaches(self, written_ms: int, *, now_ms: int) -> bool:
        """Returns True if a missing inbox row proves that a message written at that time had no effect.

        An older message may have had its effect, and its row may have been deleted since.
        """
        return inbox_reaches(self.inbox_keep_seconds, written_ms, now_ms=now_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """A business topic with every configured subscription, because END and republish reach all subscriptions."""

    environment: str
    topic: str
    #: The subscriptions of the topic. There is at least one.
    subscriptions: tuple[SubscriptionPlan, ...]
    #: The sources that prove commits of the topic.
    evidence: CommitEvidence
    shards: int = SHARDS_DEFAULT
    #: The ladder of the topic's repairs. All subscriptions share it.
    repair_order: tuple[Rung, ...] = REPAIR_ORDER_DEFAULT
    #: True if a message that a row of the business proves lost is sent again, because its consumers recognise
    #: duplicates.
    sends_by_query: bool = False

    @property
    def grace_period_seconds(self) -> float:
        """The longest grace period of the topic's subscriptions."""
        return max(plan.grace_period_seconds for plan in self.subscriptions)

    def shard_of(self, unique_key: str) -> int:
        """Returns the shard of a key."""
        return shard_of(unique_key, self.shards)

    def shards_of(self, subscription: Subscription) -> tuple[Shard, ...]:
        """Returns every shard of a subscription."""
        return tuple(Shard(subscription=subscription, number=number) for number in range(self.shards))
