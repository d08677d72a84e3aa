"""A turn begins with one look and four statements, however many topics rest; those with something to do have rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import fakeredis
import pytest
import redis
import sqlalchemy as sa

from reconciler.clock import ManualClock
from reconciler.contract.tables import HoldKind
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.plan import TopicPlan
from reconciler.policy.round import ReconcileRound
from reconciler.policy.shard_rounds import REST_SECONDS_MAX, ShardRounds
from reconciler.policy.turn import Turn
from reconciler.shards.client import RoundRedis
from reconciler.shards.memory import RedisShardMemory
from reconciler.shards.round_leases import RedisRoundLeases
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import ledger_metadata
from tests.unit.policy.world import ENVIRONMENT, TOPIC, Events, World, key


def turn_of(world: World, process: ReconcileRound) -> Turn:
    """As a process begins its turns."""
    return Turn(
        [world.topic],
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


# ---- what a turn costs


@contextmanager
def exchanges(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Commands and pipelines sent to Redis, and statements, inside the block."""
    counted = {"redis": 0, "sql": 0}

    def counting(sent: Callable[..., Any]) -> Callable[..., Any]:
        def counts(*arguments: Any, **named: Any) -> Any:
            counted["redis"] += 1
            return sent(*arguments, **named)

        return counts

    def statement(*told: Any) -> None:
        counted["sql"] += not told[2].startswith("BEGIN")

    sa.event.listen(engine, "before_cursor_execute", statement)
    with monkeypatch.context() as patch:
        patch.setattr(redis.Redis, "execute_command", counting(redis.Redis.execute_command))
        patch.setattr(redis.client.Pipeline, "execute", counting(redis.client.Pipeline.execute))
        yield counted
    sa.event.remove(engine, "before_cursor_execute", statement)


def topic_named(name: str) -> TopicPlan:
    """Of one subscription."""
    topic = World(shards=4).topic
    (plan,) = topic.subscriptions
    return replace(
        topic, topic=name, subscriptions=(replace(plan, subscription=replace(plan.subscription, topic=name)),)
    )


def cost_of_a_turn(number: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Of so many subscriptions at rest, each of a topic of its own."""
    engine, clock = open_engine(f"sqlite:///{folder / f'{number}.db'}", must_exist=False), ManualClock()
    ledger_metadata.create_all(engine)
    ledger = SqlLedger(engine)
    topics = [topic_named(f"T{n}") for n in range(number)]
    with fakeredis.FakeRedis() as client:
        shards = ShardRounds(
            memory=RedisShardMemory(RoundRedis(client=client)), leases=RedisRoundLeases(client, clock=clock),
            rounds=ledger.rounds, owner="one", lease_seconds=30.0, clock=clock, events=Events(),
        )  # fmt: skip
        turn = Turn(
            topics, shards=shards, outages=ledger.outages, holds=ledger.holds, candidates=ledger.candidates,
            repairs=ledger.repairs, clock=clock,
        )  # fmt: skip
        for topic in turn.begin():
            for shard in topic.shards_of(topic.subscriptions[0].subscription):
                assert shards.run(shard).done is not None
            turn.ended(topic)
        clock.advance(15)  # half of a lease
        with exchanges(engine, monkeypatch) as counted:
            assert turn.begin() == []
    engine.dispose()
    return counted


def test_a_turn_at_rest_costs_the_same_exchanges_for_five_and_for_fifty_subscriptions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_five, of_fifty = (cost_of_a_turn(number, tmp_path, monkeypatch) for number in (5, 50))
    assert of_five == of_fifty == {"redis": 1, "sql": 4}
