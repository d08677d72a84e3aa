"""The [[subscriptions]] sections of the settings: what they stand for, and the inboxes that they name."""

from __future__ import annotations

from reconciler.contract.subscription import Subscription
from reconciler.errors import InvalidValue
from reconciler.evidence.inbox import SqlInboxEvidence
from reconciler.settings.schema import Settings, SubscriptionSettings
from reconciler.wiring.connections import Connections


def subscription_of(settings: Settings, configured: SubscriptionSettings) -> Subscription:
    """The unit of reconciliation behind a [[subscriptions]] section."""
    return Subscription(environment=settings.environment, topic=configured.topic, group=configured.group)


def inbox_evidence(connections: Connections) -> SqlInboxEvidence:
    """The inboxes of all subscriptions that have one, by connections that cannot write."""
    settings = connections.settings
    return SqlInboxEvidence(
        {
            subscription_of(settings, s): [connections.engine(url, read_only=True) for url in s.inbox_urls]
            for s in settings.subscriptions
        }
    )


def find_subscription(settings: Settings, topic: str, group: str) -> SubscriptionSettings:
    """The [[subscriptions]] section of a topic and group; raises InvalidValue if there is none."""
    for configured in settings.subscriptions:
        if (configured.topic, configured.group) == (topic, group):
            return configured
    raise InvalidValue("--topic/--group", f"{topic}/{group}", "no [[subscriptions]] section has them")
