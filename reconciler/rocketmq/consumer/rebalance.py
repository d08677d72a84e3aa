"""The share of a topic's queues that a member of a consumer group gets. The share is computed by the allocation "AVG"
of every stock client.

Each member computes the shares on its own from the same two sorted lists. So each queue must go to the member that
org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely chooses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Queue = TypeVar("Queue")


def allocate_averagely(queues: Sequence[Queue], members: Sequence[str], own_id: str) -> list[Queue]:
    """Returns the slice of `queues` (sorted by topic, broker name, queue id) that belongs to `own_id`.

    `members` are the group's client ids in any order. The slice is empty if the members before `own_id` get all queues.
    The slice is also empty if `own_id` is not in the list, because a member that is not registered yet must hold
    nothing.
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
    """Returns a sort key with the order of java.lang.String.compareTo, which compares UTF-16 code units and not code
    points."""
    return text.encode("utf-16-be", "surrogatepass")
