"""A turn begins with one look and four statements, however many topics rest; those with something to do have rounds.

Once a minute the rows of rest are written in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import fakeredis
import pytest
import redis
import sqlalchemy as sa

from reconciler.clock import ManualClock
from reconciler.contract.subscription import Shard
from reconciler.contract.tables import HoldKind
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.plan import TopicPlan
from reconciler.policy.ports.announcing import AnnouncementQueue
from reconciler.policy.ports.rounds import ShardLook
from reconciler.policy.round import ReconcileRound
from reconciler.policy.shard_rounds import LONG_REST_SECONDS_MAX, REST_SECONDS_MAX, ShardRounds
from reconciler.policy.sharing import Sharing
from reconciler.policy.turn import Turn
from reconciler.shards.client import RoundRedis
from reconciler.shards.memory import RedisShardMemory
from reconciler.shards.round_leases import RedisRoundLeases
from reconciler.shards.sharers import RedisSharers
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import ledger_metadata
from tests.unit.policy.world import ENVIRONMENT, TOPIC, Events, World, key


def turn_of(world: World, process: ReconcileRound, topics: Sequence[TopicPlan] = ()) -> Turn:
    """As a process begins its turns."""
    return Turn(
        topics or [world.topic],
        shards=process.shards,
        outages=world.ledger.outages,
        holds=world.ledger.holds,
        candidates=world.ledger.candidates,
        repairs=world.ledger.repairs,
        clock=world.clock,
    )


def calm(groups: tuple[str, ...] = ("billing",)) -> tuple[World, ReconcileRound, Turn]:
    """A topic whose last rounds have just ended."""
    world = World(shards=2, groups=groups)
    process = world.process()
    turn = turn_of(world, process)
    world.rounds(process, 1)
    turn.ended(world.topic)
    return world, process, turn


def test_a_calm_topic_has_no_rounds() -> None:
    world, _, turn = calm(("billing", "stock"))
    for _ in range(3):
        world.clock.advance(5)
        assert turn.begin() == []


def open_row(world: World) -> None:
    """A key that was proved lost, and is followed without Redis."""
    world.proved_loss()
    world.clock.advance(30)
    world.shards.forget(world.shard(key(1)), [key(1)])


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(lambda world: world.announce(key(1)), id="announced"),
        pytest.param(open_row, id="a row and its repair are due"),
        pytest.param(
            lambda world: world.ledger.outages.open(ENVIRONMENT, reason="AWAY", noticed_by="another"), id="an outage"
        ),
        pytest.param(
            lambda world: world.ledger.holds.place(ENVIRONMENT, TOPIC, HoldKind.BREAKER, by="x", reason="why"),
            id="the breaker is open",
        ),
        pytest.param(lambda world: world.clock.advance(REST_SECONDS_MAX), id="a minute has passed"),
        pytest.param(lambda world: world.shards.wipe(), id="the memory is lost"),
    ],
)
def test_a_topic_that_has_something_to_do_has_its_rounds_until_they_have_ended_well(
    happens: Callable[[World], object],
) -> None:
    world, _, turn = calm()
    happens(world)
    assert turn.begin() == [world.topic]
    assert turn.begin() == [world.topic], "no round has ended since"


def test_a_key_of_a_shard_at_rest_wakes_its_topic_once_it_is_old_enough() -> None:
    world, process, turn = calm()
    world.lose(1)
    world.rounds(process, 1)
    turn.ended(world.topic)
    grace = world.topic.subscriptions[0].grace_period_seconds
    world.clock.advance(grace - 1)
    assert turn.begin() == []
    world.clock.advance(1)
    assert turn.begin() == [world.topic]


def test_a_key_that_is_set_apart_wakes_its_topic() -> None:
    world = World(shards=1, tags={"billing": frozenset({"paid"})})
    process = world.process()
    turn = turn_of(world, process)
    world.announce(key(1), tag="other")
    world.outbox.away = True
    process.run(world.subscriptions[0])
    turn.ended(world.topic)
    assert turn.begin() == [world.topic]


def test_topics_that_went_to_rest_together_have_their_next_rounds_in_different_turns() -> None:
    """Hundreds that begin at once would hold each other, and the ledger, up."""
    world, process, _ = calm()
    topics = [topic_named(f"T{n}") for n in range(60)]
    turn = turn_of(world, process, topics)
    turn.begin()
    for topic in topics:
        for shard in topic.shards_of(topic.subscriptions[0].subscription):
            assert process.shards.run(shard).done is not None
        turn.ended(topic)
    begun = []
    for _ in range(12):
        world.clock.advance(5)
        begun.append(turn.begin())
        for topic in begun[-1]:
            turn.ended(topic)
    assert {topic.topic for turn in begun for topic in turn} == {topic.topic for topic in topics}, "within a minute"
    assert max(len(of) for of in begun) <= 30


# ---- rows of rest


def turns(world: World, process: ReconcileRound, turn: Turn, seconds: int) -> list[int]:
    """Turns as `run` takes them. Of each, how old the accounted-until time of the shards is, in seconds."""
    ages = []
    for _ in range(seconds // 5):
        world.clock.advance(5)
        for topic in turn.begin():
            for plan in topic.subscriptions:
                process.run(plan.subscription)
            turn.ended(topic)
        now_ms = world.ledger.rows.clock.now_ms()
        of = [one for s in world.subscriptions for one in world.ledger.reports.last_rounds(s)]
        ages.append(max((now_ms - one.stored_at_ms) // 1000 for one in of))
    return ages


def rounds(world: World) -> int:
    """That are stored."""
    return len(world.ledger.rows.rounds)


def test_shards_at_rest_have_no_rounds_while_the_row_of_rest_is_never_older_than_a_minute() -> None:
    world, process, turn = calm(("billing", "stock"))
    before = rounds(world)
    ages = turns(world, process, turn, round(LONG_REST_SECONDS_MAX * 2 / 3) - 10)
    assert rounds(world) == before == 4
    assert max(ages) < REST_SECONDS_MAX
    turns(world, process, turn, round(LONG_REST_SECONDS_MAX / 3) + 15)
    assert rounds(world) == 2 * before, "floors move"


def test_offsets_that_move_past_announcements_of_others_are_in_the_row_of_rest() -> None:
    world, process, turn = calm()
    shard = world.topic.shards_of(world.subscriptions[0])[0]
    queue = AnnouncementQueue(unique_key_topic="KEYS", broker="broker-a", queue_id=0)
    world.shards.admit(shard, queue, expected=None, following=900, unique_keys=[])
    turns(world, process, turn, 60)
    last = world.ledger.reports.last_rounds(world.subscriptions[0])
    assert last[0].done.offsets == {"broker-a/0": 900}
    assert last[0].done.generation == 1


def test_shards_of_two_processes_have_a_round_a_minute_each_and_no_row_of_rest() -> None:
    """Each process sees a part of the subscription."""
    world, process, turn = calm()
    other, shard = world.process(owner="reconciler-2"), world.topic.shards_of(world.subscriptions[0])[1]
    world.shards.release(shard, token="reconciler-1")
    assert world.shards.take(shard, token="reconciler-2", lease_seconds=60)
    for _ in range(60):
        turns(world, process, turn, 5)
        world.look(other)
    assert 5 <= rounds(world) - 2 <= 8, "of the own shard: the other process only looks here"
    assert not world.ledger.rows.rests


def test_shards_have_a_round_a_minute_each_where_no_row_of_rest_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    world, process, turn = calm()
    monkeypatch.setattr(world.ledger.rounds, "keep_rest", lambda *_, **__: False)
    assert max(turns(world, process, turn, 300)) <= REST_SECONDS_MAX
    assert 2 * 5 <= rounds(world) - 2 <= 2 * 8


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(lambda world: world.announce(key(1)), id="announced"),
        pytest.param(
            lambda world: world.ledger.outages.open(ENVIRONMENT, reason="UNSAFE", noticed_by="x"), id="an outage"
        ),
        pytest.param(lambda world: world.shards.wipe(), id="the memory is lost"),
        pytest.param(lambda world: setattr(world.redis_clock, "wrong_by_seconds", -60), id="the clock is behind"),
    ],
)
def test_what_is_not_at_rest_gets_no_row_of_rest(happens: Callable[[World], object]) -> None:
    world, _, turn = calm()
    happens(world)
    assert turn.begin() == [world.topic]
    assert not world.ledger.rows.rests


def test_a_process_that_stood_still_after_its_look_tells_of_the_time_of_the_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, _, turn = calm()
    seen_ms = world.ledger.rows.clock.now_ms()
    current = world.ledger.outages.current

    def late(environment: str) -> object:
        world.clock.advance(20)
        return current(environment)

    monkeypatch.setattr(world.ledger.outages, "current", late)
    turn.begin()
    assert {rest.at_ms for rest in world.ledger.rows.rests.values()} == {seen_ms}


# ---- what a turn costs


@contextmanager
def exchanges(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Commands and pipelines sent to Redis, statements, rows written and transactions that may write, in the block."""
    counted = {"redis": 0, "sql": 0, "rows": 0, "transactions": 0}

    def counting(sent: Callable[..., Any]) -> Callable[..., Any]:
        def counts(*arguments: Any, **named: Any) -> Any:
            counted["redis"] += 1
            return sent(*arguments, **named)

        return counts

    def statement(*told: Any) -> None:
        counted["sql"] += not told[2].startswith("BEGIN")
        counted["transactions"] += told[2].startswith("BEGIN IMMEDIATE")

    def done(*told: Any) -> None:
        counted["rows"] += told[1].rowcount if told[2].startswith("UPDATE") else 0

    sa.event.listen(engine, "before_cursor_execute", statement)
    sa.event.listen(engine, "after_cursor_execute", done)
    with monkeypatch.context() as patch:
        patch.setattr(redis.Redis, "execute_command", counting(redis.Redis.execute_command))
        patch.setattr(redis.client.Pipeline, "execute", counting(redis.client.Pipeline.execute))
        yield counted
    sa.event.remove(engine, "before_cursor_execute", statement)
    sa.event.remove(engine, "after_cursor_execute", done)


def topic_named(name: str) -> TopicPlan:
    """Of one subscription."""
    topic = World(shards=4).topic
    (plan,) = topic.subscriptions
    return replace(
        topic, topic=name, subscriptions=(replace(plan, subscription=replace(plan.subscription, topic=name)),)
    )


class PatientLeases(RedisRoundLeases):
    """Redis' own clock goes on, which a busy machine must not wait out; that of the processes is the test's."""

    def take(self, shard: Shard, *, token: str, lease_seconds: float) -> bool:
        return super().take(shard, token=token, lease_seconds=100 * lease_seconds)

    def look(self, shards: Mapping[Shard, bool], *, token: str, lease_seconds: float) -> Mapping[Shard, ShardLook]:
        return super().look(shards, token=token, lease_seconds=100 * lease_seconds)


def cost_of_a_turn(
    number: int, folder: Path, monkeypatch: pytest.MonkeyPatch, *, is_first_of_a_minute: bool
) -> dict[str, int]:
    """Of so many subscriptions at rest, each of a topic of its own."""
    engine, clock = open_engine(f"sqlite:///{folder / f'{number}.db'}", must_exist=False), ManualClock()
    ledger_metadata.create_all(engine)
    ledger = SqlLedger(engine, clock=clock)
    topics = [topic_named(f"T{n}") for n in range(number)]
    for topic in topics:
        ledger.rounds.begin(topic.subscriptions[0].subscription, at_ms=1)
    with fakeredis.FakeRedis() as client:
        shards = ShardRounds(
            memory=RedisShardMemory(RoundRedis(client=client)), leases=PatientLeases(client, clock=clock),
            rounds=ledger.rounds, owner="one", lease_seconds=30.0, clock=clock, events=Events(),
            sharing=Sharing(
                RedisSharers(client), environment=ENVIRONMENT, owner="one", lease_seconds=30.0, clock=clock
            ),
        )  # fmt: skip
        turn = Turn(
            topics, shards=shards, outages=ledger.outages, holds=ledger.holds, candidates=ledger.candidates,
            repairs=ledger.repairs, clock=clock,
        )  # fmt: skip
        for topic in turn.begin():
            for shard in topic.shards_of(topic.subscriptions[0].subscription):
                assert shards.run(shard).done is not None
            turn.ended(topic)
        assert turn.begin() == []  # the first rows of rest; whether the ledger can keep them is asked once
        for _ in range(2 if is_first_of_a_minute else 0):
            clock.advance(15)  # half of a lease
            assert turn.begin() == []
        clock.advance(15)
        for topic in topics:
            turn.ended(topic)
        with exchanges(engine, monkeypatch) as counted:
            assert turn.begin() == []
    engine.dispose()
    return counted


@pytest.mark.parametrize(
    ("is_first_of_a_minute", "cost"),
    [
        (False, {"redis": 2, "sql": 4, "rows": 0, "transactions": 0}),
        (True, {"redis": 2, "sql": 6, "rows": 1, "transactions": 1}),
    ],
    ids=["most", "one a minute"],
)
def test_a_turn_at_rest_costs_the_same_exchanges_for_five_and_for_fifty_subscriptions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_first_of_a_minute: bool, cost: dict[str, int]
) -> None:
    """Rows are those of a subscription. The entry among the sharers is renewed in it, as in each third of a lease."""
    for number in (5, 50):
        counted = cost_of_a_turn(number, tmp_path, monkeypatch, is_first_of_a_minute=is_first_of_a_minute)
        assert counted | {"rows": counted["rows"] / number} == cost, number
