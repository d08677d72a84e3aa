"""Step 6 when a broker gives offsets a second time: the queue lost its tail, or the topic was created again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.announcing.port import AnnouncementEvent, EventKind, PulledBatch, StepKind
from reconciler.announcing.step import AnnouncementStep
from reconciler.contract.subscription import Shard
from reconciler.policy.ports.announcing import Admission, AnnouncementQueue
from tests.unit.announcing.announcement_world import QUEUE, SUBSCRIPTION, World, announcement
from tests.unit.consumers.messages import new_key

pytestmark = pytest.mark.usefixtures("reads")

SHARD = Shard(subscription=SUBSCRIPTION, number=3)


def send(world: World, count: int, *, queue: AnnouncementQueue = QUEUE, tag: str = "ORDERS") -> list[str]:
    """That many announcements, of one key each."""
    keys = [new_key() for _ in range(count)]
    for key in keys:
        world.topic.send(announcement(key), queue=queue, tag=tag)
    return keys


def read(count: int) -> tuple[World, AnnouncementStep]:
    """A queue with that many announcements, and the process that has read them."""
    world = World()
    send(world, count)
    step = world.step()
    world.run(step)
    return world, step


def read_by_the_minute(minutes: int, count: int) -> tuple[World, AnnouncementStep]:
    """The same, with that many announcements in each of these minutes."""
    world = World()
    step = world.step()
    for _ in range(minutes):
        world.topic.now_ms += 60_000
        send(world, count)
        world.run(step)
    return world, step


def reused(world: World) -> list[AnnouncementEvent]:
    return [event for event in world.events if event.kind is EventKind.OFFSETS_REUSED]


def notice(world: World, step: AnnouncementStep) -> None:
    """Turns until offsets were told to be given again."""
    while not reused(world):
        world.clock.advance(world.turn(step).wait_seconds)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_announcements_that_took_the_offsets_of_a_lost_tail_are_read(is_restarted: bool) -> None:
    world, step = read(10)
    world.topic.lose_tail(3)
    keys = send(world, 5)
    if is_restarted:
        step.release(QUEUE)
        step = world.step("two")
    world.run(step)
    assert set(keys) <= world.half()
    (told,) = reused(world)
    assert (told.first_offset, told.last_offset) == (0, 10)
    assert step.states()[0].rewinds == 1


def test_a_topic_that_was_created_again_and_has_grown_further_is_read_from_its_beginning() -> None:
    world, step = read(5)
    world.topic.create_again()
    keys = send(world, 9)
    world.run(step)
    assert set(keys) <= world.half()
    assert len(reused(world)) == 1
    send(world, 1)
    world.run(step)
    assert len(reused(world)) == 1


@pytest.mark.parametrize(("count", "seconds"), [(5, 20.0), (2, 0.0)], ids=["just as many", "fewer"])
def test_a_topic_that_was_created_again_is_read_though_no_more_announcements_come(count: int, seconds: float) -> None:
    world, step = read(5)
    world.topic.create_again()
    keys = send(world, count)
    world.run(step)
    world.run_seconds(step, seconds)
    assert set(keys) <= world.half()


@pytest.mark.parametrize(("own", "others", "lost", "more", "last"), [(3, 7, 7, 4, 6), (1, 3_000, 2_500, 1, 2_600)])
def test_a_lost_stretch_behind_the_last_own_announcement_is_read_again(
    own: int, others: int, lost: int, more: int, last: int
) -> None:
    """The second: among thousands of other topics' announcements."""
    world = World()
    send(world, own)
    send(world, others, tag="OTHERS")
    step = world.step()
    world.run(step)
    world.topic.lose_tail(lost)
    keys = send(world, more)
    send(world, last, tag="OTHERS")
    world.run(step)
    assert set(keys) <= world.half()
    assert reused(world)[0].first_offset == own


def test_the_rewind_goes_to_the_newest_record_that_is_left() -> None:
    world, step = read_by_the_minute(20, 10)
    world.topic.lose_tail(25)
    keys, looks = send(world, 40), world.topic.looks
    world.run(step)
    assert set(keys) <= world.half()
    (told,) = reused(world)
    assert told.first_offset == 170
    assert world.topic.looks - looks <= 12


def test_what_is_kept_after_a_rewind_names_no_record_of_the_lost_tail() -> None:
    """A restart would take them for what was seen behind the record that is left."""
    world, step = read_by_the_minute(20, 10)
    world.topic.lose_tail(25)
    send(world, 1)
    notice(world, step)
    assert [one.queue_offset for one in world.memory.known_records(SHARD, QUEUE).trail][-2:] == [159, 169]


def test_records_deleted_by_age_are_no_difference() -> None:
    world, step = read(10)
    world.topic.minimum[QUEUE] = 10
    keys = send(world, 2)
    world.run_seconds(step, 20.0)
    assert set(keys) <= world.half()
    assert world.kinds() == []


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("left", [0, 2])
def test_a_topic_that_was_created_again_after_its_proof_was_deleted_by_age_is_read_from_its_beginning(
    left: int, is_restarted: bool
) -> None:
    """`left`: records of other topics behind the proof, which are not deleted yet."""
    world = World()
    send(world, 5)
    send(world, left, tag="REFUNDS")
    step = world.step()
    world.run(step)
    world.topic.minimum[QUEUE] = 5
    world.run_seconds(step, 20.0)
    world.topic.create_again()
    keys = send(world, 9)
    if is_restarted:
        step.release(QUEUE)
        step = world.step("two")
    world.run(step)
    assert set(keys) <= world.half()
    assert [event.kind for event in world.events] == [EventKind.OFFSETS_REUSED]


def test_a_queue_that_is_created_again_while_the_age_of_its_proof_is_found_out_skips_nothing() -> None:
    world, step = read(5)
    world.topic.minimum[QUEUE] = 5
    world.clock.advance(20.0)
    keys: list[str] = []
    answer = world.topic._answer

    def accident() -> None:
        """Before the second call of the look."""
        answer()
        if world.topic.pulls == pulls + 1 and not keys:
            world.topic.create_again()
            keys.extend(send(world, 9))

    pulls = world.topic.pulls
    world.topic._answer = accident  # type: ignore[method-assign]
    world.run(step)
    assert set(keys) <= world.half()


def test_an_offset_that_an_older_release_moved_has_no_proof_yet_and_gets_one() -> None:
    world, step = read(6)
    step.release(QUEUE)
    # An older release goes on: it moves the offset and leaves the proof, which now is of another offset.
    older = send(world, 4)
    world.memory.admit(SHARD, QUEUE, expected=6, following=10, unique_keys=older)
    heir = world.step("two")
    world.run(heir)
    assert reused(world) == []
    kept = world.memory.known_records(SHARD, QUEUE).proof
    assert kept is not None
    assert (kept.following, kept.record.queue_offset) == (10, 9)
    world.topic.lose_tail(4)
    keys = send(world, 8)
    world.run(heir)
    assert set(keys) <= world.half()
    assert len(reused(world)) == 1


def test_a_lost_tail_on_one_broker_moves_nothing_on_the_other() -> None:
    other = AnnouncementQueue(unique_key_topic="RECONCILER_UNIQUE_KEY", broker="broker-b", queue_id=3)
    world = World(queues=[QUEUE, other])
    step = world.step()
    for queue in (QUEUE, other):
        send(world, 8, queue=queue)
        world.run(step, queue)
    world.topic.lose_tail(4, queue=other)
    keys = [*send(world, 6, queue=other), *send(world, 2)]
    for queue in (QUEUE, other):
        world.run(step, queue)
    assert set(keys) <= world.half()
    assert {event.queue for event in reused(world)} == {other}


def test_a_crash_between_any_two_calls_of_a_rewind_skips_nothing() -> None:
    for calls in range(8):
        world = World()
        send(world, 10)
        world.run(world.step())
        world.topic.lose_tail(5)
        keys = send(world, 9)
        world.clock.advance(120)
        world.topic.fails_after = calls
        dying = world.step("dying")
        for _ in range(3):
            dying.run_once(QUEUE)
        world.topic.fails_after = None
        world.clock.advance(120)
        world.run(world.step("heir"))
        assert set(keys) <= world.half(), f"after {calls} calls"


def created_again_before_a_write(world: World) -> list[str]:
    """The consumer stands still before its next write; then the topic is another one, with these keys."""
    admit, keys = world.memory.admit, list[str]()

    def stands_still(*arguments: Any, **named: Any) -> Admission:
        if not keys:
            world.topic.create_again()
            keys.extend(send(world, 20))
        return admit(*arguments, **named)

    world.memory.admit = stands_still  # type: ignore[method-assign]
    return keys


@pytest.mark.parametrize("way", ["first position", "deleted by age", "rewound to the beginning"])
def test_a_queue_that_begins_anew_after_its_broker_said_where_it_begins_is_read_from_its_beginning(way: str) -> None:
    """Between the broker's answer and the write of the offset, the consumer may stand still for minutes."""
    world = World()
    step = world.step()
    if way != "first position":
        send(world, 6)
        world.run(step)
    if way == "rewound to the beginning":
        world.topic.create_again()
    send(world, 9)
    world.topic.minimum[QUEUE] = 7 if way == "deleted by age" else 4
    keys = created_again_before_a_write(world)
    world.run(step)
    assert set(keys) <= world.half()
    assert len(keys) == 20
    assert step.states()[0].kind is StepKind.IDLE


def test_a_position_from_the_floor_is_proved_by_the_record_of_the_floor() -> None:
    world = World()
    send(world, 9)
    world.set_floor(6)
    keys = created_again_before_a_write(world)
    world.run(world.step())
    assert set(keys) <= world.half()


def test_a_broker_that_says_two_beginnings_is_believed_and_the_queue_is_read() -> None:
    world = World()
    keys = send(world, 9)
    world.topic.earliest = lambda queue: 4  # type: ignore[method-assign]
    step = world.step()
    world.run(step)
    assert set(keys[4:]) <= world.half()
    assert step.states()[0].kind is StepKind.IDLE


def test_a_broker_that_refuses_an_offset_and_then_takes_it_back_is_believed_and_the_queue_is_read() -> None:
    world, step = read(2)
    keys = send(world, 9)
    world.topic.minimum[QUEUE] = 4
    pull = world.topic.pull

    def refuses_below_7(queue: AnnouncementQueue, *, tag: str, offset: int, max_messages: int) -> PulledBatch:
        pulled = pull(queue, tag=tag, offset=offset, max_messages=max_messages)
        return replace(pulled, messages=[], min_offset=7, is_offset_illegal=True) if offset < 7 else pulled

    world.topic.pull = refuses_below_7  # type: ignore[method-assign]
    world.run(step)
    assert set(keys[5:]) <= world.half()
    assert step.states()[0].kind is StepKind.IDLE


def others(world: World, count: int) -> None:
    """That many announcements of another topic, which nobody reads here."""
    for _ in range(count):
        world.topic.send(b"", tag="OTHERS")


def loses_its_tail(world: World, offset: int, *, calls: int) -> list[str]:
    """The topic ends at the offset when it is asked once more after so many calls, and has grown far behind its end
    before it answers. Returns the keys that will be announced then, the first ones in the new tail."""
    answer, keys, left = world.topic._answer, list[str](), [calls]

    def answers() -> None:
        if left[0] == 0:
            world.topic.lose_tail(len(world.topic.stored[QUEUE]) - offset)
            keys.extend(send(world, 2))
            others(world, 3_600 - offset)
        left[0] -= 1
        answer()

    world.topic._answer = answers  # type: ignore[method-assign]
    return keys


@pytest.mark.parametrize("end", [100, 1_150, 1_900, 2_150])
def test_a_tail_that_is_lost_between_any_two_calls_is_noticed_among_other_topics_announcements(end: int) -> None:
    """A record that is looked at after a pull may be one of the new tail, whose earlier announcements were not read."""
    for calls in range(14):
        world = World()
        send(world, 1)
        others(world, 1_199)
        step = world.step()
        world.run(step)
        others(world, 1_000)
        keys = loses_its_tail(world, end, calls=calls)
        world.run_seconds(step, 30.0)
        assert len(keys) == 2
        assert set(keys) <= world.half(), f"after {calls} calls"
        assert step.states()[0].kind is StepKind.IDLE


@pytest.mark.parametrize("end", [1_150, 1_900])
def test_a_tail_that_is_lost_between_any_two_calls_of_a_process_that_begins_is_noticed(end: int) -> None:
    for calls in range(10):
        world = World()
        send(world, 1)
        others(world, 1_199)
        first = world.step()
        world.run(first)
        first.release(QUEUE)
        others(world, 1_000)
        keys = loses_its_tail(world, end, calls=calls)
        world.run_seconds(world.step("two"), 30.0)
        assert set(keys) <= world.half(), f"after {calls} calls"


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("accident", ["created again", "lost its tail", "put back"])
def test_a_second_accident_before_anything_is_read_after_a_rewind_to_the_beginning_skips_nothing(
    accident: str, is_restarted: bool
) -> None:
    """What is kept of the queue before the first accident stays until the next record: it proves nothing."""
    world, step = read_by_the_minute(5, 4)
    former = list(world.topic.stored[QUEUE])
    world.topic.create_again()
    keys = send(world, 30)
    notice(world, step)
    assert world.memory.position(SHARD, QUEUE) == 0
    match accident:
        case "created again":
            world.topic.create_again()
            keys = send(world, 40)
        case "lost its tail":
            world.topic.lose_tail(20)
            keys = [*keys[:10], *send(world, 40)]
        case _:
            world.topic.stored[QUEUE] = former
            keys = send(world, 40)
    if is_restarted:
        step.release(QUEUE)
        step = world.step("two")
    world.run(step)
    assert set(keys) <= world.half()


def test_a_queue_that_begins_anew_before_anything_was_read_there_is_read_from_its_beginning_by_the_next_process() -> (
    None
):
    """All of it was deleted by age, so that no record proves where it is read on."""
    world = World()
    send(world, 14)
    world.topic.minimum[QUEUE] = 14
    step = world.step()
    world.run(step)
    step.release(QUEUE)
    world.topic.create_again()
    keys = send(world, 20)
    world.run(world.step("two"))
    assert set(keys) <= world.half()
