"""The pull loop of a push consumer. One thread sends the long polls of all queues (DefaultMQPushConsumerImpl)."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol

from reconciler.errors import BrokerRefused, BrokerUnavailable, MissingDependency, ProtocolViolation, ReconcilerError
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.routes import MessageQueue, Routes
from reconciler.rocketmq.client.step_thread import StepThread
from reconciler.rocketmq.client.topic_subscription import TopicSubscription
from reconciler.rocketmq.consumer.process_queue import ProcessQueue
from reconciler.rocketmq.consumer.pulling import PullRequest, PullResult, PullStatus, read_pull_answer, submit_pull
from reconciler.rocketmq.consumer.settings import PushSettings
from reconciler.rocketmq.wire.codes import ResponseCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.received_message import ReceivedMessage, received
from reconciler.rocketmq.wire.record import MessageRecord

logger = logging.getLogger(__name__)

#: Mean pause after a failed pull. The length is random.
FAILURE_PAUSE_SECONDS = 1.0
#: Pause after an answer without progress, because a broker that does not hold pulls must not be asked without end.
IDLE_PAUSE_SECONDS = 0.01
_UNKNOWN_HERE = frozenset({ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST})


class Consumption(Protocol):
    """The consumer of pulled messages, concurrent or orderly."""

    def take(self, queue: ProcessQueue, messages: Sequence[ReceivedMessage], *, era: int) -> None:
        """Takes the messages and consumes them later. Each message is then marked as done in the queue."""
        ...

    def release(self, queue: ProcessQueue) -> None:
        """Gives up a queue that this member no longer holds."""
        ...

    def is_busy(self, queue: MessageQueue) -> bool:
        """Returns True if a batch of the released queue still runs. The queue must not be taken over again yet."""
        ...


class PullLoop:
    """Pulls every assigned queue until the queue is revoked. Only the step thread uses this object, except for
    `pull_soon`."""

    def __init__(
        self,
        client: RemotingClient,
        routes: Routes,
        *,
        group: str,
        settings: PushSettings,
        subscriptions: Mapping[str, TopicSubscription],
        steps: StepThread,
        consumption: Consumption,
        on_doubt: Callable[[str], None],
        on_offset_moved: Callable[[ProcessQueue], None],
        give_back: Callable[[MessageRecord], bool],
    ) -> None:
        self._client = client
        self._routes = routes
        self._group = group
        self._settings = settings
        self._subscriptions = subscriptions
        self._steps = steps
        self._consumption = consumption
        self._on_doubt = on_doubt
        self._on_offset_moved = on_offset_moved
        self._give_back = give_back

    def pull_soon(self, queue: ProcessQueue) -> None:
        """Pulls the queue unless a pull is under way. Any thread may call this method."""
        self._steps.soon(lambda: self._pull(queue))

    def _pull(self, queue: ProcessQueue) -> None:
        permit = queue.begin_pull()
        if permit is None:
            return
        offset, era = permit
        request = PullRequest(
            queue=queue.queue,
            offset=offset,
            group=self._group,
            maximum=self._settings.pull_batch_size,
            subscription=None,  # the heartbeat's subscription: a broker that has lost it says so
            subscription_version=self._subscriptions[queue.queue.topic].version,
            suspend_seconds=self._settings.suspend_seconds,
        )
        address = ""
        try:
            address = self._address(queue.queue)
            future = submit_pull(self._client, address, request)
        except ReconcilerError as error:
            self._failed(queue, era, address, error)
            return
        future.add_done_callback(
            lambda answered: self._steps.soon(lambda: self._answered(queue, permit, address, answered))
        )

    def _answered(self, queue: ProcessQueue, permit: tuple[int, int], address: str, future: Future[Command]) -> None:
        offset, era = permit
        try:
            result = read_pull_answer(future.result(), queue.queue)
            if not queue.is_void(era):
                self._take(queue, era, result)
        except ReconcilerError as error:
            self._failed(queue, era, address, error)
            return
        # For example, memory may be missing. A queue that is no longer pulled would look like a queue without messages.
        except Exception as error:
            logger.exception("pull_failed: pull of %s failed", queue.queue)
            committable = queue.committable()
            if committable is not None and not queue.is_void(era):
                queue.seek(committable)  # accepted messages may not have been passed on, so they come again
            self._failed(queue, era, address, BrokerUnavailable(f"{type(error).__name__}: {error}"))
            return
        pause = self._pause_after(result, has_progressed=offset < result.next_offset)
        if pause:
            self._steps.later(pause, lambda: self._pull(queue))
        else:
            self._pull(queue)

    def _take(self, queue: ProcessQueue, era: int, result: PullResult) -> None:
        if result.status is PullStatus.OFFSET_MOVED:
            self._moved(queue, result)
            return
        fresh = queue.accept(self._wanted(queue, result), result.next_offset, era=era)
        if fresh:
            self._consumption.take(queue, fresh, era=era)

    def _pause_after(self, result: PullResult, *, has_progressed: bool) -> float:
        if result.status is PullStatus.FOUND:
            return 0.0 if result.next_offset < result.max_offset else self._settings.pull_interval_seconds
        return 0.0 if has_progressed else IDLE_PAUSE_SECONDS

    def _wanted(self, queue: ProcessQueue, result: PullResult) -> list[ReceivedMessage]:
        """Returns messages whose tags are subscribed, because brokers compare only hashes of tags. After an error of
        this method, the pull is tried again."""
        subscription = self._subscriptions[queue.queue.topic]
        wanted: list[ReceivedMessage] = []
        for record in result.records:
            if subscription.wants(record.tags):
                try:
                    wanted.append(received(record))
                except (ProtocolViolation, MissingDependency) as error:
                    self._unreadable(record, error)
        return wanted

    def _unreadable(self, record: MessageRecord, error: ReconcilerError) -> None:
        """Sends back a record that this consumer cannot read. The record must neither block its queue nor be lost.

        The record becomes a dead letter in the end, unless a member with the package for its compression gets it
        before.
        """
        key = record.unique_key or record.offset_message_id
        if not isinstance(error, MissingDependency):  # a missing package is logged once, not for each message
            logger.error(
                "message_unreadable: message %s in %s cannot be read and goes back: %s", key, record.topic, error
            )
        if not self._give_back(record):
            raise BrokerUnavailable(f"message {key} cannot be read, and {record.broker_name} does not take it back")

    def _moved(self, queue: ProcessQueue, result: PullResult) -> None:
        logger.warning(
            "offset_illegal: offset of %s in %s is outside %d..%d, going on at %d",
            self._group, queue.queue, result.min_offset, result.max_offset, result.next_offset,
        )  # fmt: skip
        queue.seek(result.next_offset)
        self._on_offset_moved(queue)

    def _failed(self, queue: ProcessQueue, era: int, address: str, error: ReconcilerError) -> None:
        queue.abandon_pull(era=era)
        if queue.is_revoked:
            return
        if isinstance(error, BrokerRefused) and error.code in _UNKNOWN_HERE:
            logger.info("group_forgotten: %s does not know %s any more", queue.queue.broker_name, self._group)
        else:
            logger.warning("pull_failed: pull of %s failed: %s", queue.queue, error)
        if address:
            self._on_doubt(address)  # also after a broken connection, because a broker then forgets its clients
        pause = FAILURE_PAUSE_SECONDS * random.uniform(0.5, 1.5)
        self._steps.later(pause, lambda: self._pull(queue))

    def _address(self, queue: MessageQueue) -> str:
        broker = self._routes.route(queue.topic).brokers.get(queue.broker_name)
        if broker is None or not broker.addresses:
            raise BrokerUnavailable(f"{queue.broker_name} is not in the route of {queue.topic}")
        # The address of the master, or of a slave if the broker has no master. Reading works without a master.
        return broker.addresses[min(broker.addresses)]
