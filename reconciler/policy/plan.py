"""What policy has to know about a topic and its subscriptions; reconciler/wiring makes it from the settings."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.contract.defaults import GRACE_PERIOD_SECONDS, LAG_ALARM_SECONDS
from reconciler.contract.keyspace import SHARDS_DEFAULT
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import REPAIR_ORDER_DEFAULT, Rung
from reconciler.contract.unique_key import shard_of
from reconciler.policy.commit_evidence import CommitEvidence

#: Of `SubscriptionPlan.since_ms`: the group answers for every message.
EVERY_MESSAGE_MS = 0

#: Inbox rows are taken to be deleted this much earlier than they are: an effect comes some time after the inbox was
#: asked.
INBOX_MARGIN_SECONDS = 3600.0


def inbox_reaches(keep_seconds: float | None, written_ms: int, *, now_ms: int) -> bool:
    """Whether a missing inbox row proves that a message had no effect.

    False once the row, had there been one, may have been deleted by age (`keep_seconds`; None: rows are never deleted).
    """
    return keep_seconds is None or now_ms - written_ms < (keep_seconds - INBOX_MARGIN_SECONDS) * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionPlan:
    """One group of a topic."""

    subscription: Subscription
    #: Tags that the group takes; None: all, also messages without a tag.
    tags: frozenset[str] | None = None
    #: A key younger than this is never judged.
    grace_period_seconds: float = GRACE_PERIOD_SECONDS
    #: Age at which the reconciler deletes inbox rows; None: never.
    inbox_keep_seconds: float | None = None
    #: Its inbox is in several databases: where one of them has a key, another one may have it, too.
    has_several_inboxes: bool = False
    #: A message that waits longer for the group is told; 0: never.
    lag_alarm_seconds: float = LAG_ALARM_SECONDS
    #: What groups were given earlier is not asked of this one. None: as the ledger says, which a round looks up first.
    since_ms: int | None = None
    #: It was noted at the first round; False: a person set it.
    is_since_noted: bool = False
    #: Its announcements are the half messages: whether one was committed, nobody has said.
    reads_halves: bool = False

    def answers_for(self, given_ms: int, *, skew_margin_seconds: float) -> bool:
        """False of a message that groups were given surely before `since_ms`; another server's clock told its time."""
        since_ms = EVERY_MESSAGE_MS if self.since_ms is None else self.since_ms
        return given_ms + skew_margin_seconds * 1000 >= since_ms

    @property
    def group(self) -> str:
        """The consumer group."""
        return self.subscription.group

    def accepts(self, tag: str | None) -> bool:
        """True if the group's filter lets the tag through (FilterAPI: a message without a tag matches '*' only)."""
        return self.tags is None or tag in self.tags

    def inbox_reaches(self, written_ms: int, *, now_ms: int) -> bool:
        """True if a missing inbox row of a message that was written then proves that it had no effect.

        An older message may have had its effect, and its row may have been deleted by age since.
        """
        return inbox_reaches(self.inbox_keep_seconds, written_ms, now_ms=now_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """A business topic with every configured subscription: END and republish reach all of them."""

    environment: str
    topic: str
    #: Never empty.
    subscriptions: tuple[SubscriptionPlan, ...]
    #: What proves commits of the topic.
    evidence: CommitEvidence
    shards: int = SHARDS_DEFAULT
    #: The ladder of the topic's repairs; subscriptions of one topic share it.
    repair_order: tuple[Rung, ...] = REPAIR_ORDER_DEFAULT
    #: What a row of the business proves lost is sent again: its consumers recognise duplicates.
    sends_by_query: bool = False

    @property
    def grace_period_seconds(self) -> float:
        """The longest one of its subscriptions."""
        return max(plan.grace_period_seconds for plan in self.subscriptions)

    def shard_of(self, unique_key: str) -> int:
        """The shard of a key."""
        return shard_of(unique_key, self.shards)

    def shards_of(self, subscription: Subscription) -> tuple[Shard, ...]:
        """Every shard of a subscription."""
        return tuple(Shard(subscription=subscription, number=number) for number in range(self.shards))
