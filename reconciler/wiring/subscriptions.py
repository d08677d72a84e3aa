"""The [[subscriptions]] sections of the settings as units of reconciliation."""

from __future__ import annotations

from reconciler.clock import utc_text
from reconciler.contract.subscription import Subscription
from reconciler.errors import InvalidValue
from reconciler.rocketmq.wire.codes import HALF_TOPIC
from reconciler.settings.schema import Settings, SubscriptionSettings

#: Maximum number of milliseconds by which `since` may be in the future, because the clock of its author may be ahead of
#: this host's.
SINCE_AHEAD_MS = 60_000


def subscription_of(settings: Settings, configured: SubscriptionSettings) -> Subscription:
    """Returns the unit of reconciliation for a [[subscriptions]] section."""
    return Subscription(environment=settings.environment, topic=configured.topic, group=configured.group)


def announcement_topic(settings: Settings, configured: SubscriptionSettings) -> str:
    """Returns the topic that announces a subscription's messages."""
    return HALF_TOPIC if configured.reads_halves else settings.unique_key_topic.name_for(configured.topic)


def unique_key_topics(settings: Settings) -> tuple[str, ...]:
    """Returns all unique-key topics that a subscription reads."""
    names = (settings.unique_key_topic.name_for(s.topic) for s in settings.subscriptions if not s.reads_halves)
    return tuple(dict.fromkeys(names))


def find_subscription(settings: Settings, topic: str, group: str) -> SubscriptionSettings:
    """Returns the [[subscriptions]] section of a topic and group. Raises InvalidValue if there is none."""
    for configured in settings.subscriptions:
        if (configured.topic, configured.group) == (topic, group):
            return configured
    raise InvalidValue("--topic/--group", f"{topic}/{group}", "no [[subscriptions]] section has them")


def require_past_since(settings: Settings, *, now_ms: int) -> None:
    """Raises InvalidValue for a `since` in the future, because no loss of the group would be reported until then."""
    for configured in settings.subscriptions:
        if configured.since_ms is not None and configured.since_ms > now_ms + SINCE_AHEAD_MS:
            raise InvalidValue(
                "subscriptions.since",
                configured.since,
                f"it lies in the future, and {configured.topic}/{configured.group} would answer for no message until "
                f"then. By the clock of this host it is {utc_text(now_ms)}: correct the year, the offset from UTC, or "
                "the clock",
            )


def require_topic(settings: Settings, topic: str) -> None:
    """Raises InvalidValue for a topic that is not configured."""
    if topic not in {s.topic for s in settings.subscriptions}:
        raise InvalidValue("topic", topic, "no [[subscriptions]] section has it")


def require_subscription(settings: Settings, topic: str | None, group: str | None) -> None:
    """Raises InvalidValue for a topic or group that is not configured.

    A misspelt name would select no message, as if there were nothing to do.
    """
    if topic is not None:
        require_topic(settings, topic)
    if group is not None and not any(s.group == group and topic in (None, s.topic) for s in settings.subscriptions):
        raise InvalidValue("group", group, f"no [[subscriptions]] section has it{f' for {topic}' if topic else ''}")
