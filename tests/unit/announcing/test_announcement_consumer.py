"""The runner around the steps: queues found late, stop gives leases up, a bug in one queue ends no other."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from reconciler.announcing import consumer as announcements
from reconciler.announcing.consumer import AnnouncementConsumer, process_token
from reconciler.announcing.port import AnnouncementEvent, EventKind, log_event
from reconciler.clock import SystemClock
from reconciler.contract.subscription import Shard
from reconciler.errors import UsageError
from reconciler.policy.ports.announcing import AnnouncementQueue
from tests.polling import eventually
from tests.unit.announcing.announcement_world import SUBSCRIPTION, MemoryTopic, World, announcement
from tests.unit.consumers.messages import new_key


def queue(number: int) -> AnnouncementQueue:
    return AnnouncementQueue(unique_key_topic="RECONCILER_UNIQUE_KEY", broker="a", queue_id=number)


def real_time_world(queues: list[AnnouncementQueue]) -> World:
    world = World(queues=queues)
    world.clock = SystemClock()  # type: ignore[assignment]  # the runner's threads wait for real
    world.memory._clock = world.clock
    return world


def consumer_of(world: World, **options: Any) -> AnnouncementConsumer:
    step = world.step()
    return AnnouncementConsumer([step], world.topic, world.look(step), **options)


def test_all_queues_are_consumed_by_a_few_threads() -> None:
    queues = [queue(number) for number in range(16)]
    world = real_time_world(queues)
    keys = {each: [new_key() for _ in range(50)] for each in queues}
    consumer = consumer_of(world, threads=2)
    before = threading.active_count()
    consumer.start()
    try:
        for each, announced in keys.items():
            for key in announced:
                world.topic.send(announcement(key), queue=each)
        eventually(lambda: all(world.half(each) == set(keys[each]) for each in queues), within_seconds=60)
        assert threading.active_count() - before == 2
        assert len(consumer.states()) == 16
        with pytest.raises(UsageError):
            consumer.start()
    finally:
        assert consumer.stop()
    for each in queues:  # leases were given up
        assert world.memory.take_lease(
            Shard(subscription=SUBSCRIPTION, number=each.queue_id), each, token="heir", lease_seconds=1
        )


def test_a_broker_that_is_away_at_the_start_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcements, "REFRESH_AGAIN_SECONDS", 0.1)
    world = real_time_world([queue(0)])
    world.topic.is_away = True
    key = new_key()
    world.topic.send(announcement(key), queue=queue(0))
    consumer = consumer_of(world, threads=1)
    consumer.start()
    try:
        world.topic.is_away = False
        eventually(lambda: world.half(queue(0)) == {key}, within_seconds=60)
    finally:
        assert consumer.stop()


def test_queues_that_cannot_be_listed_are_one_line_until_they_are(caplog: pytest.LogCaptureFixture) -> None:
    world = World(queues=[])
    refresh = consumer_of(world, clock=world.clock)._refresh_turn("RECONCILER_UNIQUE_KEY")
    for is_away in (True, True, True, False, True):
        world.topic.is_away = is_away
        refresh()
    assert [record.message.partition(":")[0] for record in caplog.records] == ["queues_unknown"] * 2


def test_a_queue_beyond_the_shards_is_an_alarm_and_not_read() -> None:
    world = real_time_world([queue(0), queue(16)])
    world.topic.send(announcement(new_key()), queue=queue(16))
    consumer = consumer_of(world, threads=1)
    consumer.start()
    try:
        eventually(lambda: EventKind.EXTRA_QUEUE in world.kinds(), within_seconds=60)
        eventually(lambda: consumer.states(), within_seconds=60)
        assert world.half(queue(16)) == set()
    finally:
        assert consumer.stop()


def test_a_bug_in_one_queue_does_not_end_the_others() -> None:
    class Broken(MemoryTopic):
        def pull(self, queue: AnnouncementQueue, **options: object):  # type: ignore[no-untyped-def]
            if queue.queue_id == 0:
                raise ZeroDivisionError
            return super().pull(queue, **options)  # type: ignore[arg-type]

    world = real_time_world([queue(0), queue(1)])
    world.topic = Broken([queue(0), queue(1)])
    key = new_key()
    world.topic.send(announcement(key), queue=queue(1))
    consumer = consumer_of(world, threads=1)
    consumer.start()
    try:
        eventually(lambda: world.half(queue(1)) == {key}, within_seconds=60)
    finally:
        assert consumer.stop()


def test_it_starts_again_after_a_stop() -> None:
    world = real_time_world([queue(0)])
    consumer = consumer_of(world, threads=1)
    consumer.start()
    assert consumer.stop()
    key = new_key()
    world.topic.send(announcement(key), queue=queue(0))
    consumer.start()
    try:
        eventually(lambda: world.half(queue(0)) == {key}, within_seconds=60)
    finally:
        assert consumer.stop()


def test_alarms_are_logged_by_default(caplog: pytest.LogCaptureFixture) -> None:
    log_event(
        AnnouncementEvent(
            kind=EventKind.OFFSET_ILLEGAL, subscription=SUBSCRIPTION, queue=queue(0), detail="5..9 were deleted"
        )
    )
    assert "5..9 were deleted" in caplog.text
    (line,) = caplog.records
    assert (line.levelname, vars(line)["cause"]) == ("WARNING", "OFFSET_ILLEGAL")


def test_tokens_name_their_process_and_differ() -> None:
    assert process_token() != process_token()
