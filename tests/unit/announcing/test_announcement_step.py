"""Step 6 of one queue, with every accident it is built for."""

from __future__ import annotations

import json

import pytest

from reconciler.announcing.port import EventKind, StepKind
from reconciler.announcing.rules import AnnouncementRules
from reconciler.contract.announcement import sign
from reconciler.contract.subscription import Shard
from reconciler.contract.unique_key import shard_of
from tests.unit.announcing.announcement_world import QUEUE, SUBSCRIPTION, World, announcement, away
from tests.unit.consumers.messages import new_key

SECRET = b"a secret"


def quarantined(world: World) -> list[tuple[int, str]]:
    rows = world.rows.reports.quarantined("test", limit=100).rows
    return [(row.refused.queue_offset, row.refused.reason) for row in reversed(rows)]


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


@pytest.mark.parametrize("what", ["no proof", "another record", "a shorter queue", "deleted by age"])
def test_a_floor_that_the_queue_does_not_prove_means_its_earliest_announcement(what: str) -> None:
    world = World()
    for _ in range(10):
        world.topic.send(announcement(new_key()))
    world.set_floor(7, is_proved=what != "no proof")
    if what == "another record":
        world.topic.create_again()
    elif what == "a shorter queue":
        world.topic.lose_tail(8)
    elif what == "deleted by age":
        world.topic.minimum[QUEUE] = 7
    keys = [new_key() for _ in range(12)] if what == "another record" else []
    for key in keys:
        world.topic.send(announcement(key))
    world.run(world.step())
    assert len(world.half()) == {"no proof": 10, "another record": 12, "a shorter queue": 2, "deleted by age": 3}[what]


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
        (announcement("0A" * 16).replace(b"0A" * 16, b"0a" * 40), "SHAPE"),
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
    world.ledger.quarantine = lambda environment, refused: away()  # type: ignore[method-assign]
    assert world.run(step).kind is StepKind.SUSPENDED
    assert world.half() == set()
    world.ledger.quarantine = original  # type: ignore[method-assign]
    assert world.run(step).kind is StepKind.IDLE
    assert world.half() == {key}
    assert quarantined(world) == [(0, "MALFORMED")]


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


def test_keys_whose_tag_the_group_does_not_take_are_set_apart_and_announced_like_all_others() -> None:
    world = World()
    taken, other, untagged = new_key(), new_key(), new_key()
    world.topic.send(announcement(taken, tag="paid"))
    world.topic.send(announcement(other, tag="noise"))
    world.topic.send(announcement(untagged))
    rules = AnnouncementRules(environment="test", topic="ORDERS", tags=frozenset({"paid"}))
    world.run(world.step(rules=rules))
    assert world.half() == {taken, other, untagged}
    assert world.apart() == {other, untagged}


def test_a_group_that_takes_every_tag_sets_no_key_apart() -> None:
    world = World()
    world.topic.send(announcement(new_key(), tag="noise"))
    world.run(world.step())
    assert len(world.half()) == 1
    assert world.apart() == set()


def test_a_bare_key_tells_no_tag_and_is_not_set_apart() -> None:
    world = World()
    world.topic.send(new_key().encode())
    rules = AnnouncementRules(environment="test", topic="ORDERS", bare_keys=True, tags=frozenset({"paid"}))
    world.run(world.step(rules=rules))
    assert len(world.half()) == 1
    assert world.apart() == set()
