"""Step 6 when Redis forgets or refuses, the broker deletes or is away: suspended visibly, resumed by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from reconciler.announcing.port import AnnouncementLog, EventKind, StepKind
from reconciler.announcing.step import AnnouncementStep
from reconciler.clock import utc_text
from reconciler.contract.subscription import Shard, Subscription
from reconciler.errors import InvariantViolation, RedisAway
from reconciler.policy.ports.announcing import Admission, AnnouncementQueue, KnownRecords
from reconciler.testing.memory_shards import MemoryShards
from tests.unit.announcing.announcement_world import QUEUE, SUBSCRIPTION, World, announcement, away
from tests.unit.consumers.messages import new_key

pytestmark = pytest.mark.usefixtures("reads")


def test_a_wipe_is_told_once_suspends_and_rewinds_to_the_floor() -> None:
    world = World()
    keys = [new_key() for _ in range(8)]
    for key in keys:
        world.topic.send(announcement(key))
    step = world.step()
    world.run(step)
    world.set_floor(5)
    world.memory.wipe()
    # The queue is idle: it has to notice by itself within a second or so.
    world.run_seconds(step, 2.0)
    assert world.kinds().count(EventKind.MEMORY_LOST) == 1
    outage = world.rows.outages.current("test")
    assert outage is not None
    assert outage.reason == "MEMORY_LOST"
    world.run_seconds(step, 30.0)
    assert world.half() == set()
    assert step.states()[0].kind is StepKind.SUSPENDED
    world.scan_outage()
    world.run_seconds(step, 3.0)
    assert world.half() == set(keys[5:])
    world.close_outage()
    world.run_seconds(step, 30.0)
    assert world.rows.outages.current("test") is None
    assert world.kinds().count(EventKind.MEMORY_LOST) == 1
    assert world.kinds()[-1] is EventKind.RESUMED


def test_a_wipe_under_load_is_noticed_by_the_compare_and_set() -> None:
    world = World()
    keys = [new_key(), new_key()]
    world.topic.send(announcement(keys[0]))
    step = world.step()
    world.run(step)
    world.memory.wipe()
    world.topic.send(announcement(keys[1]))
    assert world.run(step).kind is StepKind.SUSPENDED
    assert world.half() == set()
    world.scan_outage()
    world.run_seconds(step, 3.0)
    assert world.half() == set(keys)


def test_sixteen_queues_tell_one_loss_once() -> None:
    queues = [AnnouncementQueue(unique_key_topic="RECONCILER_UNIQUE_KEY", broker="a", queue_id=n) for n in range(16)]
    world = World(queues=queues)
    step = world.step()
    for queue in queues:
        world.topic.send(announcement(new_key()), queue=queue)
        world.run(step, queue)
    world.memory.wipe()
    for _ in range(3):
        for queue in queues:
            world.run_seconds(step, 0.5, queue)
    world.scan_outage()
    world.close_outage()
    for _ in range(5):
        for queue in queues:
            world.run_seconds(step, 1.2, queue)
    assert all(len(world.half(queue)) == 1 for queue in queues)
    assert world.kinds().count(EventKind.MEMORY_LOST) == 1
    assert len(world.rows.reports.outages("test", limit=10).rows) == 1


def test_a_loss_is_not_forgotten_while_the_ledger_is_away() -> None:
    world = World()
    world.topic.send(announcement(new_key()))
    step = world.step()
    world.run(step)
    world.memory.wipe()
    original = world.ledger.open_outage
    world.ledger.open_outage = lambda environment, *, reason, noticed_by: away()  # type: ignore[method-assign]
    world.run_seconds(step, 5.0)
    assert world.half() == set()
    world.ledger.open_outage = original  # type: ignore[method-assign]
    world.run_seconds(step, 8.0)
    assert world.rows.outages.current("test") is not None


def fallen_back() -> tuple[World, AnnouncementStep, list[str]]:
    """A Redis that has the first two of six keys that were read."""
    world = World()
    keys = [new_key() for _ in range(6)]
    world.topic.send(announcement(*keys[:2]))
    step = world.step()
    world.run(step)
    saved = world.memory.save()
    world.topic.send(announcement(*keys[2:]))
    world.run(step)
    world.memory.restore(saved)
    return world, step, keys


def test_a_redis_that_fell_back_is_followed() -> None:
    world, step, keys = fallen_back()
    assert world.half() == set(keys[:2])
    world.run_seconds(step, 3.0)
    assert world.half() == set(keys)
    assert EventKind.REWOUND in world.kinds()


def test_a_redis_that_fell_back_and_does_not_answer_the_next_question_is_followed() -> None:
    """The offset is another one, and what was remembered beside the old one must not be taken for its own."""
    world, step, keys = fallen_back()
    known_records, failures = world.memory.known_records, [RedisAway("no answer"), RedisAway("no answer")]

    def answers_later(shard: Shard, queue: AnnouncementQueue) -> KnownRecords:
        if failures:
            raise failures.pop()
        return known_records(shard, queue)

    world.memory.known_records = answers_later  # type: ignore[method-assign]
    world.run_seconds(step, 10.0)
    assert not failures
    assert world.half() == set(keys)
    assert world.rows.outages.current("test") is None


def test_announcements_that_the_broker_deleted_are_told_with_their_range() -> None:
    world = World()
    step = world.step()
    world.topic.send(announcement(new_key()))
    world.run(step)
    for _ in range(9):
        world.topic.send(announcement(new_key()))
    world.topic.minimum[QUEUE] = 6
    world.run(step)
    alarm = next(event for event in world.events if event.kind is EventKind.OFFSET_ILLEGAL)
    assert (alarm.first_offset, alarm.last_offset) == (1, 6)
    assert len(world.half()) == 1 + 4


@pytest.mark.parametrize(("floor", "expected"), [(None, 0), (3, 3), (90, 0)])
def test_an_offset_beyond_the_queue_goes_back_never_to_its_end(floor: int | None, expected: int) -> None:
    world = World()
    for _ in range(5):
        world.topic.send(announcement(new_key()))
    shard = Shard(subscription=SUBSCRIPTION, number=3)
    world.memory.admit(shard, QUEUE, expected=None, following=80, unique_keys=[])
    if floor is not None:
        world.set_floor(floor)
    world.run(world.step())
    assert len(world.half()) == 5 - expected
    assert EventKind.OFFSET_ILLEGAL in world.kinds()


class Refusing(MemoryShards):
    """A Redis that is there and does not take part."""

    error: Exception | None = None

    def admit(
        self,
        shard: Shard,
        queue: AnnouncementQueue,
        *,
        expected: int | None,
        following: int,
        unique_keys: Sequence[str],
        apart: Sequence[str] = (),
        **kept: Any,
    ) -> Admission:
        if self.error is not None:
            raise self.error
        return super().admit(
            shard, queue, expected=expected, following=following, unique_keys=unique_keys, apart=apart, **kept
        )


@pytest.mark.parametrize("error", [RedisAway("OOM"), RedisAway("READONLY"), InvariantViolation("WRONGTYPE")])
def test_a_refusing_redis_suspends_visibly_and_it_resumes_by_itself(error: Exception) -> None:
    world = World()
    sets = Refusing(world.clock)
    step = world.step(half_sets=sets)
    world.run(step)
    key = new_key()
    world.topic.send(announcement(key))
    sets.error = error
    waits = []
    for _ in range(12):
        outcome = step.run_once(QUEUE)
        assert outcome.kind is StepKind.SUSPENDED
        waits.append(outcome.wait_seconds)
        world.clock.advance(outcome.wait_seconds)
    assert 0.05 <= waits[0] <= 0.2
    assert 2.5 <= waits[-1] <= 5.0
    assert str(error) in step.states()[0].detail
    assert world.kinds() == [EventKind.SUSPENDED]
    sets.error = None
    world.run(step)
    assert world.kinds() == [EventKind.SUSPENDED, EventKind.RESUMED]
    assert sets.size(Shard(subscription=SUBSCRIPTION, number=3)) == 1


def test_a_full_half_set_suspends_before_anything_is_pulled() -> None:
    world = World()
    step = world.step(half_set_keys_max=10)
    world.topic.send(announcement(*[new_key() for _ in range(11)]))
    assert world.run(step).kind is StepKind.SUSPENDED
    pulls = world.topic.pulls
    world.run_seconds(step, 10)
    assert world.topic.pulls == pulls
    assert "at most 10" in step.states()[0].detail
    world.memory._shards[Shard(subscription=SUBSCRIPTION, number=3)].half.clear()  # a round took them
    assert world.run(step).kind is StepKind.IDLE


def test_broker_and_ledger_may_be_away_without_harm() -> None:
    world = World()
    step = world.step()
    key = new_key()
    world.topic.send(announcement(key))
    for part in (world.topic, world.ledger):
        part.is_away = True
        world.run_seconds(step, 10)
        assert step.states()[0].kind is StepKind.SUSPENDED
        part.is_away = False
    world.run_seconds(step, 10)
    assert world.half() == {key}


@pytest.mark.parametrize("is_spread", [True, False])
def test_a_queue_whose_own_server_answers_goes_on_while_another_server_is_away(is_spread: bool) -> None:
    world = World()
    world.memory.is_spread = is_spread
    keys = [new_key(), new_key()]
    world.topic.send(announcement(keys[0]))
    looked: list[Subscription] = []
    step = world.step(why_refused=looked.append)
    world.run(step)
    world.rows.outages.open("test", reason="AWAY", noticed_by="test")
    world.run_seconds(step, 1.5)
    world.topic.send(announcement(keys[1]))
    world.run_seconds(step, 3.0)
    assert world.half() == (set(keys) if is_spread else {keys[0]})
    # The number of shards lies on any server, also on the one that is away.
    assert len(looked) == 1
    world.scan_outage()
    world.run_seconds(step, 3.0)
    assert world.half() == set(keys)


def test_memory_that_is_lost_while_another_server_is_away_is_read_again_and_opens_no_outage_later() -> None:
    world = World()
    world.memory.is_spread = True
    keys = [new_key() for _ in range(3)]
    for key in keys:
        world.topic.send(announcement(key))
    step = world.step()
    world.run(step)
    world.set_floor(1)
    world.rows.outages.open("test", reason="AWAY", noticed_by="test")
    world.run_seconds(step, 1.5)
    world.memory.wipe()
    world.run_seconds(step, 3.0)
    assert world.half() == set(keys[1:])
    world.scan_outage()
    world.close_outage()
    world.run_seconds(step, 8.0)
    assert len(world.rows.reports.outages("test", limit=10).rows) == 1


def test_a_queue_whose_server_lost_its_memory_while_it_was_away_opens_no_outage_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.memory.is_spread = True
    key = new_key()
    world.topic.send(announcement(key))
    step = world.step()
    world.run(step)
    with monkeypatch.context() as patch:
        for name in ("size", "position", "admit", "take_lease"):
            patch.setattr(world.memory, name, lambda *_, **__: away())
        world.rows.outages.open("test", reason="AWAY", noticed_by="test")
        world.run_seconds(step, 8.0)
    world.memory.wipe()
    world.scan_outage()
    world.close_outage()
    world.run_seconds(step, 8.0)
    assert world.half() == {key}
    assert len(world.rows.reports.outages("test", limit=10).rows) == 1


def test_a_broker_that_is_away_is_one_line_of_the_log_and_one_when_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    queues = [replace(QUEUE, queue_id=number) for number in range(16)]
    world = World(queues=queues)
    step, log = world.step(), AnnouncementLog(world.clock)

    def told() -> list[str]:
        """Of two groups, after a turn of every queue."""
        caplog.clear()
        for queue in queues:
            world.run(step, queue)
        for event in world.events:
            log(event)
            log(replace(event, subscription=replace(SUBSCRIPTION, group="points")))
        world.events.clear()
        return [record.message for record in caplog.records]

    assert told() == []
    world.topic.is_away = True
    since = utc_text(world.clock.now_ms())[:16]
    assert told() == ["broker_away"]
    assert caplog.records[0].__dict__["since"].startswith(since)
    assert told() == []
    world.topic.is_away = False
    assert told() == ["broker_back"]
    assert caplog.records[0].__dict__["away_since"].startswith(since)
