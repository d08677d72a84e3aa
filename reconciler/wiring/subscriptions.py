"""The [[subscriptions]] sections of the settings as units of reconciliation."""

from __future__ import annotations

from reconciler.contract.subscription import Subscription
from reconciler.errors import InvalidValue
from reconciler.settings.schema import Settings, SubscriptionSettings


def subscription_of(settings: Settings, configured: SubscriptionSettings) -> Subscription:
    """The unit of reconciliation behind a [[subscriptions]] section."""
    return Subscription(environment=settings.environment, topic=configured.topic, group=configured.group)


def find_subscription(settings: Settings, topic: str, group: str) -> SubscriptionSettings:
    """The [[subscriptions]] section of a topic and group; raises InvalidValue if there is none."""
    for configured in settings.subscriptions:
        if (configured.topic, configured.group) == (topic, group):
            return configured
    raise InvalidValue("--topic/--group", f"{topic}/{group}", "no [[subscriptions]] section has them")
