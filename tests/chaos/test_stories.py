"""What a run tells about slow losses and repairs in vain: nothing is blamed on the wrong leg or excused as a race."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
import sqlalchemy as sa

from tests.chaos.checker import QuietWindow, judge
from tests.chaos.in_vain import Blow, Send, sort_out
from tests.chaos.job import ChaosJob
from tests.chaos.legs import way_of
from tests.chaos.planted import run
from tests.chaos.recovery import still_recovering
from tests.chaos.truth import NOW_MS
from tests.services.redis_server import RedisServer

pytestmark = [pytest.mark.sql, pytest.mark.xdist_group("chaos")]

REPAIR = (
    "INSERT INTO reconciler_repair (environment, topic, scope, unique_key, state, rung, attempts, next_at_ms,"
    " created_at_ms, first_sent_at_ms) VALUES ('chaos', 'T', '*', 'A', 'DONE', 'end', 1, 0, 5000, 5200)"
)
CANDIDATE = (
    "INSERT INTO reconciler_candidate (environment, topic, consumer_group, unique_key, shard, state, verdict,"
    " evidence, attempts, first_seen_ms, next_at_ms, updated_at_ms) VALUES ('chaos', 'T', 'stock', 'A', 0, 'OPEN',"
    " 'UNKNOWN', '{\"reason\": \"committed copy: broker-2 said nothing\"}', 1, 2500, 0, 0)"
)


def test_each_leg_ends_where_its_moment_was_noted() -> None:
    moments = {"committed": 0, "announced": 1000, "seen": 1500, "judged": 4500, "proved": 7000, "sent": 7100}
    way = way_of("A", {**moments, "effect": 7300})
    assert way.total_seconds == 7.3
    assert way.legs == {"announced": 1.0, "seen": 0.5, "judged": 3.0, "proved": 2.5, "sent": 0.1, "effect": 0.2}


def test_moments_that_are_missing_or_out_of_order_make_no_leg_longer_than_it_was() -> None:
    moments = {"committed": 0, "announced": 2000, "seen": 1500, "judged": None, "proved": None, "sent": 9000}
    way = way_of("A", {**moments, "effect": 3000})
    assert way.legs == {"announced": 2.0, "seen": 0.0, "effect": 1.0}
    assert sum(way.legs.values()) == way.total_seconds


@pytest.mark.parametrize(
    ("stored_ms", "sends", "unnecessary", "raced"),
    [
        ([100], [(150, 160)], 0, 0),
        ([100, 200], [(150, 160)], 1, 0),
        ([100, 200], [(50, 160)], 0, 1),
        ([100, 200, 300], [(50, 90), (150, 260)], 1, 1),
        ([100, 200], [(50, 90), (150, 160), (170, 180)], 1, 0),
        ([], [(50, 90)], 0, 0),
    ],
)
def test_a_copy_that_was_there_before_the_claim_is_no_race(
    stored_ms: list[int], sends: list[tuple[int, int]], unnecessary: int, raced: int
) -> None:
    made = [Send(claimed_ms=claimed, written_ms=written) for claimed, written in sends]
    assert sort_out(stored_ms, made) == (unnecessary, raced)


@pytest.mark.parametrize(("claimed_ms", "unnecessary", "raced"), [(4900, 1, 0), (4700, 0, 1)])
def test_a_repair_in_vain_is_told_with_the_faults_of_its_time(
    engine: sa.Engine, claimed_ms: int, unnecessary: int, raced: int
) -> None:
    run(
        engine,
        REPAIR,
        "DELETE FROM repair_steps",
        "INSERT INTO repair_steps (at_ms, key, state, rung, attempts, token) VALUES"
        f" ({claimed_ms}, 'A', 'OPEN', 'end', 0, 'me/1'), (5100, 'A', 'SENDING', 'end', 1, 'me/1')",
        "INSERT INTO copies VALUES ('A', 'broker-1', 0, 0, 4800), ('A', 'broker-1', 1, 0, 5200)",
    )
    blows = [Blow(name="lose_ends", since_ms=1400, until_ms=1600), Blow(name="later", since_ms=9000, until_ms=9100)]
    in_vain = judge(engine, [], blows).in_vain
    assert (in_vain.unnecessary, in_vain.raced) == (unnecessary, raced)
    (story,) = in_vain.stories
    assert "lose_ends" in story
    assert "later" not in story
    assert "SENDING end, attempts 1" in story


def test_the_slowest_loss_is_told_with_what_was_not_known(engine: sa.Engine) -> None:
    run(engine, REPAIR, CANDIDATE, "UPDATE verdicts SET at_ms = 4500", "UPDATE effects SET at_ms = 5400")
    judgement = judge(engine, [QuietWindow(producer_group="solo", since_ms=1000, until_ms=2000)])
    assert judgement.latency_seconds["quiet_repaired"]["max"] == 3.9
    assert judgement.legs_seconds["judged"]["max"] == 2.0
    ((_, story),) = judgement.slowest
    assert "broker-2 said nothing" in story


@pytest.mark.parametrize(
    ("statement", "sign"),
    [
        ("UPDATE reconciler_outbox SET state = 'NEW'", "2 rows to be announced"),
        (f"UPDATE reconciler_outbox SET created_at_ms = {NOW_MS} - 10000", "4 effects that are late"),
        ("UPDATE reconciler_repair SET state = 'SENDING'", "1 repairs to be sent"),
        ("INSERT INTO reconciler_outage VALUES ('chaos', 0, 'AWAY', 'me', NULL, 0, NULL)", "1 open outages"),
        ("DELETE FROM reconciler_round WHERE shard = 0", "2 shards without a round"),
    ],
)
def test_no_quiet_phase_begins_while_something_is_still_broken(
    engine: sa.Engine, memory: redis.Redis, statement: str, sign: str
) -> None:
    job = whole(engine)
    assert still_recovering(engine, memory, job) == ""
    run(engine, statement)
    assert still_recovering(engine, memory, job) == sign


def test_no_quiet_phase_begins_while_old_keys_wait_that_nobody_has_looked_at(
    engine: sa.Engine, memory: redis.Redis
) -> None:
    """After Redis came back with an old copy new losses have to wait behind them."""
    job = whole(engine)
    now_ms = memory.time()[0] * 1000
    memory.zadd("reconciler:{chaos}:0:pending", {"A": now_ms - 9_500, "B": now_ms - 9_500, "C": now_ms})
    assert still_recovering(engine, memory, job) == "2 keys nobody has looked at"
    run(engine, CANDIDATE)
    assert still_recovering(engine, memory, job) == "1 keys nobody has looked at"


@pytest.fixture
def memory(shared_redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(f"{shared_redis_server.url}/63") as client:
        client.flushdb()
        yield client
        client.flushdb()


def whole(engine: sa.Engine) -> ChaosJob:
    """Rounds run, and a repair is done."""
    job = ChaosJob(folder="", seed=0, name_servers="", redis_url="", database_url="", rate_per_second=1.0)
    rounds = (
        "INSERT INTO reconciler_round SELECT 'chaos', 'T', g, s, 'epoch', 1, 0, '{}', 0, 0, 0, 0, 0, 0, 0,"
        f" {NOW_MS} FROM unnest(ARRAY['billing', 'stock']) AS g, generate_series(0, {job.shards - 1}) AS s"
    )
    run(engine, REPAIR, rounds)
    return job
