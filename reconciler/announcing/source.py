"""Reads the unique-key topic over the remoting client, as the adapter of AnnouncementSource."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future

from reconciler.announcing.port import PulledBatch, SeenRecord
from reconciler.announcing.rules import PulledAnnouncement
from reconciler.contract.announcement import SIGNATURE_PROPERTY
from reconciler.contract.queue_proof import record_of
from reconciler.errors import BrokerUnavailable, MalformedInput, MissingDependency
from reconciler.policy.ports.announcing import AnnouncementQueue
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.routes import MessageQueue, Routes
from reconciler.rocketmq.consumer.pulling import (
    PullRequest,
    PullResult,
    PullStatus,
    pull,
    read_pull_answer,
    submit_pull,
)
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.record import MessageRecord

#: The consumer group of the pulls. This group stores no offsets at the broker, because the offsets are in Redis beside
#: the keys.
PULL_GROUP = "RECONCILER_ANNOUNCEMENTS"
#: Length of the longest decompressed body. The limit is sixteen times the longest announcement, so that the quarantine
#: shows the real size.
READ_BYTES_MAX = 1024 * 1024


def announcement_of(record: MessageRecord) -> PulledAnnouncement:
    """Returns the parts of the record that the rules need."""
    unreadable = None
    try:
        body = record.plain_body(maximum_bytes=READ_BYTES_MAX)
    except (MalformedInput, MissingDependency) as error:
        # A compression bomb, a broken body, or a compression whose package is missing must not stop the queue. If the
        # key is valid, it is announced again from the outbox.
        body, unreadable = record.body, str(error)
    return PulledAnnouncement(
        record=record_of(record),
        tag=record.tags,
        body=body,
        unreadable=unreadable,
        signature=record.properties.get(SIGNATURE_PROPERTY),
    )


class RemotingAnnouncementSource:
    """Pulls from masters without membership in a group and without heartbeats. As thread-safe as its client and routes.

    The source should have its own client, because a pull without an answer in time ends its connection and all other
    requests on this connection.

    Works with RocketMQ 3.2.6 to 5.x. Brokers with rejectPullConsumerEnable=true refuse the pulls.
    """

    def __init__(self, client: RemotingClient, routes: Routes) -> None:
        self._client = client
        self._routes = routes
        self._offsets = Offsets(client)

    def queues(self, unique_key_topic: str) -> Sequence[AnnouncementQueue]:
        """Returns the readable queues of the route."""
        return [
            AnnouncementQueue(unique_key_topic=unique_key_topic, broker=queue.broker_name, queue_id=queue.queue_id)
            for queue in self._routes.read_queues(unique_key_topic)
        ]

    def pull(self, queue: AnnouncementQueue, *, tag: str, offset: int, max_messages: int) -> PulledBatch:
        """Sends one PULL_MESSAGE, which the broker answers at once."""
        request = PullRequest(
            queue=message_queue(queue), offset=offset, group=PULL_GROUP, maximum=max_messages, subscription=tag
        )
        return batch_of(pull(self._client, master_of(self._routes, queue), request))

    def begin_pull(
        self, queue: AnnouncementQueue, *, offset: int, max_messages: int, hold_seconds: float
    ) -> RemotingPull:
        """Sends one PULL_MESSAGE, which the broker may hold."""
        request = PullRequest(
            queue=message_queue(queue),
            offset=offset,
            group=PULL_GROUP,
            maximum=max_messages,
            suspend_seconds=hold_seconds,
        )
        return RemotingPull(submit_pull(self._client, master_of(self._routes, queue), request), request.queue)

    def look(self, queue: AnnouncementQueue, *, offset: int) -> SeenRecord:
        """Sends one PULL_MESSAGE. In a topic with batch records, the answer has several records, and the record is one
        of them."""
        request = PullRequest(queue=message_queue(queue), offset=offset, group=PULL_GROUP, maximum=1)
        return seen_at(offset, pull(self._client, master_of(self._routes, queue), request))

    def earliest(self, queue: AnnouncementQueue) -> int:
        """Sends GET_MIN_OFFSET. Some versions answer -1 for a queue that never had a message."""
        return max(0, self._offsets.minimum(master_of(self._routes, queue), message_queue(queue)))


def seen_at(offset: int, result: PullResult) -> SeenRecord:
    """Returns the record at one offset, as an unfiltered pull shows it."""
    found = (record_of(record) for record in result.records if record.queue_offset == offset)
    return SeenRecord(record=next(found, None), min_offset=result.min_offset, max_offset=result.max_offset)


class RemotingPull:
    """A PULL_MESSAGE that waits for its answer, as the adapter of PullUnderWay."""

    def __init__(
        self,
        answer: Future[Command],
        queue: MessageQueue,
        read: Callable[[PullResult], PulledBatch] | None = None,
    ) -> None:
        """`read` makes a value of each record. With None, the values are announcements."""
        self._answer = answer
        self._queue = queue
        self._read = read or batch_of

    @property
    def is_done(self) -> bool:
        """True if the pull was answered, has failed or was cancelled."""
        return self._answer.done()

    def batch(self) -> PulledBatch:
        """Returns what was pulled. The calling thread decodes the answer."""
        return self._read(read_pull_answer(self._answer.result(timeout=0.0), self._queue))

    def when_done(self, call: Callable[[], None]) -> None:
        """Calls the function on the connection's reader thread."""
        self._answer.add_done_callback(lambda _answer: call())

    def cancel(self) -> None:
        """Drops the pull. If the broker still answers, the answer is ignored."""
        self._answer.cancel()


def batch_of(result: PullResult, read: Callable[[MessageRecord], PulledAnnouncement] = announcement_of) -> PulledBatch:
    """Returns the answer with the parts of each record that the rules need."""
    return PulledBatch(
        messages=[read(record) for record in result.records],
        next_offset=result.next_offset,
        min_offset=result.min_offset,
        max_offset=result.max_offset,
        is_offset_illegal=result.status is PullStatus.OFFSET_MOVED,
    )


def master_of(routes: Routes, queue: AnnouncementQueue) -> str:
    """Returns the address of the queue's master. Raises BrokerUnavailable."""
    address = routes.master_of(queue.unique_key_topic, queue.broker)
    if address is None:
        raise BrokerUnavailable(f"broker {queue.broker} of {queue.unique_key_topic} has no master in the route")
    return address


def message_queue(queue: AnnouncementQueue) -> MessageQueue:
    """Returns the queue as the remoting client names it."""
    return MessageQueue(topic=queue.unique_key_topic, broker_name=queue.broker, queue_id=queue.queue_id)
