"""Orderly consumption. One batch of a queue runs at a time, in queue order, while this member holds the broker's lock
of the queue.

A failed batch is tried again here after a pause. The later messages of the queue wait for this batch
(ConsumeMessageOrderlyService).
"""

from __future__ import annotations

import dataclasses
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from reconciler.clock import Clock
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.client.step_thread import StepThread
from reconciler.rocketmq.client.worker_pool import WorkerPool
from reconciler.rocketmq.consumer.concurrent import SendBack
from reconciler.rocketmq.consumer.listener import MessageListener, call_listener
from reconciler.rocketmq.consumer.process_queue import ProcessQueue
from reconciler.rocketmq.wire.received_message import ReceivedMessage

#: After this time a queue gives its thread to another queue
#: (ConsumeMessageOrderlyService.MAX_TIME_CONSUME_CONTINUOUSLY).
TURN_SECONDS = 60.0


class QueueLocks(Protocol):
    """The locks that brokers have granted to this member."""

    def holds(self, queue: MessageQueue) -> bool:
        """Returns True if the lock was confirmed recently enough."""
        ...

    def unlock(self, queue: MessageQueue) -> None:
        """Gives up the lock, so that the next owner need not wait until it expires."""
        ...


class _Lane:
    """The waiting messages of one queue. `is_served` tells whether a thread serves them. Threads hold `lock` while they
    use a lane."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.waiting: deque[tuple[int, ReceivedMessage]] = deque()
        self.is_served = False
        self.is_released = False


class OrderlyConsumption:
    """Runs a listener on a pool, one batch per queue at a time. Threads share this object. The lane of a queue protects
    the queue's state."""

    def __init__(
        self,
        listener: MessageListener,
        *,
        pool: WorkerPool,
        steps: StepThread,
        locks: QueueLocks,
        send_back: SendBack,
        resume: Callable[[ProcessQueue], None],
        clock: Clock,
        batch_size: int,
        suspend_seconds: float,
        max_reconsume_times: int,
    ) -> None:
        self._listener = listener
        self._pool = pool
        self._steps = steps
        self._locks = locks
        self._send_back = send_back
        self._resume = resume
        self._clock = clock
        self._batch_size = batch_size
        self._suspend_seconds = suspend_seconds
        self._max_reconsume_times = max_reconsume_times
        self._lanes: dict[ProcessQueue, _Lane] = {}
        #: Queues that were released while a batch ran, and are not unlocked yet.
        self._leaving: set[MessageQueue] = set()
        self._lock = threading.Lock()

    def take(self, queue: ProcessQueue, messages: Sequence[ReceivedMessage], *, era: int) -> None:
        """Adds the messages behind the waiting messages. Makes sure that a thread serves the queue."""
        if queue.is_revoked:
            return
        lane = self._lane(queue)
        with lane.lock:
            lane.waiting.extend((era, message) for message in messages)
            if lane.is_served or not lane.waiting:
                return
            lane.is_served = True
        self._submit(queue, lane)

    def release(self, queue: ProcessQueue) -> None:
        """Unlocks a queue that is lost, or that a stopping consumer gives up. If a batch runs, the queue is unlocked
        after the batch."""
        lane = self._lane(queue)
        with self._lock:
            self._lanes.pop(queue, None)
        with lane.lock:
            lane.is_released = True
            lane.waiting.clear()
            is_served = lane.is_served
            if is_served:
                with self._lock:
                    self._leaving.add(queue.queue)
        if not is_served:
            self._locks.unlock(queue.queue)

    def is_busy(self, queue: MessageQueue) -> bool:
        """Returns True until the current batch of a released queue has ended. A second batch beside it would be out of
        order, and would lose its lock."""
        with self._lock:
            return queue in self._leaving

    def _lane(self, queue: ProcessQueue) -> _Lane:
        with self._lock:
            return self._lanes.setdefault(queue, _Lane())

    def _submit(self, queue: ProcessQueue, lane: _Lane) -> None:
        self._pool.submit(lambda: self._serve(queue, lane))

    def _serve(self, queue: ProcessQueue, lane: _Lane) -> None:
        """Consumes batch after batch. Stops if the queue is empty or lost, if a batch fails, or if the turn of the
        queue is over."""
        turn_ends = self._clock.monotonic_seconds() + TURN_SECONDS
        while True:
            if not (queue.is_revoked or lane.is_released or self._locks.holds(queue.queue)):
                self._pause(queue, lane)
                return
            era, batch = self._next_batch(queue, lane)
            if not batch:
                return
            if not self._consume(queue, lane, era, batch):
                self._pause(queue, lane)
                return
            if self._clock.monotonic_seconds() >= turn_ends:
                self._submit(queue, lane)
                return

    def _next_batch(self, queue: ProcessQueue, lane: _Lane) -> tuple[int, list[ReceivedMessage]]:
        """Returns the era of the queue and the next messages. An empty batch ends the service of the lane."""
        with lane.lock:
            era = queue.era
            while lane.waiting and lane.waiting[0][0] != era:
                lane.waiting.popleft()
            batch: list[ReceivedMessage] = []
            while lane.waiting and len(batch) < self._batch_size and lane.waiting[0][0] == era:
                if batch and batch[0].topic != lane.waiting[0][1].topic:
                    break
                batch.append(lane.waiting.popleft()[1])
            if batch and not queue.is_revoked:
                return era, batch
            lane.is_served = False
            is_released = lane.is_released
        if is_released:
            self._locks.unlock(queue.queue)
            with self._lock:
                self._leaving.discard(queue.queue)
        return era, []

    def _consume(self, queue: ProcessQueue, lane: _Lane, era: int, batch: list[ReceivedMessage]) -> bool:
        """Runs the listener. Returns False if failed messages must come again after a pause."""
        done, failed, behind = call_listener(self._listener, batch).split(batch)
        given_up = self._given_up(queue, era, failed)
        finished = [*done, *given_up]
        if finished and queue.done(finished, era=era):
            self._resume(queue)
        settled = {message.queue_offset for message in given_up}
        again = [
            dataclasses.replace(message, reconsume_times=message.reconsume_times + 1)
            for message in failed
            if message.queue_offset not in settled
        ]
        with lane.lock:
            if not lane.is_released:
                lane.waiting.extendleft((era, message) for message in reversed([*again, *behind]))
        return not again

    def _given_up(self, queue: ProcessQueue, era: int, batch: Sequence[ReceivedMessage]) -> list[ReceivedMessage]:
        """Returns the messages that failed too often and that the broker has taken into the dead letters."""
        if self._max_reconsume_times < 0 or queue.is_void(era):
            return []
        return [
            message
            for message in batch
            if message.reconsume_times >= self._max_reconsume_times and self._send_back(message)
        ]

    def _pause(self, queue: ProcessQueue, lane: _Lane) -> None:
        self._steps.later(self._suspend_seconds, lambda: self._submit(queue, lane))
