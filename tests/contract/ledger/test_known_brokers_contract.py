"""ports.KnownBrokers on every backend."""

from __future__ import annotations

import pytest

from reconciler.clock import ManualClock
from reconciler.contract.row_rules import BROKERS_MAX
from reconciler.ledger.database import LedgerDatabase
from reconciler.ledger.known_brokers import SqlKnownBrokers
from tests.contract.ledger.conftest import DatabaseWorld, World

TOPIC = "ORDERS"
KEEP_SECONDS = 72 * 3600.0


def note(world: World, *seen: str, keep_seconds: float = KEEP_SECONDS, topic: str = TOPIC) -> set[str]:
    return set(world.ledger.brokers.note(world.environment, topic, seen, keep_seconds=keep_seconds))


def test_a_broker_that_left_the_route_is_still_known(world: World) -> None:
    assert note(world, "broker-a", "broker-b") == {"broker-a", "broker-b"}
    assert note(world, "broker-a") == {"broker-a", "broker-b"}
    assert note(world) == {"broker-a", "broker-b"}


def test_it_is_forgotten_only_after_the_retention_since_a_round_first_missed_it(world: World) -> None:
    note(world, "broker-a", "broker-b")
    world.clock.advance(10 * KEEP_SECONDS)
    assert note(world, "broker-a") == {"broker-a", "broker-b"}, "nobody looked while nothing ran: it is missed from now"
    world.clock.advance(KEEP_SECONDS)
    assert note(world, "broker-a") == {"broker-a", "broker-b"}
    world.clock.advance(0.001)
    assert note(world, "broker-a") == {"broker-a"}
    assert note(world) == {"broker-a"}


def test_a_broker_that_came_back_is_missed_anew(world: World) -> None:
    note(world, "broker-a", "broker-b")
    note(world, "broker-a")
    world.clock.advance(KEEP_SECONDS - 1)
    note(world, "broker-a", "broker-b")
    world.clock.advance(2)
    assert note(world, "broker-a") == {"broker-a", "broker-b"}
    world.clock.advance(KEEP_SECONDS)
    assert note(world, "broker-a") == {"broker-a", "broker-b"}


def test_a_clock_of_the_ledger_that_jumps_ahead_forgets_no_broker(database_world: DatabaseWorld) -> None:
    world, host = database_world, ManualClock()
    world.clock.step_wall(host.now_ms() / 1000 - world.clock.now_ms() / 1000)
    brokers = SqlKnownBrokers(LedgerDatabase(world.ledger.database.engine, now=world.ledger.database._now, clock=host))

    def known() -> set[str]:
        return set(brokers.note(world.environment, TOPIC, ["broker-a"], keep_seconds=KEEP_SECONDS))

    brokers.note(world.environment, TOPIC, ["broker-a", "broker-b"], keep_seconds=KEEP_SECONDS)
    assert known() == {"broker-a", "broker-b"}, "missed from now"
    world.clock.step_wall(40 * 86_400)
    assert known() == {"broker-a", "broker-b"}
    host.advance(40 * 86_400)
    assert known() == {"broker-a"}, "it is missed for so long by both clocks"


def test_a_route_that_nobody_tells_is_no_route_without_brokers(world: World) -> None:
    note(world, "broker-a")
    unknown = world.ledger.brokers.note(world.environment, TOPIC, None, keep_seconds=KEEP_SECONDS)
    assert unknown == {"broker-a"}
    world.clock.advance(KEEP_SECONDS + 1)
    assert note(world) == {"broker-a"}, "it was not missed before"


def test_topics_and_environments_have_brokers_of_their_own(world: World) -> None:
    note(world, "broker-a")
    assert note(world, "Broker-A", topic="orders") == {"Broker-A"}
    assert world.ledger.brokers.note("another", TOPIC, ["broker-c"], keep_seconds=1) == {"broker-c"}
    assert note(world, "broker-A") == {"broker-a", "broker-A"}


@pytest.mark.parametrize("name", ["x" * 161, "nul\x00", "lone \ud800"])
def test_a_name_that_a_database_would_change_is_left_out(world: World, name: str) -> None:
    assert note(world, "brök/er", name) == {"brök/er"}
    assert note(world, "brök/er", name) == {"brök/er"}


def test_a_hostile_route_does_not_fill_the_table(world: World) -> None:
    assert len(note(world, *(f"broker-{number:05d}" for number in range(BROKERS_MAX + 5)))) == BROKERS_MAX
