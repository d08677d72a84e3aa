"""Reads which halves a broker has, and from which of them a message in their topics was committed."""

from __future__ import annotations

from collections.abc import Callable

from reconciler.contract.facts import Code, Fact, Field
from reconciler.halves.half_topic import MasterQueues
from reconciler.halves.outcomes import HalfPlaces
from reconciler.rocketmq.wire.codes import HALF_TOPIC, SystemFlag

TOPIC_GONE = Code("scan.topic-gone", topic=Field.NAME)

#: Allows for brokers' clocks that were set back, and for the search by time, which is not exact.
MARGIN_MS = 600_000
_TRANSACTION_BITS, _COMMITTED = int(SystemFlag.TRANSACTION_MASK), int(SystemFlag.COMMIT)


class PlacesReader:
    """Reads places of halves; used by one thread only."""

    def __init__(self, queues: MasterQueues, *, show: Callable[[int, int], None]) -> None:
        """`show`: called once per answer with the number of records that were read, and the number of all."""
        self._queues = queues
        self._show = show
        self.places = HalfPlaces()
        #: When the oldest half that was read was stored, ms UTC. None: no half was read.
        self.oldest_ms: int | None = None

    def halves(self, begin: int, end: int) -> None:
        """Reads the halves between two offsets of the half topic."""
        for heads in self._queues.heads(HALF_TOPIC, 0, begin, end):
            for head in heads:
                if self.oldest_ms is None or head.store_timestamp_ms < self.oldest_ms:
                    self.oldest_ms = head.store_timestamp_ms
                self.places.add(head.queue_offset, head.physical_offset, head.properties)
            self._show(heads[-1].queue_offset - begin, end - begin)

    def committed(self, topic: str, queues: int, since_ms: int) -> None:
        """Reads the messages of a topic that were stored since a time. `queues`: the number of its queues on this
        broker."""
        for queue_id in range(queues):
            first, end = self._queues.bounds(topic, queue_id) or (0, 0)
            begin = max(first, self._queues.at_time(topic, since_ms, otherwise=first, queue_id=queue_id))
            for heads in self._queues.heads(topic, queue_id, begin, end):
                for head in heads:
                    if head.system_flag & _TRANSACTION_BITS == _COMMITTED:
                        self.places.add_committed(head.prepared_transaction_offset)
                self._show(heads[-1].queue_offset - begin, end - begin)


def topic_gone(topic: str) -> Fact:
    """Returns a fact that says that a broker has halves of a topic but no queue of it."""
    return TOPIC_GONE(topic=topic)
