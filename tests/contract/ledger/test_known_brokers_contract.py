"""ports.KnownBrokers on every backend."""

from __future__ import annotations

import pytest

from reconciler.contract.row_rules import BROKERS_MAX
from tests.contract.ledger.conftest import World

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
