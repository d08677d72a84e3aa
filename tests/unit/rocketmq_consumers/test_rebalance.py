"""Members of a group that compute different allocations consume a queue twice, or never."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.errors import BrokerUnavailable
from reconciler.rocketmq.client.routes import MessageQueue, Routes
from reconciler.rocketmq.consumer.assignment import Assignment
from reconciler.rocketmq.consumer.process_queue import CacheLimits
from reconciler.rocketmq.consumer.queue_offsets import GroupOffsets
from reconciler.rocketmq.consumer.rebalance import allocate_averagely, java_order


def by_the_formula(n: int, m: int, i: int) -> list[int]:
    """AllocateMessageQueueAveragely, as it is written there."""
    r = n % m
    size = 1 if n <= m else (n // m + 1 if r > 0 and i < r else n // m)
    start = i * size if r > 0 and i < r else i * size + r
    return [(start + k) % n for k in range(min(size, n - start))]


@pytest.mark.parametrize("m", range(1, 20))
def test_the_allocation_is_that_of_the_java_client(m: int) -> None:
    members = [f"10.0.0.1@{index:03}" for index in range(m)]
    for n in range(1, 70):
        for index, member in enumerate(members):
            assert allocate_averagely(range(n), members, member) == by_the_formula(n, m, index)


@given(
    queues=st.integers(0, 200),
    members=st.sets(st.text(min_size=1, max_size=8), min_size=1, max_size=30),
)
def test_every_queue_has_exactly_one_owner(queues: int, members: set[str]) -> None:
    owned = [queue for member in members for queue in allocate_averagely(range(queues), list(members), member)]
    assert sorted(owned) == list(range(queues))


def test_a_member_that_is_not_registered_yet_takes_nothing() -> None:
    assert allocate_averagely(range(8), ["a", "b"], "c") == []


def test_the_order_in_which_the_broker_lists_the_members_does_not_matter() -> None:
    assert allocate_averagely(range(5), ["b", "a", "b"], "a") == allocate_averagely(range(5), ["a", "b"], "a")


def test_client_ids_are_ordered_by_utf16_units_as_java_does() -> None:
    beyond, private = "\U0001f600", "\uffee"
    assert sorted([private, beyond]) == [private, beyond]
    assert sorted([private, beyond], key=java_order) == [beyond, private]


class _HalfAway:
    """Routes and offsets of three topics; the first topic has no route, and the first queue of each has no offset."""

    def read_queues(self, topic: str) -> list[MessageQueue]:
        if topic == "A":
            raise BrokerUnavailable("no route")
        return [MessageQueue(topic=topic, broker_name="b", queue_id=number) for number in range(3)]

    def start_of(self, queue: MessageQueue) -> int:
        if queue.queue_id == 0:
            raise BrokerUnavailable("no offset")
        return 7


def test_what_one_topic_or_queue_waits_for_keeps_no_other_one_waiting() -> None:
    away = _HalfAway()
    assignment = Assignment(
        cast("Routes", away),
        cast("GroupOffsets", away),
        client_id="a",
        limits=CacheLimits(),
        members=lambda _topic: ["a"],
        locks=None,
        on_gained=lambda _held: None,
        on_lost=lambda _held: None,
        is_busy=lambda _queue: False,
    )
    assert not assignment.rebalance(["A", "B", "C"]), "to be tried again soon"
    held = [(one.queue.topic, one.queue.queue_id) for one in assignment.queues()]
    assert held == [("B", 1), ("B", 2), ("C", 1), ("C", 2)]
