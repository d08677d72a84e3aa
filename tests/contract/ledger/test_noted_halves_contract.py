"""ports.NotedHalves on every backend."""

from __future__ import annotations

from dataclasses import replace

from reconciler.policy.commit_query import digest_of
from reconciler.policy.ports.ledger import NotedHalf
from tests.contract.ledger.conftest import World
from tests.contract.ledger.rows import key

TOPIC = "ORDERS"
A, B = digest_of("a"), digest_of("b")


def half(number: int, digest: bytes | None = A, **changed: object) -> NotedHalf:
    made = NotedHalf(unique_key=key(number), broker="broker-a", key_digest=digest, tag_digest=None, stored_at_ms=5)
    return replace(made, **changed)  # type: ignore[arg-type]


def test_halves_that_share_a_key_are_found_together(world: World) -> None:
    halves = world.ledger.halves
    first, second, other = half(1), half(2, tag_digest=B), half(3, B)
    assert halves.note(world.environment, TOPIC, [second, first])
    assert halves.note(world.environment, TOPIC, [other, half(4, None)])
    found = halves.of_keys(world.environment, TOPIC, {A, B, digest_of("c")})
    assert found is not None
    assert {digest: sorted(of, key=lambda one: one.unique_key) for digest, of in found.items()} == {
        A: [first, second],
        B: [other],
        digest_of("c"): [],
    }


def test_a_half_of_two_brokers_is_noted_at_both_and_again_changes_nothing(world: World) -> None:
    halves, both = world.ledger.halves, [half(1), half(1, broker="broker-b", stored_at_ms=9)]
    for _ in range(2):
        assert halves.note(world.environment, TOPIC, [*both, *both])
    found = halves.of_keys(world.environment, TOPIC, [A])
    assert found is not None
    assert sorted(found[A], key=lambda one: one.broker) == both


def test_a_key_that_is_read_otherwise_takes_the_place_of_the_former_one_where_it_is_to(world: World) -> None:
    halves = world.ledger.halves
    halves.note(world.environment, TOPIC, [half(1, None), half(2)])
    again = [half(1, A), half(2, B)]
    for replaces, expected in ((False, {A: [key(2)], B: []}), (True, {A: [key(1)], B: [key(2)]})):
        halves.note(world.environment, TOPIC, again, replaces=replaces)
        found = halves.of_keys(world.environment, TOPIC, [A, B])
        assert found is not None
        assert {digest: [one.unique_key for one in of] for digest, of in found.items()} == expected


def test_another_topic_and_environment_have_halves_of_their_own(world: World) -> None:
    halves = world.ledger.halves
    halves.note(world.environment, "OTHERS", [half(1)])
    halves.note(f"{world.environment}-2", TOPIC, [half(2)])
    assert halves.of_keys(world.environment, TOPIC, [A]) == {A: []}
    assert not halves.noted(world.environment, TOPIC, [key(1), key(2)])


def test_the_keys_of_noted_halves_are_known_whatever_the_halves_name(world: World) -> None:
    halves = world.ledger.halves
    halves.note(world.environment, TOPIC, [half(1), half(1, broker="broker-b"), half(2, None)])
    assert set(halves.noted(world.environment, TOPIC, [key(1), key(2), key(3)])) == {key(1), key(2)}


def test_nothing_is_noted_or_asked_of_nothing(world: World) -> None:
    assert world.ledger.halves.note(world.environment, TOPIC, [])
    assert world.ledger.halves.of_keys(world.environment, TOPIC, []) == {}
    assert not world.ledger.halves.noted(world.environment, TOPIC, [])
