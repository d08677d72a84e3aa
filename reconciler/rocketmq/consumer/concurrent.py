"""Concurrent consumption. Batches run side by side in any order. Failed messages are sent back to the broker."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Protocol

from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.client.step_thread import StepThread
from reconciler.rocketmq.client.worker_pool import WorkerPool
from reconciler.rocketmq.consumer.listener import MessageListener, call_listener
from reconciler.rocketmq.consumer.process_queue import ProcessQueue
from reconciler.rocketmq.wire.received_message import ReceivedMessage


class SendBack(Protocol):
    """A function that sends a failed message back. The message comes again later or becomes a dead letter."""

    def __call__(self, message: ReceivedMessage) -> bool:
        """Returns True if a broker has stored the message for later, so that this delivery is done. Returns False if no
        broker accepted the message."""
        ...


class ConcurrentConsumption:
    """Runs a listener on a pool. The pulling thread and the pool's threads share this object, which has no state."""

    def __init__(
        self,
        listener: MessageListener,
        *,
        pool: WorkerPool,
        steps: StepThread,
        send_back: SendBack,
        resume: Callable[[ProcessQueue], None],
        batch_size: int,
        local_retry_seconds: float,
    ) -> None:
        self._listener = listener
        self._pool = pool
        self._steps = steps
        self._send_back = send_back
        self._resume = resume
        self._batch_size = batch_size
        self._local_retry_seconds = local_retry_seconds

    def take(self, queue: ProcessQueue, messages: Sequence[ReceivedMessage], *, era: int) -> None:
        """Passes the messages to the pool in batches. The queue's flow control limits the number of waiting
        messages."""
        for _, group in itertools.groupby(messages, key=lambda message: message.topic):
            of_topic = list(group)
            for start in range(0, len(of_topic), self._batch_size):
                self._submit(queue, of_topic[start : start + self._batch_size], era)

    def release(self, queue: ProcessQueue) -> None:
        """Does nothing when a queue is lost or the consumer stops, because results of a revoked queue do not count."""

    def is_busy(self, _queue: MessageQueue) -> bool:
        """Returns False, because batches of a queue may run side by side."""
        return False

    def _submit(self, queue: ProcessQueue, messages: Sequence[ReceivedMessage], era: int) -> None:
        self._pool.submit(lambda: self._consume(queue, messages, era))

    def _consume(self, queue: ProcessQueue, messages: Sequence[ReceivedMessage], era: int) -> None:
        if queue.is_void(era):
            return
        done, failed, behind = call_listener(self._listener, messages).split(messages)
        if (failed or behind) and queue.is_void(era):
            failed = behind = ()  # the new owner gets them anyway, and a copy that is sent back would be one more
        if behind:  # sent back, each of them would use up a retry for another message's failure
            self._submit(queue, behind, era)
        sent_back = [message for message in failed if self._send_back(message)]
        settled = {message.queue_offset for message in sent_back}
        self._retry_here([message for message in failed if message.queue_offset not in settled], queue, era)
        finished = [*done, *sent_back]
        if finished and queue.done(finished, era=era):
            self._resume(queue)

    def _retry_here(self, messages: Sequence[ReceivedMessage], queue: ProcessQueue, era: int) -> None:
        """Delivers messages again after a pause, because no broker accepted them. The messages stay uncommitted until
        then."""
        if not messages:
            return
        again = [dataclasses.replace(message, reconsume_times=message.reconsume_times + 1) for message in messages]
        self._steps.later(self._local_retry_seconds, lambda: self._submit(queue, again, era))
