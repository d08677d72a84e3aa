"""Every copy of the run's messages that consumers can see, and when its broker stored it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from reconciler.rocketmq.client_instance import ClientInstance
from reconciler.rocketmq.offsets import Offsets
from reconciler.rocketmq.pulling import PullRequest, pull

#: Pulls under a group of its own, whose offsets nobody reads.
VIEW_GROUP = "chaos-view"
_PAGE_ROWS = 1000
_WRITE_COPY = sa.text("INSERT INTO copies VALUES (:key, :broker, :queue, :offset, :stored_at_ms)")


def write_copies(engine: sa.Engine, name_servers: str, topic: str) -> None:
    """Pulls the whole topic from every broker into the table `copies`."""
    with ClientInstance(name_servers) as instance, engine.begin() as connection:
        rows = _copies(instance, topic)
        while page := list(itertools.islice(rows, _PAGE_ROWS)):
            connection.execute(_WRITE_COPY, page)


def _copies(instance: ClientInstance, topic: str) -> Iterator[dict[str, Any]]:
    client, offsets = instance.client, Offsets(instance.client)
    masters = instance.routes.masters(topic)
    for queue in instance.routes.read_queues(topic):
        address = masters[queue.broker_name]
        offset, end = max(0, offsets.minimum(address, queue)), offsets.maximum(address, queue)
        while offset < end:
            result = pull(client, address, PullRequest(queue=queue, offset=offset, group=VIEW_GROUP))
            for record in result.records:
                yield {
                    "key": record.unique_key or "",
                    "broker": queue.broker_name,
                    "queue": queue.queue_id,
                    "offset": record.queue_offset,
                    "stored_at_ms": record.store_timestamp_ms,
                }
            if result.next_offset <= offset:
                break
            offset = result.next_offset
