"""Where Redis has one key, as the page of a message tells it."""

from __future__ import annotations

import pytest

from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Shard
from reconciler.errors import InvariantViolation
from reconciler.policy.ports.rounds import KeyPlaces
from reconciler.shards.key_places import places_of
from tests.contract.ledger.rows import key
from tests.contract.ledger.shards import InRedis

pytestmark = pytest.mark.redis


def places(direct: InRedis, of: Shard, number: int = 1) -> KeyPlaces:
    return places_of(direct.client, of, key(number), commit_generations=2)


def test_a_key_is_told_to_be_where_it_was_before_the_last_round(direct: InRedis, of: Shard) -> None:
    epoch = direct.memory.begin_epoch(of)
    assert not places(direct, of).is_anywhere
    direct.announce(of, [key(1)], following=5)
    assert places(direct, of) == KeyPlaces(is_announced=True, first_seen_ms=None, is_consumed=False)
    first = direct.memory.take_round(of, epoch=epoch)
    assert first is not None
    pending = KeyPlaces(is_announced=False, first_seen_ms=first.at_ms, is_consumed=False)
    assert places(direct, of) == pending
    direct.consume(of, [key(1)])
    assert places(direct, of) == KeyPlaces(is_announced=False, first_seen_ms=first.at_ms, is_consumed=True)
    for _ in range(2):
        direct.memory.take_round(of, epoch=epoch)
        assert places(direct, of) == KeyPlaces(is_announced=False, first_seen_ms=None, is_consumed=True)
    direct.memory.take_round(of, epoch=epoch)
    assert not places(direct, of).is_anywhere
    assert not places(direct, of, 2).is_anywhere


@pytest.mark.parametrize("name", ["half", "pending", "commit"])
def test_a_key_of_a_wrong_type_is_taken_for_nothing(direct: InRedis, of: Shard, name: str) -> None:
    direct.client.set(getattr(ShardKeys(of), name), "x")
    with pytest.raises(InvariantViolation, match="wrong type"):
        places(direct, of)
