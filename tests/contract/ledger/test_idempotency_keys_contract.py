"""Idempotency keys on every database: a request that is sent twice is done once."""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from reconciler.contract.row_rules import NAME_CHARACTERS
from reconciler.errors import InvalidValue
from reconciler.telling.ports.idempotency import KeyAnswer, KeyedRequest, KeyUse
from tests.contract.ledger.conftest import DatabaseWorld

LEASE_SECONDS = 60.0
REQUEST = KeyedRequest(by="anna", key="8e03978e", digest=hashlib.sha256(b"POST /hold").digest())
ANSWER = '{"held": true, "reason": "€"}'


def begin(world: DatabaseWorld, request: KeyedRequest = REQUEST) -> KeyAnswer:
    return world.ledger.idempotency_keys.begin(world.environment, request, lease_seconds=LEASE_SECONDS)


def find(world: DatabaseWorld, *, by: str = REQUEST.by) -> KeyAnswer | None:
    return world.ledger.idempotency_keys.find(world.environment, by=by, key=REQUEST.key)


def answer(world: DatabaseWorld, token: str) -> bool:
    keys = world.ledger.idempotency_keys
    return keys.answer(world.environment, REQUEST, token=token, status=201, answer=ANSWER)


def test_a_repeated_request_gets_the_first_ones_answer(database_world: DatabaseWorld) -> None:
    first = begin(database_world)
    assert (first.use, first.is_again) == (KeyUse.FIRST, False)
    assert begin(database_world).use is KeyUse.UNDER_WAY
    assert find(database_world) == KeyAnswer(use=KeyUse.UNDER_WAY)
    assert answer(database_world, first.token)
    database_world.clock.advance(2 * LEASE_SECONDS)
    kept = KeyAnswer(use=KeyUse.ANSWERED, status=201, answer=ANSWER)
    assert begin(database_world) == kept
    assert find(database_world) == kept
    assert not answer(database_world, first.token), "the first answer stays"


def test_another_request_with_the_same_key_gets_an_answer_that_is_not_its_own(database_world: DatabaseWorld) -> None:
    other = replace(REQUEST, digest=hashlib.sha256(b"POST /resume").digest())
    first = begin(database_world)
    assert begin(database_world, other).use is KeyUse.OTHER_REQUEST
    database_world.clock.advance(2 * LEASE_SECONDS)
    assert begin(database_world, other).use is KeyUse.OTHER_REQUEST, "nor does it take a dead one's place"
    assert answer(database_world, first.token)
    assert begin(database_world, other) == KeyAnswer(use=KeyUse.OTHER_REQUEST)


def test_two_users_environments_or_spellings_share_a_key(database_world: DatabaseWorld) -> None:
    begin(database_world)
    assert find(database_world, by="ben") is None
    assert begin(database_world, replace(REQUEST, by="ben")).use is KeyUse.FIRST
    assert begin(database_world, replace(REQUEST, by="Anna")).use is KeyUse.FIRST
    assert begin(database_world, replace(REQUEST, key=REQUEST.key.upper())).use is KeyUse.FIRST
    elsewhere = database_world.ledger.idempotency_keys.begin("another", REQUEST, lease_seconds=LEASE_SECONDS)
    assert elsewhere.use is KeyUse.FIRST
    database_world.ledger.idempotency_keys.forget("another", REQUEST, token=elsewhere.token)


def test_a_process_that_died_in_a_request_blocks_its_key_for_ever(database_world: DatabaseWorld) -> None:
    dead = begin(database_world)
    database_world.clock.advance(LEASE_SECONDS)
    assert begin(database_world).use is KeyUse.UNDER_WAY
    database_world.clock.advance(0.001)
    heir = begin(database_world)
    assert (heir.use, heir.token != dead.token, heir.is_again) == (KeyUse.FIRST, True, True)
    assert not answer(database_world, dead.token), "it was only slow, and its answer comes too late"
    assert answer(database_world, heir.token)


def test_a_process_that_died_before_the_clock_was_set_back_blocks_its_key_until_that_time_is_there_again(
    database_world: DatabaseWorld,
) -> None:
    assert begin(database_world).use is KeyUse.FIRST
    database_world.clock.step_wall(-3_600)
    assert begin(database_world).use is KeyUse.UNDER_WAY
    database_world.clock.advance(LEASE_SECONDS - 1)
    assert begin(database_world).use is KeyUse.UNDER_WAY
    database_world.clock.advance(1)
    heir = begin(database_world)
    assert (heir.use, heir.is_again) == (KeyUse.FIRST, True)
    assert begin(database_world).use is KeyUse.UNDER_WAY


def test_a_request_that_changed_nothing_cannot_be_sent_again(database_world: DatabaseWorld) -> None:
    first = begin(database_world)
    keys = database_world.ledger.idempotency_keys
    keys.forget(database_world.environment, REQUEST, token="another")
    assert begin(database_world).use is KeyUse.UNDER_WAY
    keys.forget(database_world.environment, REQUEST, token=first.token)
    again = begin(database_world)
    assert again.use is KeyUse.FIRST
    assert answer(database_world, again.token)
    keys.forget(database_world.environment, REQUEST, token=again.token)
    assert begin(database_world).use is KeyUse.ANSWERED


@pytest.mark.parametrize("key", ["", "x" * (NAME_CHARACTERS + 1), "nul\x00"])
def test_a_key_that_would_be_kept_as_another_one_is_taken(database_world: DatabaseWorld, key: str) -> None:
    with pytest.raises(InvalidValue, match="Idempotency-Key"):
        begin(database_world, replace(REQUEST, key=key))


def test_of_eight_equal_requests_at_once_two_are_the_first(database_world: DatabaseWorld) -> None:
    barrier = threading.Barrier(8)

    def one(_number: int) -> KeyUse:
        barrier.wait(60)
        return begin(database_world).use

    with ThreadPoolExecutor(8) as pool:
        uses = list(pool.map(one, range(8)))
    assert sorted(uses, key=lambda use: use.value) == [KeyUse.FIRST] + 7 * [KeyUse.UNDER_WAY]
