"""The plans of all subscriptions, with the time since which each group answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from reconciler.contract.subscription import Subscription
from reconciler.errors import InvalidValue
from reconciler.policy.plan import SubscriptionPlan, TopicPlan
from reconciler.policy.shard_rounds import ShardRounds


class KnownPlans:
    """Finds the plan of a subscription. A setting may leave out a group's `since`; the ledger then has that time."""

    def __init__(self, topics: Sequence[TopicPlan], shards: ShardRounds) -> None:
        self._topics = {plan.subscription: topic for topic in topics for plan in topic.subscriptions}
        self._shards = shards

    def __iter__(self) -> Iterator[Subscription]:
        return iter(self._topics)

    def of(self, subscription: Subscription, *, begins: bool = False) -> tuple[TopicPlan, SubscriptionPlan]:
        """Returns the plans with the time since which each group answers. If the group `begins`, stores that time."""
        topic = self.topic_of(subscription)
        plans = {plan.subscription: self._since(topic, plan, begins=begins) for plan in topic.subscriptions}
        return replace(topic, subscriptions=tuple(plans.values())), plans[subscription]

    def topic_of(self, subscription: Subscription) -> TopicPlan:
        """Returns the topic as the settings have it. Raises InvalidValue for a subscription without a section."""
        try:
            return self._topics[subscription]
        except KeyError as error:
            raise InvalidValue("subscription", str(subscription), "add a [[subscriptions]] section") from error

    def _since(self, topic: TopicPlan, plan: SubscriptionPlan, *, begins: bool) -> SubscriptionPlan:
        """Adds the time since which the group answers: the setting's, or else the ledger's, which is stored anyway."""
        shards = topic.shards_of(plan.subscription) if begins else ()
        noted_ms = self._shards.since_ms(plan.subscription, shards=shards)
        return replace(plan, since_ms=noted_ms, is_since_noted=True) if plan.since_ms is None else plan
