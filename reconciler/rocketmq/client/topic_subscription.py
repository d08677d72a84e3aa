"""A consumer's subscription to a topic, with the tag expression that heartbeats carry.

Brokers compare only the hash of a tag (ConsumeQueue's tagsCode), so the client compares the tag itself again.
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.errors import InvalidValue

EVERY_TAG = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSubscription:
    """One topic with its tags (org.apache.rocketmq.common.protocol.heartbeat.SubscriptionData)."""

    topic: str
    #: The expression that the user wrote. "*" means every tag.
    expression: str
    #: The tags of the expression. An empty set means every tag.
    tags: frozenset[str]
    #: Creation time of the subscription in milliseconds. Brokers refuse pulls with an older version
    #: (SUBSCRIPTION_NOT_LATEST, 25).
    version: int

    def wants(self, tag: str | None) -> bool:
        """Returns True if the subscription wants messages with this tag. `tag` is None for a message without a tag."""
        return not self.tags or tag in self.tags

    def to_heartbeat(self) -> dict[str, object]:
        """Returns the object in a heartbeat's subscriptionDataSet."""
        ordered = sorted(self.tags)
        return {
            "classFilterMode": False,
            "codeSet": [java_hash(tag) for tag in ordered],
            "expressionType": "TAG",
            "subString": self.expression,
            "subVersion": self.version,
            "tagsSet": ordered,
            "topic": self.topic,
        }


def subscribe_to(topic: str, expression: str, *, version: int) -> TopicSubscription:
    """Parses "a || b" or "*" (FilterAPI.buildSubscriptionData). Raises InvalidValue for an expression without tags."""
    text = expression.strip() or EVERY_TAG
    if text == EVERY_TAG:
        return TopicSubscription(topic=topic, expression=EVERY_TAG, tags=frozenset(), version=version)
    tags = frozenset(part.strip() for part in text.split("||") if part.strip())
    if not tags:
        raise InvalidValue("expression", expression, 'name tags as "a || b", or "*" for all of them')
    return TopicSubscription(topic=topic, expression=text, tags=tags, version=version)


def java_hash(text: str) -> int:
    """Returns the value of java.lang.String.hashCode, which is signed 32 bits over UTF-16 code units."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value
