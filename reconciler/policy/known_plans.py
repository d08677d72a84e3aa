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
        self._plans = {plan.subscription: (topic, plan) for topic in topics for plan in topic.subscriptions}
        self._shards = shards

    def __iter__(self) -> Iterator[Subscription]:
        return iter(self._plans)

    def of(self, subscription: Subscription, *, begins: bool = False) -> tuple[TopicPlan, SubscriptionPlan]:
        """Returns the plans with the time since which each group answers. If the group `begins`, stores that time."""
        topic, _ = self.known(subscription)
        plans = {plan.subscription: self._since(topic, plan, begins=begins) for plan in topic.subscriptions}
        return replace(topic, subscriptions=tuple(plans.values())), plans[subscription]

    def known(self, subscription: Subscription) -> tuple[TopicPlan, SubscriptionPlan]:
        """Returns the plans as the settings have them. Raises InvalidValue for a subscription without a section."""
        try:
            return self._plans[subscription]
        except KeyError as error:
            raise InvalidValue("subscription", str(subscription), "add a [[subscriptions]] section") from error

    def _since(self, topic: TopicPlan, plan: SubscriptionPlan, *, begins: bool) -> SubscriptionPlan:
        """Adds the time since which the group answers: the setting's, or else the ledger's, which is stored anyway."""
        shards = topic.shards_of(plan.subscription) if begins else ()
        noted_ms = self._shards.since_ms(plan.subscription, shards=shards)
        return replace(plan, since_ms=noted_ms, is_since_noted=True) if plan.since_ms is None else plan
