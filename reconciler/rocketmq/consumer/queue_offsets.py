"""The start of consumption in a queue, and the commit of offsets to brokers (RebalancePushImpl,
RemoteBrokerOffsetStore)."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from reconciler.errors import BrokerUnavailable, ReconcilerError
from reconciler.rocketmq.client.heartbeat import ConsumeFrom
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.client.routes import MessageQueue, Routes
from reconciler.rocketmq.consumer.settings import PushSettings
from reconciler.rocketmq.wire.codes import RETRY_TOPIC_PREFIX

logger = logging.getLogger(__name__)

#: Longest time for which a last commit waits for all answers together, whatever the number of queues. The first offsets
#: of a new group are sent and awaited before all other offsets.
LAST_COMMIT_SECONDS = 3.0

#: Address, queue, offset.
_Placed = tuple[str, MessageQueue, int]


class GroupOffsets:
    """Offsets of one group at its brokers. `start_of` must run on one thread. `commit` is thread-safe."""

    def __init__(self, offsets: Offsets, routes: Routes, *, group: str, settings: PushSettings) -> None:
        self._offsets = offsets
        self._routes = routes
        self._group = group
        self._settings = settings
        #: Topic -> the queues' ends at the time when this group was new in the topic. Only ends that no broker has
        #: stored yet are kept. The dictionary is empty for a group that has offsets in the topic, because a queue
        #: without an offset was added later.
        self._ends: dict[str, dict[MessageQueue, int]] = {}
        #: (address, topic) for which the broker surely has offsets of this group. A group's first offset must be stored
        #: alone. If two threads of the broker store the first offsets of a topic and group at once, each thread makes a
        #: table. One table is then lost, although both requests were answered (ConsumerOffsetManager.commitOffset;
        #: RocketMQ #10700, 3.2.6 to 5.4).
        self._begun: set[tuple[str, str]] = set()

    def start_of(self, queue: MessageQueue) -> int:
        """Returns the group's stored offset. Without one, returns the start that `consume_from` demands. Raises the
        errors of requests to the broker."""
        address = self._address(queue)
        stored = self._offsets.of_group(address, queue, self._group)
        start = stored if stored is not None else self._start_without_offset(address, queue)
        if stored:  # up to 4.9 the broker may answer 0 for a group that it does not know
            self._begun.add((address, queue.topic))
        elif (address, queue.topic) not in self._begun:
            self._store(address, queue, start)
        return start

    def _store(self, address: str, queue: MessageQueue, offset: int) -> None:
        self._offsets.store(address, queue, self._group, offset)
        self._begun.add((address, queue.topic))

    def _start_without_offset(self, address: str, queue: MessageQueue) -> int:
        # Retry topics are read from the beginning. A retry that is skipped would be lost.
        if queue.topic.startswith(RETRY_TOPIC_PREFIX) or self._settings.consume_from is ConsumeFrom.FIRST:
            return self._beginning(address, queue)
        if self._settings.consume_from is ConsumeFrom.TIMESTAMP:
            return self._offsets.at_time(address, queue, self._settings.consume_timestamp_ms)
        return self._start_at_last(address, queue)

    def _start_at_last(self, address: str, queue: MessageQueue) -> int:
        """Returns the start for LAST, which is the queue's end at the time when the group was new. A queue that is
        added later is read from its beginning.

        The start is stored before the first pull. Otherwise the next member would use a later end after a crash. Java
        leaves the start to the broker, which answers 0 for a short queue unless setZeroIfNotFound is false.
        """
        if queue.topic not in self._ends:
            self._ends[queue.topic] = self._ends_if_new(queue.topic)
        # The stored offset is read again, because _ends_if_new or another member of a new group may have stored one
        # meanwhile.
        stored = self._offsets.of_group(address, queue, self._group)
        if stored is not None:
            return stored
        ends = self._ends[queue.topic]
        start = ends[queue] if queue in ends else self._beginning(address, queue)
        self._store(address, queue, start)
        ends.pop(queue, None)
        return start

    def _ends_if_new(self, topic: str) -> dict[MessageQueue, int]:
        """Returns the queues' ends that are not stored yet if the group is new in the topic. Raises if a broker does
        not answer, because nobody knows then whether the group is new.

        The ends of other members' queues are stored, too. Otherwise those members could not tell a queue that is added
        later from the queues of a new group.
        """
        placed = {queue: self._address(queue) for queue in self._routes.read_queues(topic)}
        stored = {queue: self._offsets.of_group(at, queue, self._group) for queue, at in placed.items()}
        if any(stored.values()):
            return {}
        fresh = [queue for queue, offset in stored.items() if offset is None]
        if len(fresh) < len(placed):
            # An offset of 0 is the group's own, or the answer of a broker up to 4.9 that does not know the group. A
            # queue that retention has cut was not added just now. Any other queue is read from its beginning.
            fresh = [queue for queue in fresh if self._beginning(placed[queue], queue) > 0]
        ends = {queue: self._offsets.maximum(placed[queue], queue) for queue in fresh}
        return {} if self.commit(ends.items(), is_last=True) == len(ends) else ends

    def _beginning(self, address: str, queue: MessageQueue) -> int:
        return max(0, self._offsets.minimum(address, queue))  # -1: no message was ever written

    def commit(self, offsets: Iterable[tuple[MessageQueue, int]], *, is_last: bool) -> int:
        """Stores offsets. With `is_last`, awaits the answers and returns the number of stored offsets. Otherwise
        returns the number of sent offsets. A broker that cannot be reached is logged.

        Offsets are sent together before the first answer is awaited. A broker that hangs then costs one time-out, not
        one for each queue. Only a call with `is_last` waits for connections, and they never delay offsets of other
        brokers.
        """
        placed: list[_Placed] = []
        for queue, offset in offsets:
            try:
                placed.append((self._address(queue), queue, offset))
            except ReconcilerError as error:
                self._not_stored(queue, offset, error)
        if not is_last:  # start_of has stored the first ones
            return self._store_one_way(placed)
        firsts = {(at, queue.topic): (at, queue, offset) for at, queue, offset in reversed(placed)}
        first = [one for place, one in firsts.items() if place not in self._begun]
        return self._store_and_wait(first) + self._store_and_wait([one for one in placed if one not in first])

    def _store_one_way(self, placed: Iterable[_Placed]) -> int:
        stored = 0
        for address, queue, offset in placed:
            try:
                self._offsets.store(address, queue, self._group, offset, is_oneway=True)
                stored += 1
            except ReconcilerError as error:
                self._not_stored(queue, offset, error)
        return stored

    def _store_and_wait(self, placed: Iterable[_Placed]) -> int:
        stored, waiting = 0, []
        for address, queue, offset in placed:
            try:
                answered = self._offsets.begin_store(
                    address, queue, self._group, offset, timeout_seconds=LAST_COMMIT_SECONDS
                )
                waiting.append((address, queue, offset, answered))
            except ReconcilerError as error:
                self._not_stored(queue, offset, error)
        for address, queue, offset, answered in waiting:
            try:
                answered()
                self._begun.add((address, queue.topic))
                stored += 1
            except ReconcilerError as error:
                self._not_stored(queue, offset, error)
        return stored

    def _not_stored(self, queue: MessageQueue, offset: int, error: ReconcilerError) -> None:
        logger.warning("offset_not_stored: offset %d of %s in %s is not stored: %s", offset, self._group, queue, error)

    def _address(self, queue: MessageQueue) -> str:
        address = self._routes.master_of(queue.topic, queue.broker_name)
        if address is None:
            raise BrokerUnavailable(f"{queue.broker_name} has no master in the route of {queue.topic}")
        return address
