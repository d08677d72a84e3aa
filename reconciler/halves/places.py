"""Reads which halves of a broker there are, and which of them a message in their topics was committed from."""

from __future__ import annotations

from collections.abc import Callable

from reconciler.contract.facts import Code, Fact, Field
from reconciler.halves.half_topic import MasterQueues
from reconciler.halves.outcomes import HalfPlaces
from reconciler.rocketmq.wire.codes import HALF_TOPIC, SystemFlag

TOPIC_GONE = Code("scan.topic-gone", topic=Field.NAME)

#: Clocks of a broker that were set back, and the search by time, which is no exact one.
MARGIN_MS = 600_000
_TRANSACTION_BITS, _COMMITTED = int(SystemFlag.TRANSACTION_MASK), int(SystemFlag.COMMIT)


class PlacesReader:
    """Confined to one thread."""

    def __init__(self, queues: MasterQueues, *, show: Callable[[int, int], None]) -> None:
        """`show`: is told how many records were read, and of how many."""
        self._queues = queues
        self._show = show
        self.places = HalfPlaces()
        #: When the oldest half that was read was stored, ms UTC. None: none was.
        self.oldest_ms: int | None = None

    def halves(self, begin: int, end: int) -> None:
        """Those between two offsets of the half topic."""
        for head in self._queues.heads(HALF_TOPIC, 0, begin, end):
            if self.oldest_ms is None or head.store_timestamp_ms < self.oldest_ms:
                self.oldest_ms = head.store_timestamp_ms
            self.places.add(head.queue_offset, head.physical_offset, head.properties)
            self._show(head.queue_offset - begin, end - begin)

    def committed(self, topic: str, queues: int, since_ms: int) -> None:
        """Messages of a topic that were stored since a time. `queues`: how many it has on this broker."""
        for queue_id in range(queues):
            first, end = self._queues.bounds(topic, queue_id) or (0, 0)
            begin = max(first, self._queues.at_time(topic, since_ms, otherwise=first, queue_id=queue_id))
            for head in self._queues.heads(topic, queue_id, begin, end):
                if head.system_flag & _TRANSACTION_BITS == _COMMITTED:
                    self.places.add_committed(head.prepared_transaction_offset)
                self._show(head.queue_offset - begin, end - begin)


def topic_gone(topic: str) -> Fact:
    """That a broker has halves of a topic, and no queue of it."""
    return TOPIC_GONE(topic=topic)
