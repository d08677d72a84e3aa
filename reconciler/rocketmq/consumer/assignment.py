"""The queues that this member holds, and the rebalance that changes them (RebalanceImpl)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from reconciler.errors import ReconcilerError
from reconciler.rocketmq.client.routes import MessageQueue, Routes
from reconciler.rocketmq.consumer.group_members import BrokerQueueLocks
from reconciler.rocketmq.consumer.process_queue import CacheLimits, ProcessQueue
from reconciler.rocketmq.consumer.queue_offsets import GroupOffsets
from reconciler.rocketmq.consumer.rebalance import allocate_averagely

logger = logging.getLogger(__name__)


class Assignment:
    """The queues of one member. `rebalance` runs on one thread, and other threads only read. A lock protects the
    queues."""

    def __init__(
        self,
        routes: Routes,
        offsets: GroupOffsets,
        *,
        client_id: str,
        limits: CacheLimits,
        members: Callable[[str], list[str]],
        locks: BrokerQueueLocks | None,
        on_gained: Callable[[ProcessQueue], None],
        on_lost: Callable[[ProcessQueue], None],
        is_busy: Callable[[MessageQueue], bool],
    ) -> None:
        self._routes = routes
        self._offsets = offsets
        self._client_id = client_id
        self._limits = limits
        self._members = members
        self._locks = locks
        self._on_gained = on_gained
        self._on_lost = on_lost
        self._is_busy = is_busy
        self._lock = threading.Lock()
        self._held: dict[MessageQueue, ProcessQueue] = {}
        #: Queues that are locked but not held yet, because their start could not be read. Only the thread that
        #: rebalances uses this set.
        self._only_locked: set[MessageQueue] = set()

    def queues(self) -> list[ProcessQueue]:
        """Returns the queues that are held now."""
        with self._lock:
            return list(self._held.values())

    def find(self, queue: MessageQueue) -> ProcessQueue | None:
        """Returns the queue if it is held."""
        with self._lock:
            return self._held.get(queue)

    def rebalance(self, topics: Iterable[str]) -> bool:
        """Gives up and takes over queues. Returns False if a part must be tried again soon.

        A topic with an unknown route or unknown members keeps its queues.
        """
        is_complete = True
        for topic in topics:
            try:
                queues = self._routes.read_queues(topic)
                members = self._members(topic)
            except ReconcilerError as error:
                logger.warning("assignment_failed: queues of %s stay as they are: %s", topic, error)
                is_complete = False
                continue
            mine = allocate_averagely(queues, members, self._client_id)
            is_complete &= self._client_id in members  # otherwise the broker has not had our heartbeat yet
            self._give_up(topic, set(mine))
            is_complete &= self._take_over(mine)
        return is_complete

    def commit(self, *, is_last: bool = False) -> int:
        """Stores the offset of every held queue, even of an empty queue. Returns the number of stored offsets."""
        positions = [(held.queue, held.committable()) for held in self.queues()]
        known = [(queue, offset) for queue, offset in positions if offset is not None]
        return self._offsets.commit(known, is_last=is_last)

    def commit_one(self, held: ProcessQueue) -> None:
        """Stores the offset of one queue."""
        offset = held.committable()
        if offset is not None:
            self._offsets.commit([(held.queue, offset)], is_last=False)

    def renew_locks(self) -> None:
        """Renews the brokers' locks of the held queues."""
        if self._locks is not None:
            self._locks.lock([held.queue for held in self.queues()])

    def end(self) -> None:
        """Commits the offsets and gives up all queues. Later results of listeners do not count."""
        with self._lock:
            held, self._held = list(self._held.values()), {}
        self._offsets.commit([(queue.queue, queue.revoke()) for queue in held], is_last=True)
        if self._locks is not None:
            self._locks.unlock_all([*(queue.queue for queue in held), *self._only_locked])

    def _give_up(self, topic: str, mine: set[MessageQueue]) -> None:
        with self._lock:
            lost = [held for queue, held in self._held.items() if queue.topic == topic and queue not in mine]
            for held in lost:
                del self._held[held.queue]
        if lost:
            logger.info("queues_lost: queues %s are lost", ", ".join(str(held.queue) for held in lost))
            # The offsets of lost queues are committed at once. A commit after the new owner's first commit would set
            # the offset back.
            self._offsets.commit([(held.queue, held.revoke()) for held in lost], is_last=True)
        for held in lost:
            self._on_lost(held)
        unused = {queue for queue in self._only_locked if queue.topic == topic and queue not in mine}
        if self._locks is not None and unused:
            self._only_locked -= unused
            self._locks.unlock_all(unused)

    def _take_over(self, mine: list[MessageQueue]) -> bool:
        wanted = [queue for queue in mine if self.find(queue) is None]
        free = [queue for queue in wanted if not self._is_busy(queue)]
        granted = set(free) if self._locks is None or not free else self._locks.lock(free)
        locked = [queue for queue in free if queue in granted]
        is_complete = len(locked) == len(wanted)
        for queue in locked:
            try:
                held = ProcessQueue(queue, start_offset=self._offsets.start_of(queue), limits=self._limits)
            except ReconcilerError as error:
                logger.warning("take_over_waits: queue %s is not taken over yet: %s", queue, error)
                is_complete = False
                self._only_locked.add(queue)
                continue
            self._only_locked.discard(queue)
            with self._lock:
                self._held[queue] = held
            logger.info("queue_taken_over: queue %s is taken over at %d", queue, held.state().next_offset)
            self._on_gained(held)
        return is_complete
