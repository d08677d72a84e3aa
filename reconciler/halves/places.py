"""Reads the halves of a broker, and the committed messages that name these halves."""

from __future__ import annotations

from collections.abc import Callable

from reconciler.contract.facts import Code, Fact, Field
from reconciler.halves.half_topic import MasterQueues
from reconciler.halves.outcomes import HalfPlaces
from reconciler.rocketmq.wire.codes import HALF_TOPIC, SystemFlag

TOPIC_GONE = Code("scan.topic-gone", topic=Field.NAME)

#: Margin for a search by time, which is not exact. The margin also covers brokers' clocks that were set back.
MARGIN_MS = 600_000
_TRANSACTION_BITS, _COMMITTED = int(SystemFlag.TRANSACTION_MASK), int(SystemFlag.COMMIT)


class PlacesReader:
    """Reads the places of halves. Only one thread may use an object."""

    def __init__(self, queues: MasterQueues, *, show: Callable[[int, int], None]) -> None:
        """`show` is called once per answer, with the number of records that were read and the number of all records."""
        self._queues = queues
        self._show = show
        self.places = HalfPlaces()
        #: Store time of the oldest half that was read, in ms UTC. None if no half was read.
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
        """Reads the messages of a topic that were stored since a time. `queues` is the number of the topic's queues on
        this broker."""
        for queue_id in range(queues):
            first, end = self._queues.bounds(topic, queue_id) or (0, 0)
            begin = max(first, self._queues.at_time(topic, since_ms, otherwise=first, queue_id=queue_id))
            for heads in self._queues.heads(topic, queue_id, begin, end):
                for head in heads:
                    if head.system_flag & _TRANSACTION_BITS == _COMMITTED:
                        self.places.add_committed(head.prepared_transaction_offset)
                self._show(heads[-1].queue_offset - begin, end - begin)


def topic_gone(topic: str) -> Fact:
    """Returns the fact that the broker has halves of the topic, but no queue of the topic."""
    return TOPIC_GONE(topic=topic)
