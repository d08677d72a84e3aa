"""Where a queue starts, and how its offset gets to the broker (RebalancePushImpl, RemoteBrokerOffsetStore)."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from reconciler.errors import BrokerUnavailable, ReconcilerError
from reconciler.rocketmq.codes import RETRY_TOPIC_PREFIX
from reconciler.rocketmq.heartbeat import ConsumeFrom
from reconciler.rocketmq.offsets import Offsets
from reconciler.rocketmq.push_settings import PushSettings
from reconciler.rocketmq.routes import MessageQueue, Routes

logger = logging.getLogger(__name__)


class GroupOffsets:
    """Offsets of one group at its brokers. Thread-safe, holds no state."""

    def __init__(self, offsets: Offsets, routes: Routes, *, group: str, settings: PushSettings) -> None:
        self._offsets = offsets
        self._routes = routes
        self._group = group
        self._settings = settings

    def start_of(self, queue: MessageQueue) -> int:
        """The group's stored offset, else by `consume_from`. Raises what asking the broker raises."""
        address = self._address(queue)
        stored = self._offsets.of_group(address, queue, self._group)
        if stored is not None:
            return stored
        # A retry is a message the group has seen and not consumed: skipping one would lose it.
        if queue.topic.startswith(RETRY_TOPIC_PREFIX) or self._settings.consume_from is ConsumeFrom.FIRST:
            return self._offsets.minimum(address, queue)
        if self._settings.consume_from is ConsumeFrom.TIMESTAMP:
            return self._offsets.at_time(address, queue, self._settings.consume_timestamp_ms)
        return self._offsets.maximum(address, queue)

    def commit(self, offsets: Iterable[tuple[MessageQueue, int]], *, is_last: bool) -> int:
        """Stores offsets; `is_last` waits for the answers. A broker that is away is logged; returns how many went."""
        stored = 0
        for queue, offset in offsets:
            try:
                self._offsets.store(self._address(queue), queue, self._group, offset, is_oneway=not is_last)
                stored += 1
            except ReconcilerError as error:
                logger.warning("offset %d of %s in %s is not stored: %s", offset, self._group, queue, error)
        return stored

    def _address(self, queue: MessageQueue) -> str:
        address = self._routes.master_of(queue.topic, queue.broker_name)
        if address is None:
            raise BrokerUnavailable(f"{queue.broker_name} has no master in the route of {queue.topic}")
        return address
