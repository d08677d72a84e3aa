"""Every copy of the run's messages that consumers can see, and when its broker stored it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import sqlalchemy as sa

from reconciler.demo.broker_view import visible_records
from reconciler.rocketmq.client.client_instance import ClientInstance

#: Pulls under a group of its own, whose offsets nobody reads.
VIEW_GROUP = "chaos-view"
_PAGE_ROWS = 1000
_WRITE_COPY = sa.text("INSERT INTO copies VALUES (:key, :broker, :queue, :offset, :stored_at_ms)")


def write_copies(engine: sa.Engine, opened: AbstractContextManager[ClientInstance], topic: str) -> None:
    """Pulls the whole topic from every broker into the table `copies`."""
    with opened as instance, engine.begin() as connection:
        rows = _copies(instance, topic)
        while page := list(itertools.islice(rows, _PAGE_ROWS)):
            connection.execute(_WRITE_COPY, page)


def _copies(instance: ClientInstance, topic: str) -> Iterator[dict[str, Any]]:
    for queue, record in visible_records(instance, topic, group=VIEW_GROUP):
        yield {
            "key": record.unique_key or "",
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "offset": record.queue_offset,
            "stored_at_ms": record.store_timestamp_ms,
        }
