"""What may be committed, and when pulling stops."""

from __future__ import annotations

import random
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.consumer.process_queue import CacheLimits, ProcessQueue

QUEUE = MessageQueue(topic="T", broker_name="b", queue_id=0)


@dataclass(frozen=True)
class Item:
    queue_offset: int
    size_bytes: int = 10


def items(*offsets: int, size: int = 10) -> list[Item]:
    return [Item(offset, size) for offset in offsets]


def pulled(queue: ProcessQueue, *offsets: int, following: int | None = None, size: int = 10) -> list[Item]:
    permit = queue.begin_pull()
    assert permit is not None
    messages = items(*offsets, size=size)
    assert queue.accept(messages, following if following is not None else offsets[-1] + 1, era=permit[1]) == messages
    return messages


def test_an_empty_queue_commits_the_next_offset_to_pull() -> None:
    queue = ProcessQueue(QUEUE, start_offset=7)
    assert queue.committable() == 7
    pulled(queue, following=12)  # the broker skipped filtered messages
    assert queue.committable() == 12


def test_a_message_that_is_not_done_holds_the_commit_back_however_much_follows_it() -> None:
    queue = ProcessQueue(QUEUE, start_offset=0)
    first, second, third = pulled(queue, 0, 1, 5)
    queue.done([third], era=queue.era)
    queue.done([second], era=queue.era)
    assert queue.committable() == 0
    queue.done([first], era=queue.era)
    assert queue.committable() == 6


def test_filtered_gaps_at_the_end_are_committed_with_the_last_message() -> None:
    queue = ProcessQueue(QUEUE, start_offset=0)
    messages = pulled(queue, 0, following=100)
    queue.done(messages, era=queue.era)
    assert queue.committable() == 100


@given(st.lists(st.integers(1, 5), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_any_order_of_completion_commits_the_smallest_open_offset(gaps: list[int], draw: random.Random) -> None:
    queue = ProcessQueue(QUEUE, start_offset=0)
    offsets = [sum(gaps[: index + 1]) for index in range(len(gaps))]
    messages = pulled(queue, *offsets)
    open_offsets = set(offsets)
    draw.shuffle(messages)
    for message in messages:
        queue.done([message], era=queue.era)
        open_offsets.discard(message.queue_offset)
        assert queue.committable() == min(open_offsets, default=offsets[-1] + 1)
    assert queue.state().bytes == 0
    assert queue.state().messages == 0


def test_results_after_the_queue_was_lost_are_not_committed() -> None:
    queue = ProcessQueue(QUEUE, start_offset=0)
    messages = pulled(queue, 0, 1)
    assert queue.revoke() == 0
    queue.done(messages, era=queue.era)
    assert queue.committable() is None
    assert queue.begin_pull() is None


def test_a_reply_that_comes_after_the_queue_was_lost_is_dropped() -> None:
    queue = ProcessQueue(QUEUE, start_offset=0)
    permit = queue.begin_pull()
    assert permit is not None
    queue.revoke()
    assert queue.accept(items(0), 1, era=permit[1]) is None


def test_there_is_one_pull_at_a_time() -> None:
    queue = ProcessQueue(QUEUE, start_offset=0)
    permit = queue.begin_pull()
    assert permit is not None
    assert queue.begin_pull() is None
    queue.abandon_pull(era=permit[1])
    assert queue.begin_pull() == permit


def test_pulling_stops_at_the_message_limit_and_goes_on_when_one_is_done() -> None:
    queue = ProcessQueue(QUEUE, start_offset=0, limits=CacheLimits(messages=3))
    messages = pulled(queue, 0, 1, 2)
    assert queue.begin_pull() is None
    assert queue.state().is_waiting_for_room
    assert queue.done(messages[2:], era=queue.era) is True
    assert queue.begin_pull() is not None


def test_pulling_stops_at_the_byte_limit() -> None:
    queue = ProcessQueue(QUEUE, start_offset=0, limits=CacheLimits(bytes=100))
    messages = pulled(queue, 0, 1, size=60)
    assert queue.begin_pull() is None
    assert queue.done(messages[:1], era=queue.era) is True


def test_one_message_above_the_byte_limit_still_gets_through() -> None:
    queue = ProcessQueue(QUEUE, start_offset=0, limits=CacheLimits(bytes=10))
    messages = pulled(queue, 0, size=1_000)
    assert queue.begin_pull() is None
    assert queue.done(messages, era=queue.era) is True
    assert queue.begin_pull() is not None


def test_one_stuck_message_does_not_let_the_queue_run_on_without_end() -> None:
    queue = ProcessQueue(QUEUE, start_offset=0, limits=CacheLimits(span=10))
    stuck, *others = pulled(queue, *range(10))
    queue.done(others, era=queue.era)
    assert queue.begin_pull() is None
    assert queue.done([stuck], era=queue.era) is True


def test_completions_without_a_waiting_pull_do_not_ask_for_one() -> None:
    queue = ProcessQueue(QUEUE, start_offset=0)
    assert queue.done(pulled(queue, 0), era=queue.era) is False


def test_a_seek_voids_what_was_pulled_before_it() -> None:
    queue = ProcessQueue(QUEUE, start_offset=0)
    messages = pulled(queue, 0, 1)
    era = queue.era
    permit = queue.begin_pull()
    assert permit is not None
    queue.seek(100)
    assert queue.accept(items(2), 3, era=permit[1]) is None
    queue.done(messages, era=era)
    assert queue.committable() == 100
    assert (queue.state().messages, queue.state().bytes) == (0, 0), "bytes that stay would fill the queue for ever"


def test_what_was_done_before_a_seek_back_is_not_done_after_it() -> None:
    queue = ProcessQueue(QUEUE, start_offset=0)
    queue.done(pulled(queue, 0, 1)[1:], era=queue.era)
    queue.seek(0)
    queue.done(pulled(queue, 0, 1)[:1], era=queue.era)
    assert queue.committable() == 1


def test_a_late_reply_does_not_end_the_pull_that_began_after_the_seek() -> None:
    queue = ProcessQueue(QUEUE, start_offset=0)
    old = queue.begin_pull()
    assert old is not None
    queue.seek(5)
    assert queue.begin_pull() == (5, 1)
    queue.abandon_pull(era=old[1])
    assert queue.begin_pull() is None


def test_offsets_that_were_taken_before_are_not_handled_twice() -> None:
    queue = ProcessQueue(QUEUE, start_offset=0)
    pulled(queue, 0, 1, 2)
    permit = queue.begin_pull()
    assert permit is not None
    assert queue.accept(items(1, 2, 3), 4, era=permit[1]) == items(3)
    assert queue.state().messages == 4
    permit = queue.begin_pull()
    assert permit is not None
    assert queue.accept([], 2, era=permit[1]) == [], "a slave that is behind says that its queue ends here"
    assert queue.begin_pull() == (4, permit[1])
