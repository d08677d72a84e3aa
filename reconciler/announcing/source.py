"""The unique-key topic over the remoting client: adapter of AnnouncementSource."""

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

#: Group of the pulls. It stores no offsets at the broker: they lie beside the keys in Redis.
PULL_GROUP = "RECONCILER_ANNOUNCEMENTS"
#: Longest body that is decompressed, sixteen times the longest announcement: the quarantine shows the real size.
READ_BYTES_MAX = 1024 * 1024


def announcement_of(record: MessageRecord) -> PulledAnnouncement:
    """The record, as the rules need it."""
    unreadable = None
    try:
        body = record.plain_body(maximum_bytes=READ_BYTES_MAX)
    except (MalformedInput, MissingDependency) as error:
        # A compression bomb, a broken body, or a compression whose package is missing must not stop the queue. The
        # outbox announces a good key again.
        body, unreadable = record.body, str(error)
    return PulledAnnouncement(
        record=record_of(record),
        tag=record.tags,
        body=body,
        unreadable=unreadable,
        signature=record.properties.get(SIGNATURE_PROPERTY),
    )


class RemotingAnnouncementSource:
    """Pulls from masters without group membership or heartbeat. Thread-safe as client and routes are.

    The client is best one of its own: a pull that is not answered in time ends a connection, with all that is on it.

    Works from 3.2.6 to 5.x; brokers with rejectPullConsumerEnable=true refuse it.
    """

    def __init__(self, client: RemotingClient, routes: Routes, *, group: str = PULL_GROUP) -> None:
        self._client = client
        self._routes = routes
        self._offsets = Offsets(client)
        self._group = group

    def queues(self, unique_key_topic: str) -> Sequence[AnnouncementQueue]:
        """Readable queues of the route."""
        return [
            AnnouncementQueue(unique_key_topic=unique_key_topic, broker=queue.broker_name, queue_id=queue.queue_id)
            for queue in self._routes.read_queues(unique_key_topic)
        ]

    def pull(self, queue: AnnouncementQueue, *, tag: str, offset: int, max_messages: int) -> PulledBatch:
        """One PULL_MESSAGE that the broker answers at once."""
        request = PullRequest(
            queue=message_queue(queue), offset=offset, group=self._group, maximum=max_messages, subscription=tag
        )
        return batch_of(pull(self._client, master_of(self._routes, queue), request))

    def begin_pull(
        self, queue: AnnouncementQueue, *, offset: int, max_messages: int, hold_seconds: float
    ) -> RemotingPull:
        """One PULL_MESSAGE that the broker may hold."""
        request = PullRequest(
            queue=message_queue(queue),
            offset=offset,
            group=self._group,
            maximum=max_messages,
            suspend_seconds=hold_seconds,
        )
        return RemotingPull(submit_pull(self._client, master_of(self._routes, queue), request), request.queue)

    def look(self, queue: AnnouncementQueue, *, offset: int) -> SeenRecord:
        """One PULL_MESSAGE; in a topic whose records come in batches the record is one of several."""
        request = PullRequest(queue=message_queue(queue), offset=offset, group=self._group, maximum=1)
        return seen_at(offset, pull(self._client, master_of(self._routes, queue), request))

    def earliest(self, queue: AnnouncementQueue) -> int:
        """GET_MIN_OFFSET; a queue that was never written answers -1 on some versions."""
        return max(0, self._offsets.minimum(master_of(self._routes, queue), message_queue(queue)))


def seen_at(offset: int, result: PullResult) -> SeenRecord:
    """What an unfiltered pull shows of one offset."""
    found = (record_of(record) for record in result.records if record.queue_offset == offset)
    return SeenRecord(record=next(found, None), min_offset=result.min_offset, max_offset=result.max_offset)


class RemotingPull:
    """A PULL_MESSAGE that waits for its answer: adapter of PullUnderWay."""

    def __init__(
        self,
        answer: Future[Command],
        queue: MessageQueue,
        read: Callable[[PullResult], PulledBatch] | None = None,
    ) -> None:
        """`read`: what is made of the answer. None: announcements."""
        self._answer = answer
        self._queue = queue
        self._read = read or batch_of

    @property
    def is_done(self) -> bool:
        """Answered, failed or cancelled."""
        return self._answer.done()

    def batch(self) -> PulledBatch:
        """What was pulled; decoded by the thread that asks for it."""
        return self._read(read_pull_answer(self._answer.result(timeout=0.0), self._queue))

    def when_done(self, call: Callable[[], None]) -> None:
        """Calls on the connection's reader thread."""
        self._answer.add_done_callback(lambda _answer: call())

    def cancel(self) -> None:
        """The broker answers nobody, or lets it run out."""
        self._answer.cancel()


def batch_of(result: PullResult, read: Callable[[MessageRecord], PulledAnnouncement] = announcement_of) -> PulledBatch:
    """The answer, with each record as the rules need it."""
    return PulledBatch(
        messages=[read(record) for record in result.records],
        next_offset=result.next_offset,
        min_offset=result.min_offset,
        max_offset=result.max_offset,
        is_offset_illegal=result.status is PullStatus.OFFSET_MOVED,
    )


def master_of(routes: Routes, queue: AnnouncementQueue) -> str:
    """Address of the queue's master. Raises BrokerUnavailable."""
    address = routes.master_of(queue.unique_key_topic, queue.broker)
    if address is None:
        raise BrokerUnavailable(f"broker {queue.broker} of {queue.unique_key_topic} has no master in the route")
    return address


def message_queue(queue: AnnouncementQueue) -> MessageQueue:
    """The queue as the remoting client names it."""
    return MessageQueue(topic=queue.unique_key_topic, broker_name=queue.broker, queue_id=queue.queue_id)
