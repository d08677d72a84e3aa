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


def require_topic(settings: Settings, topic: str) -> None:
    """Raises InvalidValue for a topic that is not configured."""
    if topic not in {s.topic for s in settings.subscriptions}:
        raise InvalidValue("topic", topic, "no [[subscriptions]] section has it")


def require_subscription(settings: Settings, topic: str | None, group: str | None) -> None:
    """Raises InvalidValue: a misspelt name would choose nothing, which looks like nothing to be done."""
    if topic is not None:
        require_topic(settings, topic)
    if group is not None and not any(s.group == group and topic in (None, s.topic) for s in settings.subscriptions):
        raise InvalidValue("group", group, f"no [[subscriptions]] section has it{f' for {topic}' if topic else ''}")
