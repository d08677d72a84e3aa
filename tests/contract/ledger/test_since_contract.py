"""ports.Rounds: since when a subscription answers for messages, on every backend."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from reconciler.contract.subscription import Subscription
from reconciler.ledger.sql_ledger import SqlLedger
from tests.contract.ledger.conftest import DatabaseWorld, World
from tests.contract.ledger.rows import entry, round_done, shard, subscription


def test_the_time_of_the_first_round_is_noted_once_and_whoever_comes_later_reads_it(world: World) -> None:
    of, rounds = subscription(world.environment), world.ledger.rounds
    assert rounds.since_ms(of) is None
    at_ms = world.clock.now_ms() - 5
    assert rounds.begin(of, at_ms=at_ms) == at_ms
    world.clock.advance(60)
    assert rounds.begin(of, at_ms=world.clock.now_ms()) == rounds.since_ms(of) == at_ms
    assert rounds.begin(of, at_ms=None) == at_ms
    assert rounds.since_ms(subscription(world.environment, topic="OTHERS")) is None
    assert rounds.since_ms(subscription(world.environment, group="shipping")) is None


def test_a_caller_whose_clock_is_ahead_of_the_ledgers_notes_the_ledgers_time(world: World) -> None:
    of, now_ms = subscription(world.environment), world.clock.now_ms()
    assert world.ledger.rounds.begin(of, at_ms=now_ms + 3_600_000) == now_ms


@pytest.mark.parametrize("known_by", ["a round", "a candidate", "a floor", "Redis"])
def test_a_subscription_that_is_known_already_has_no_bound(world: World, known_by: str) -> None:
    of, ledger = shard(world.environment), world.ledger
    match known_by:
        case "a round":
            ledger.rounds.store(round_done(of, 1, 1_000))
        case "a candidate":
            ledger.candidates.record(of, [entry(1)])
        case "a floor":
            ledger.rounds.raise_floor(of.subscription, {"broker-a/3": 7})
    at_ms = None if known_by == "Redis" else world.clock.now_ms()
    assert ledger.rounds.begin(of.subscription, at_ms=at_ms) == ledger.rounds.since_ms(of.subscription) == 0


def test_processes_that_begin_together_agree(database_world: DatabaseWorld) -> None:
    of = subscription(database_world.environment)
    engine, now_ms = database_world.ledger.database.engine, database_world.clock.now_ms()
    ledgers = [SqlLedger(engine) for _ in range(4)]

    def begin(numbered: tuple[int, SqlLedger]) -> int:
        return numbered[1].rounds.begin(of, at_ms=now_ms - numbered[0])

    with ThreadPoolExecutor(4) as threads:
        noted = set(threads.map(begin, enumerate(ledgers)))
    assert noted == {SqlLedger(engine).rounds.since_ms(of)}


def test_a_round_that_another_process_stored_meanwhile_moves_nothing(database_world: DatabaseWorld) -> None:
    of: Subscription = subscription(database_world.environment)
    engine, at_ms = database_world.ledger.database.engine, database_world.clock.now_ms()
    late = SqlLedger(engine)
    assert late.rounds.since_ms(of) is None
    assert database_world.ledger.rounds.begin(of, at_ms=at_ms) == at_ms
    database_world.ledger.rounds.store(round_done(shard(database_world.environment), 1, at_ms))
    assert late.rounds.begin(of, at_ms=at_ms + 1) == at_ms
