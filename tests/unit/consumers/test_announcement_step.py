"""Step 6 of one queue, with every accident it is built for."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from consumers.announcement_port import EventKind, StepKind
from consumers.announcement_rules import AnnouncementRules
from reconciler.contract.announcement import sign
from reconciler.contract.subscription import Shard
from reconciler.contract.unique_key import shard_of
from reconciler.errors import InvariantViolation, RedisAway
from reconciler.ledger.memory_shards import MemoryShards
from reconciler.ports import Admission, AnnouncementQueue
from tests.unit.consumers.announcement_world import QUEUE, SUBSCRIPTION, World, announcement
from tests.unit.consumers.messages import new_key

SECRET = b"a secret"


def quarantined(world: World) -> list[tuple[int, str]]:
    return [(row.refused.queue_offset, row.refused.reason) for row in world.rows.reports.quarantined("test", limit=100)]


def test_announced_keys_reach_the_half_set_and_the_offset_moves() -> None:
    world = World()
    keys = [new_key() for _ in range(5)]
    world.topic.send(announcement(*keys[:3]))
    world.topic.send(announcement(*keys[3:]))
    assert world.run(world.step()).kind is StepKind.IDLE
    assert world.half() == set(keys)
    assert world.memory.position(Shard(subscription=SUBSCRIPTION, number=3), QUEUE) == 2


def test_what_was_announced_before_the_consumer_existed_is_not_skipped() -> None:
    world = World()
    for _ in range(10):
        world.topic.send(announcement(new_key()))
    world.topic.minimum[QUEUE] = 4
    world.run(world.step())
    assert len(world.half()) == 6
    assert world.kinds() == []


def test_the_floor_shortens_the_way_after_a_total_loss() -> None:
    world = World()
    keys = [new_key() for _ in range(10)]
    for key in keys:
        world.topic.send(announcement(key))
    world.set_floor(7)
    world.run(world.step())
    assert world.half() == set(keys[7:])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\xff\xfe", "MALFORMED"),
        (b"[]", "MALFORMED"),
        (b"{", "MALFORMED"),
        (b'{"v":1}', "MALFORMED"),
        (b"[" * 60_000, "MALFORMED"),
        (announcement(new_key()).replace(b'"v":1', b'"v":2'), "VERSION"),
        (announcement(new_key()).replace(b'"v":1', b'"v":true'), "VERSION"),
        (announcement(new_key(), environment="staging"), "ENVIRONMENT"),
        (announcement(new_key(), topic="REFUNDS"), "TOPIC"),
        (announcement("0A" * 16).replace(b"0A0A", b"0a0a"), "SHAPE"),
        (announcement("0A" * 16).replace(b"0A" * 16, b"127.0.0.1:6379"), "SHAPE"),
        (b"{" + b" " * 70_000, "SIZE"),
    ],
)  # fmt: skip
def test_a_bad_announcement_is_quarantined_and_the_queue_moves_on(body: bytes, reason: str) -> None:
    world = World()
    before, after = new_key(), new_key()
    world.topic.send(announcement(before))
    offset = world.topic.send(body)
    world.topic.send(announcement(after))
    world.run(world.step())
    assert quarantined(world) == [(offset, reason)]
    assert world.half() == {before, after}
    assert EventKind.REFUSED in world.kinds()


def test_a_message_with_one_bad_key_is_refused_whole() -> None:
    world = World()
    document = json.loads(announcement(new_key(), new_key()))
    document["keys"][1]["key"] = "not hex"
    world.topic.send(json.dumps(document).encode())
    world.run(world.step())
    assert quarantined(world) == [(0, "SHAPE")]
    assert world.half() == set()


def test_unsigned_and_wrongly_signed_announcements_are_refused_where_a_secret_is_set() -> None:
    world = World()
    good = announcement(new_key())
    world.topic.send(good)
    world.topic.send(good, signature=sign(good, b"another secret"))
    world.topic.send(good, signature="\u20ac")
    world.topic.send(good, signature=sign(good, SECRET))
    rules = AnnouncementRules(environment="test", topic="ORDERS", signature_secret=SECRET)
    world.run(world.step(rules=rules))
    assert quarantined(world) == [(0, "SIGNATURE"), (1, "SIGNATURE"), (2, "SIGNATURE")]
    assert len(world.half()) == 1


def test_a_tag_that_only_hashes_alike_is_somebody_elses() -> None:
    world = World()
    world.topic.send(b"garbage", tag="ORDERS-hashes-alike")
    world.topic.send(announcement(new_key()), tag="REFUNDS")
    world.run(world.step())
    assert quarantined(world) == []
    assert world.half() == set()
    assert world.memory.position(Shard(subscription=SUBSCRIPTION, number=3), QUEUE) == 2


def test_bare_keys_of_the_original_design_are_read_where_configured() -> None:
    world = World()
    key = new_key()
    world.topic.send(key.encode())
    world.topic.send(announcement(new_key()))
    world.run(world.step(rules=AnnouncementRules(environment="test", topic="ORDERS", bare_keys=True)))
    assert world.half() == {key}
    assert quarantined(world) == [(1, "SHAPE")]


def test_unknown_fields_are_ignored() -> None:
    world = World()
    key = new_key()
    document = {**json.loads(announcement(key)), "later": [1, 2]}
    world.topic.send(json.dumps(document).encode())
    world.run(world.step())
    assert world.half() == {key}


def test_a_key_in_another_queue_than_its_hash_goes_with_its_queue() -> None:
    # Keys and offset must move in one atomic step, so it is the queue's shard: the price is one look-up.
    world = World()
    key = next(candidate for candidate in (f"{n:032X}" for n in range(100)) if shard_of(candidate, 16) != 3)
    world.topic.send(announcement(key))
    world.run(world.step())
    assert world.half() == {key}


def test_nothing_is_admitted_before_its_refused_neighbours_are_written_down() -> None:
    world = World()
    key = new_key()
    world.topic.send(b"garbage")
    world.topic.send(announcement(key))
    step = world.step()
    original = world.ledger.quarantine
    world.ledger.quarantine = lambda environment, refused: _raise()  # type: ignore[method-assign]
    assert world.run(step).kind is StepKind.SUSPENDED
    assert world.half() == set()
    world.ledger.quarantine = original  # type: ignore[method-assign]
    assert world.run(step).kind is StepKind.IDLE
    assert world.half() == {key}
    assert quarantined(world) == [(0, "MALFORMED")]


def _raise() -> None:
    raise RedisAway("no database")


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
    assert len(world.rows.reports.outages("test", limit=10)) == 1


def test_a_loss_is_not_forgotten_while_the_ledger_is_away() -> None:
    world = World()
    world.topic.send(announcement(new_key()))
    step = world.step()
    world.run(step)
    world.memory.wipe()
    original = world.ledger.open_outage
    world.ledger.open_outage = lambda environment, *, reason, noticed_by: _raise()  # type: ignore[method-assign]
    world.run_seconds(step, 5.0)
    assert world.half() == set()
    world.ledger.open_outage = original  # type: ignore[method-assign]
    world.run_seconds(step, 8.0)
    assert world.rows.outages.current("test") is not None


def test_a_redis_that_fell_back_is_followed() -> None:
    world = World()
    keys = [new_key() for _ in range(6)]
    world.topic.send(announcement(*keys[:2]))
    step = world.step()
    world.run(step)
    saved = world.memory.snapshot()
    world.topic.send(announcement(*keys[2:]))
    world.run(step)
    world.memory.restore(saved)
    assert world.half() == set(keys[:2])
    world.run_seconds(step, 3.0)
    assert world.half() == set(keys)
    assert EventKind.REWOUND in world.kinds()
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
    ) -> Admission:
        if self.error is not None:
            raise self.error
        return super().admit(shard, queue, expected=expected, following=following, unique_keys=unique_keys)


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


def test_two_consumers_share_nothing_but_redis_and_do_no_harm() -> None:
    world = World()
    one, two = world.step("one"), world.step("two")
    keys = [new_key() for _ in range(200)]
    for key in keys:
        world.topic.send(announcement(key))
        one.run_once(QUEUE)
        two.run_once(QUEUE)
        world.clock.advance(0.3)
    world.run_seconds(one, 5)
    assert world.half() == set(keys)
    assert world.memory.position(Shard(subscription=SUBSCRIPTION, number=3), QUEUE) == 200
    # The lease keeps the second one from doing the same work.
    assert two.states()[0].kind is StepKind.NOT_MINE
    assert EventKind.MEMORY_LOST not in world.kinds()


def test_two_consumers_that_both_believe_in_their_lease_do_no_harm() -> None:
    class NoLeases(MemoryShards):
        def take_lease(self, shard: Shard, queue: AnnouncementQueue, *, token: str, lease_seconds: float) -> bool:
            return True

    world = World()
    sets = NoLeases(world.clock)
    steps = [world.step("one", half_sets=sets), world.step("two", half_sets=sets)]
    keys = [new_key() for _ in range(100)]
    for number, key in enumerate(keys):
        world.topic.send(announcement(key))
        steps[number % 3 % 2].run_once(QUEUE)
    for step in steps:
        world.run(step)
    assert sets.size(Shard(subscription=SUBSCRIPTION, number=3)) == 100
    assert sets.position(Shard(subscription=SUBSCRIPTION, number=3), QUEUE) == 100


def test_a_dead_holders_queue_is_taken_over_after_its_lease() -> None:
    world = World()
    dead, heir = world.step("dead"), world.step("heir")
    world.run(dead)
    assert heir.run_once(QUEUE).kind is StepKind.NOT_MINE
    key = new_key()
    world.topic.send(announcement(key))
    world.run_seconds(heir, 35)
    assert world.half() == {key}


def test_a_short_lease_is_kept_by_the_living_and_a_killed_holders_queue_does_not_stand_still_past_it() -> None:
    world = World()
    dead, heir = world.step("dead", lease_seconds=4.0), world.step("heir", lease_seconds=4.0)
    for _ in range(20):
        world.run_seconds(dead, 1)
        assert heir.run_once(QUEUE).kind is StepKind.NOT_MINE
    key = new_key()
    world.topic.send(announcement(key))
    world.run_seconds(heir, 5)
    assert world.half() == {key}


def test_a_released_lease_is_free_at_once() -> None:
    world = World()
    one, two = world.step("one"), world.step("two")
    world.run(one)
    one.release(QUEUE)
    assert two.run_once(QUEUE).kind is not StepKind.NOT_MINE


def test_a_lease_is_renewed_so_that_a_living_holder_keeps_its_queue() -> None:
    world = World()
    one, two = world.step("one"), world.step("two")
    world.run(one)
    for _ in range(60):
        world.run_seconds(one, 2)
        assert two.run_once(QUEUE).kind is StepKind.NOT_MINE


def test_a_restart_in_the_middle_goes_on_where_redis_says() -> None:
    world = World()
    keys = [new_key() for _ in range(100)]
    for key in keys:
        world.topic.send(announcement(key))
    first = world.step("first")
    for _ in range(2):
        first.run_once(QUEUE)
    assert 0 < len(world.half()) < 100
    world.clock.advance(31)
    world.run(world.step("second"))
    assert world.half() == set(keys)
