"""A *subscription* is a topic as one consumer group sees it. Each subscription is reconciled by itself.

A *shard* is a slice of a subscription's keys.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Subscription:
    """A consumer group's view of a topic, in one environment."""

    #: The name of the deployment (production, staging ...). Different names keep data apart in shared Redis servers and
    #: databases.
    environment: str
    #: The business topic.
    topic: str
    #: The consumer group.
    group: str

    def __str__(self) -> str:
        return f"{self.topic}/{self.group}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Shard:
    """A slice of a subscription's keys. The shard's number is also the number of its queue in the unique-key topic."""

    subscription: Subscription
    number: int

    def __str__(self) -> str:
        return f"{self.subscription}#{self.number}"
