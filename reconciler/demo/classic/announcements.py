"""Reads the unique-key topic as the original's business consumer does; an adapter of round.ClassicAnnouncements.

The broker keeps the group's offset. So the offset does not fall back if Redis loses acknowledged keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reconciler.announcing.rules import AnnouncementRules
from reconciler.announcing.source import RemotingAnnouncementSource, master_of, message_queue
from reconciler.contract.subscription import Subscription
from reconciler.demo.classic.round import ClassicBatch
from reconciler.policy.ports.announcing import RefusedAnnouncement
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.client.routes import Routes

PULL_MESSAGES_MAX = 32


class GroupOffsetAnnouncements:
    """Pulls from the group's offsets at the broker. Shared by threads, because source, routes and offsets are."""

    def __init__(
        self,
        source: RemotingAnnouncementSource,
        *,
        routes: Routes,
        offsets: Offsets,
        unique_key_topics: Mapping[Subscription, str],
        rules: Mapping[Subscription, AnnouncementRules],
    ) -> None:
        self._source = source
        self._routes = routes
        self._offsets = offsets
        self._topics = unique_key_topics
        self._rules = rules

    def pull(self, subscription: Subscription) -> Sequence[ClassicBatch]:
        """Pulls once per queue, from the stored offset on. Without a stored offset, begins at the oldest
        announcement."""
        batches = []
        for queue in self._source.queues(self._topics[subscription]):
            stored = self._offsets.of_group(master_of(self._routes, queue), message_queue(queue), subscription.group)
            start = max(self._source.earliest(queue), stored or 0)
            pulled = self._source.pull(queue, tag=subscription.topic, offset=start, max_messages=PULL_MESSAGES_MAX)
            following = pulled.min_offset if pulled.is_offset_illegal else pulled.next_offset
            if following == start:
                continue
            screened = [self._rules[subscription].screen(queue, message) for message in pulled.messages]
            keys = [key for one in screened if not isinstance(one, RefusedAnnouncement) for key in one.unique_keys]
            batches.append(ClassicBatch(queue=queue, unique_keys=tuple(keys), next_offset=following))
        return batches

    def acknowledge(self, subscription: Subscription, batch: ClassicBatch) -> None:
        """Stores the offset (UPDATE_CONSUMER_OFFSET)."""
        queue = batch.queue
        self._offsets.store(master_of(self._routes, queue), message_queue(queue), subscription.group, batch.next_offset)
