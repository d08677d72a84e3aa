"""Which queues of a topic a member of a consumer group gets: the allocation "AVG" of every stock client.

All members compute it on their own from the same two sorted lists, so it has to agree with
org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely to the queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Queue = TypeVar("Queue")


def allocate_averagely(queues: Sequence[Queue], members: Sequence[str], own_id: str) -> list[Queue]:
    """Returns the slice of `queues` (sorted by topic, broker name, queue id) that belongs to `own_id`.

    `members` are the group's client ids in any order. Empty if there are fewer queues than members before it,
    or if the member is not in the list (not registered yet): then it must hold nothing.
    """
    ordered = sorted(set(members), key=java_order)
    if own_id not in ordered or not queues:
        return []
    index = ordered.index(own_id)
    share, rest = divmod(len(queues), len(ordered))
    size = share + 1 if index < rest else share
    start = index * size + (0 if index < rest else rest)
    return list(queues[start : start + size])


def java_order(text: str) -> bytes:
    """Returns a sort key with the order of java.lang.String.compareTo: UTF-16 code units, not code points."""
    return text.encode("utf-16-be", "surrogatepass")
