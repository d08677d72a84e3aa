"""The connected clients, as members of producer groups and consumer groups (ProducerManager, ConsumerManager).

Only the broker's loop uses this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.clock import Clock
from reconciler.embedded.channel import Channel
from reconciler.embedded.layout import java_hash

_TAG_SEPARATOR = re.compile(r"\|\|")


@dataclass(frozen=True, kw_only=True, slots=True)
class SubscriptionData:
    """A topic with the hashes of the subscribed tags (SubscriptionData of RocketMQ). An empty set matches every
    message."""

    topic: str
    expression: str = "*"
    kind: str = "TAG"
    version: int = 0
    codes: frozenset[int] = frozenset()
    raw: Mapping[str, Any] = field(default_factory=dict)

    def matches(self, tags_code: int) -> bool:
        """Compares the hashes of tags only (ExpressionMessageFilter.isMatchedByConsumeQueue)."""
        return not self.codes or tags_code in self.codes


def parse_subscription(topic: str, expression: str | None, kind: str | None, version: int) -> SubscriptionData:
    """Parses an expression such as "A || B". "*" and an empty text mean every message (FilterAPI.build)."""
    words: list[str] = []
    if expression and expression != "*" and (kind or "TAG") == "TAG":
        words = [word.strip() for word in _TAG_SEPARATOR.split(expression) if word.strip()]
    return SubscriptionData(
        topic=topic,
        expression=expression or "*",
        kind=kind or "TAG",
        version=version,
        codes=frozenset(java_hash(word) for word in words),
    )


def subscription_from_heartbeat(data: Mapping[str, Any]) -> SubscriptionData:
    """Parses one entry of subscriptionDataSet. Computes the tag hashes here, because clients of some languages send
    other hashes."""
    parsed = parse_subscription(
        str(data.get("topic", "")),
        data.get("subString"),
        data.get("expressionType"),
        int(data.get("subVersion", 0)),
    )
    return SubscriptionData(
        topic=parsed.topic,
        expression=parsed.expression,
        kind=parsed.kind,
        version=parsed.version,
        codes=parsed.codes,
        raw=dict(data),
    )


@dataclass(slots=True)
class Member:
    """One client of a group on one connection."""

    client_id: str
    language: str
    version: int
    seen_seconds: float


@dataclass(slots=True)
class ConsumerGroup:
    """A consumer group with its members and subscriptions (ConsumerGroupInfo)."""

    name: str
    members: dict[Channel, Member] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from: str = "CONSUME_FROM_LAST_OFFSET"

    def client_ids(self) -> list[str]:
        """Returns the distinct ids of the members, in order of arrival."""
        return list(dict.fromkeys(member.client_id for member in self.members.values()))


class ClientRegistry:
    """All groups of one broker. Calls ``on_change`` for every group whose members or topics changed."""

    def __init__(self, clock: Clock, on_change: Callable[[ConsumerGroup], None]) -> None:
        self._clock = clock
        self._on_change = on_change
        self.producers: dict[str, dict[Channel, Member]] = {}
        self.consumers: dict[str, ConsumerGroup] = {}
        self._turn = 0

    # -- producers ---------------------------------------------------------------------------------
    def register_producer(self, group: str, channel: Channel, member: Member) -> None:
        """Registers a producer that a heartbeat named."""
        member.seen_seconds = self._clock.monotonic_seconds()
        self.producers.setdefault(group, {})[channel] = member

    def available_channel(self, group: str) -> Channel | None:
        """Returns the next writable channel of the group in turn, after at most three tries
        (ProducerManager.getAvailableChannel)."""
        channels = list(self.producers.get(group, {}))
        for _ in range(min(3, len(channels))):
            self._turn += 1
            channel = channels[self._turn % len(channels)]
            if channel.is_writable():
                return channel
        return None

    # -- consumers ---------------------------------------------------------------------------------
    def register_consumer(
        self,
        group: str,
        channel: Channel,
        member: Member,
        *,
        data: Mapping[str, Any],
        subscriptions: Iterable[SubscriptionData] | None,
    ) -> None:
        """Registers a consumer that a heartbeat named (ConsumerManager.registerConsumer).

        If `subscriptions` is None, the known subscriptions remain. Heartbeats V2 of 5.1 and newer bring none after the
        first.
        """
        found = self.consumers.setdefault(group, ConsumerGroup(name=group))
        known = found.members.get(channel)
        changed = known is None or known.client_id != member.client_id
        member.seen_seconds = self._clock.monotonic_seconds()
        found.members[channel] = member
        found.consume_type = str(data.get("consumeType", found.consume_type))
        found.message_model = str(data.get("messageModel", found.message_model))
        found.consume_from = str(data.get("consumeFromWhere", found.consume_from))
        if subscriptions is not None:
            changed = self._subscribe(found, subscriptions) or changed
        if changed:
            self._on_change(found)

    @staticmethod
    def _subscribe(group: ConsumerGroup, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Replaces the subscriptions of the group, but keeps a known subscription with a newer version
        (updateSubscription). Returns True if topics were added or removed."""
        new = {subscription.topic: subscription for subscription in subscriptions}
        changed = set(new) != set(group.subscriptions)
        for topic, subscription in new.items():
            old = group.subscriptions.get(topic)
            if old is not None and old.version > subscription.version:
                new[topic] = old
        group.subscriptions = new
        return changed

    def unregister(self, channel: Channel, *, producer_group: str | None, consumer_group: str | None) -> None:
        """Removes the client from the groups (UNREGISTER_CLIENT)."""
        if producer_group:
            self._leave_producers(producer_group, channel)
        if consumer_group:
            self._leave_consumers(consumer_group, channel)

    def drop_channel(self, channel: Channel) -> None:
        """Removes a lost connection from all groups."""
        for group in list(self.producers):
            self._leave_producers(group, channel)
        for group in list(self.consumers):
            self._leave_consumers(group, channel)

    def expire(self, age_seconds: float) -> None:
        """Removes members whose last heartbeat is older than `age_seconds` (scanNotActiveChannel)."""
        limit = self._clock.monotonic_seconds() - age_seconds
        for group, members in list(self.producers.items()):
            for channel in [channel for channel, member in members.items() if member.seen_seconds < limit]:
                self._leave_producers(group, channel)
        for name, found in list(self.consumers.items()):
            for channel in [channel for channel, member in found.members.items() if member.seen_seconds < limit]:
                self._leave_consumers(name, channel)

    def _leave_producers(self, group: str, channel: Channel) -> None:
        members = self.producers.get(group, {})
        if members.pop(channel, None) is not None and not members:
            del self.producers[group]

    def _leave_consumers(self, group: str, channel: Channel) -> None:
        found = self.consumers.get(group)
        if found is None or found.members.pop(channel, None) is None:
            return
        if not found.members:
            del self.consumers[group]
        self._on_change(found)


@dataclass(frozen=True, slots=True)
class _Lock:
    client_id: str
    taken_seconds: float


class RebalanceLocks:
    """The locks of queues. Each lock belongs to one member of a group, and lasts 60 s (RebalanceLockManager)."""

    def __init__(self, clock: Clock, expiry_seconds: float) -> None:
        self._clock = clock
        self._expiry_seconds = expiry_seconds
        self._locks: dict[tuple[str, str, str, int], _Lock] = {}

    def lock(self, group: str, client_id: str, queue: tuple[str, str, int]) -> bool:
        """Takes or renews a lock. Returns False while another member holds it."""
        now = self._clock.monotonic_seconds()
        held = self._locks.get((group, *queue))
        if held is not None and held.client_id != client_id and now - held.taken_seconds <= self._expiry_seconds:
            return False
        self._locks[group, *queue] = _Lock(client_id, now)
        return True

    def unlock(self, group: str, client_id: str, queue: tuple[str, str, int]) -> None:
        """Gives up a lock that the client holds."""
        held = self._locks.get((group, *queue))
        if held is not None and held.client_id == client_id:
            del self._locks[group, *queue]

    def expire(self) -> None:
        """Forgets locks that were not renewed in time."""
        limit = self._clock.monotonic_seconds() - self._expiry_seconds
        for key in [key for key, held in self._locks.items() if held.taken_seconds < limit]:
            del self._locks[key]
