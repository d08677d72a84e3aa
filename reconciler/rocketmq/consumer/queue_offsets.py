"""Where a queue starts, and how its offset reaches the broker (RebalancePushImpl, RemoteBrokerOffsetStore)."""

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

#: How long a last commit waits for all answers together, whatever the number of queues. A new group's first offsets are
#: sent and awaited before the others.
LAST_COMMIT_SECONDS = 3.0

#: Address, queue, offset.
_Placed = tuple[str, MessageQueue, int]


class GroupOffsets:
    """Offsets of one group at its brokers. `start_of` runs on one thread; the other methods are thread-safe."""

    def __init__(self, offsets: Offsets, routes: Routes, *, group: str, settings: PushSettings) -> None:
        self._offsets = offsets
        self._routes = routes
        self._group = group
        self._settings = settings
        #: Topic -> where its queues ended when this group was found to be new in it and what of that is not stored
        #: yet; empty: the group was there before, and a queue without an offset has been added since.
        self._ends: dict[str, dict[MessageQueue, int]] = {}
        #: (address, topic) for which the broker surely has offsets of this group. A group's first offsets must be
        #: stored one by one: if two threads of the broker store the first offsets of a topic and group at once, each
        #: makes a table, and one table is lost although both requests were answered
        #: (ConsumerOffsetManager.commitOffset; RocketMQ #10700, 3.2.6 to 5.4).
        self._begun: set[tuple[str, str]] = set()

    def start_of(self, queue: MessageQueue) -> int:
        """Returns the group's stored offset, or a start by `consume_from`. Raises what asking the broker raises."""
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
        # A retry that the group has not consumed yet would be lost if it were skipped.
        if queue.topic.startswith(RETRY_TOPIC_PREFIX) or self._settings.consume_from is ConsumeFrom.FIRST:
            return self._beginning(address, queue)
        if self._settings.consume_from is ConsumeFrom.TIMESTAMP:
            return self._offsets.at_time(address, queue, self._settings.consume_timestamp_ms)
        return self._start_at_last(address, queue)

    def _start_at_last(self, address: str, queue: MessageQueue) -> int:
        """Returns the start for LAST: the end at the time when the group was new; a queue that is added later is read
        from its beginning.

        The start is stored before the first pull, because after a crash the next member would use a later end. Java
        leaves both to the broker, which answers 0 for a short queue unless it is told otherwise (setZeroIfNotFound).
        """
        if queue.topic not in self._ends:
            self._ends[queue.topic] = self._ends_if_new(queue.topic)
        # Read again, because the look stored it, or another member of a new group has done so meanwhile.
        stored = self._offsets.of_group(address, queue, self._group)
        if stored is not None:
            return stored
        ends = self._ends[queue.topic]
        start = ends[queue] if queue in ends else self._beginning(address, queue)
        self._store(address, queue, start)
        ends.pop(queue, None)
        return start

    def _ends_if_new(self, topic: str) -> dict[MessageQueue, int]:
        """Returns where the queues end if the group has no offset in any of them. Raises if a broker does not answer,
        because then that is unknown.

        It is stored for other members' queues, too, because those members would otherwise take an added queue for a new
        group.
        """
        placed = {queue: self._address(queue) for queue in self._routes.read_queues(topic)}
        stored = {queue: self._offsets.of_group(at, queue, self._group) for queue, at in placed.items()}
        if any(stored.values()):
            return {}
        fresh = [queue for queue, offset in stored.items() if offset is None]
        if len(fresh) < len(placed):
            # A 0 is the group's own, or that of a broker up to 4.9 which never heard of it. A queue that retention has
            # cut was not added just now; any other is read from its beginning.
            fresh = [queue for queue in fresh if self._beginning(placed[queue], queue) > 0]
        ends = {queue: self._offsets.maximum(placed[queue], queue) for queue in fresh}
        return {} if self.commit(ends.items(), is_last=True) == len(ends) else ends

    def _beginning(self, address: str, queue: MessageQueue) -> int:
        return max(0, self._offsets.minimum(address, queue))  # -1: no message was ever written

    def commit(self, offsets: Iterable[tuple[MessageQueue, int]], *, is_last: bool) -> int:
        """Stores offsets; `is_last` awaits the answers. A broker that is away is logged; returns how many offsets were
        sent.

        All are sent before the first answer is awaited, because a broker that hangs must not cost a time-out for each
        of its queues. Connecting to a broker is waited for only with `is_last`, and never delays other offsets.
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
