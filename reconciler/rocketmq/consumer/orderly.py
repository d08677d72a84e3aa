"""Orderly consumption: one batch of a queue at a time, in queue order, under the broker's lock of the queue.

A batch that fails is tried again here after a pause and holds its queue back (ConsumeMessageOrderlyService).
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
    """The broker's locks on queues, as far as this member knows them."""

    def holds(self, queue: MessageQueue) -> bool:
        """Returns True if the lock was confirmed recently enough."""
        ...

    def unlock(self, queue: MessageQueue) -> None:
        """Gives the lock up, so that the next owner need not wait for it to expire."""
        ...


class _Lane:
    """Waiting messages of one queue, and whether a thread serves them. Used under its lock only."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.waiting: deque[tuple[int, ReceivedMessage]] = deque()
        self.is_served = False
        self.is_released = False


class OrderlyConsumption:
    """Runs a listener on a pool, one batch per queue at a time. Threads share it; a queue's lane protects its state."""

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
        """Adds the messages after those that wait, and makes sure that a thread serves the queue."""
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
        """Unlocks a queue that is lost, or when the consumer stops: now, or after the current batch."""
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
        """Returns True until the current batch has ended: another one beside it would be out of order, and would lose
        its lock."""
        with self._lock:
            return queue in self._leaving

    def _lane(self, queue: ProcessQueue) -> _Lane:
        with self._lock:
            return self._lanes.setdefault(queue, _Lane())

    def _submit(self, queue: ProcessQueue, lane: _Lane) -> None:
        self._pool.submit(lambda: self._serve(queue, lane))

    def _serve(self, queue: ProcessQueue, lane: _Lane) -> None:
        """Consumes batch after batch until the queue is empty, fails, is lost, or its turn is over."""
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
        """Returns the next messages; an empty batch ends the service of the lane."""
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
        """Runs the listener; False: failed messages (unless given up) come again after a pause."""
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
        """Returns messages that failed too often and that the broker has accepted (into the dead letters)."""
        if self._max_reconsume_times < 0 or queue.is_void(era):
            return []
        return [
            message
            for message in batch
            if message.reconsume_times >= self._max_reconsume_times and self._send_back(message)
        ]

    def _pause(self, queue: ProcessQueue, lane: _Lane) -> None:
        self._steps.later(self._suspend_seconds, lambda: self._submit(queue, lane))
