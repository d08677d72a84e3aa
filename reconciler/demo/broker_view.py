"""The demo's own requests to brokers: they create its topic, compare a group's offsets, and read every copy."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Self

from reconciler.clock import Clock
from reconciler.demo.job import DemoJob
from reconciler.evidence.watermark import Watermarks
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.consumer.pulling import PullRequest, pull
from reconciler.rocketmq.wire.record import MessageRecord

QUEUES = 4
#: Group of the demo's pulls. The broker does not store its offsets.
VIEW_GROUP = "demo-view"


class BrokerView:
    """Requests to the brokers. One thread uses this object. The end of the block closes the connections."""

    def __init__(self, job: DemoJob, clock: Clock) -> None:
        self._topic = job.topic
        self._instance = ClientInstance(job.name_servers, clock=clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._instance.close()

    def create_business_topic(self) -> None:
        """Creates the topic on every master. Brokers from 5.0 on know types of topics; there it is a transaction
        topic."""
        admin = Admin(self._instance.client)
        for address in self._instance.cluster_addresses():
            admin.create_topic(address, self._topic, queues=QUEUES)

    def is_at_end(self, group: str) -> bool:
        """Returns True if the group's stored offset is the maximum in every queue of the topic and its retry topic."""
        watermarks = Watermarks(self._instance.client, self._instance.routes, self._instance.families)
        positions = watermarks.positions(self._topic, group)
        return positions is not None and all(
            position.max_offset == 0 or (position.consumer_offset or 0) >= position.max_offset for position in positions
        )

    def copies(self) -> Iterator[tuple[str, str, int, int]]:
        """Yields key, broker, queue and offset of every copy that consumers can see."""
        for queue, record in visible_records(self._instance, self._topic, group=VIEW_GROUP):
            yield record.unique_key or "", queue.broker_name, queue.queue_id, record.queue_offset


def visible_records(
    instance: ClientInstance, topic: str, *, group: str
) -> Iterator[tuple[MessageQueue, MessageRecord]]:
    """Yields every record of the topic that consumers can see, queue by queue. `group`: a group that is used only for
    these pulls."""
    client, offsets = instance.client, Offsets(instance.client)
    masters = instance.routes.masters(topic)
    for queue in instance.routes.read_queues(topic):
        address = masters[queue.broker_name]
        offset, end = max(0, offsets.minimum(address, queue)), offsets.maximum(address, queue)
        while offset < end:
            result = pull(client, address, PullRequest(queue=queue, offset=offset, group=group))
            for record in result.records:
                yield queue, record
            if result.next_offset <= offset:
                break
            offset = result.next_offset
