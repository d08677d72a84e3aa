"""A Redis that is silent for a moment: what was consumed meanwhile is recorded afterwards, and nothing waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest
import redis

from checkback_consumers.recorder import CommitRecorder
from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.unique_key import key_of
from reconciler.errors import RedisAway
from reconciler.shards.access import open_client
from reconciler.shards.sets import RedisCommitSets
from tests.polling import eventually
from tests.services.redis_server import RedisServer
from tests.unit.consumers.messages import new_key

pytestmark = pytest.mark.redis

SHARDS = 4
SUBSCRIPTION = Subscription(environment="test", topic="ORDERS", group="billing")
SILENCE_SECONDS = 0.3
#: The product's 10 s may be over when a busy machine tries again.
KEEP_SECONDS = 600.0

Start = Callable[..., RedisServer]


@pytest.fixture
def server(new_redis_server: Start) -> RedisServer:
    return new_redis_server()


@pytest.fixture
def client(server: RedisServer) -> Iterator[redis.Redis]:
    with closing(open_client(server.url)) as opened:
        assert isinstance(opened, redis.Redis)
        yield opened


def members(client: redis.Redis, name: Callable[[ShardKeys], str]) -> set[str]:
    found: set[str] = set()
    for number in range(SHARDS):
        stored: Any = client.smembers(name(ShardKeys(Shard(subscription=SUBSCRIPTION, number=number))))
        found |= {key_of(member) for member in stored}
    return found


def committed(client: redis.Redis) -> set[str]:
    return members(client, lambda keys: keys.commit)


def test_300_ms_of_silence_cost_no_key(server: RedisServer, client: redis.Redis) -> None:
    """With the product's own 50 ms, so time-outs happen; how many, and when, is the machine's."""
    consumed: list[list[str]] = [[] for _ in range(8)]
    is_over = threading.Event()
    with CommitRecorder.open(
        server.url, environment="test", group="billing", shards=SHARDS, keep_seconds=KEEP_SECONDS
    ) as recorder:

        def consume(mine: list[str]) -> None:
            while not is_over.wait(0.005):  # the pace of a business; the bound of memory is another test's
                mine.append(new_key())
                recorder.record("ORDERS", mine[-1])

        threads = [threading.Thread(target=consume, args=(mine,)) for mine in consumed]
        try:
            for thread in threads:
                thread.start()
            eventually(lambda: recorder.state().recorded > 100, within_seconds=60)
            server.freeze()
            silence = threading.Timer(SILENCE_SECONDS, lambda: None)
            silence.start()
            eventually(lambda: recorder.state().is_away, within_seconds=60)
            silence.join()
            server.thaw()
            eventually(lambda: not recorder.state().is_away and not recorder.state().waiting, within_seconds=60)
        finally:
            is_over.set()
        for thread in threads:
            thread.join(60)
        assert recorder.flush(timeout_seconds=60)
        state = recorder.state()
        keys = {key for mine in consumed for key in mine}
        assert (state.missed, state.recorded) == (0, len(keys))
    assert committed(client) == keys


class LostAnswers:
    """Commit sets in Redis whose answers get lost: what was asked is done, and looks like a time-out."""

    def __init__(self, client: redis.Redis) -> None:
        self._sets = RedisCommitSets(client)
        self.lost = threading.Event()
        self.loses = True

    def record(self, subscription: Subscription, unique_keys: Sequence[str], *, shards: int) -> None:
        self._sets.record(subscription, unique_keys, shards=shards)
        if self.loses:
            self.lost.set()
            raise RedisAway("the answer was lost")

    def stored_shards(self, subscription: Subscription) -> int | None:
        return self._sets.stored_shards(subscription)


def test_a_late_try_lands_in_the_youngest_commit_set_whatever_rounds_did_meanwhile(client: redis.Redis) -> None:
    sink = LostAnswers(client)
    keys = {new_key() for _ in range(100)}
    with CommitRecorder(
        sink, environment="test", group="billing", shards=SHARDS, keep_seconds=KEEP_SECONDS
    ) as recorder:
        recorder.record_many("ORDERS", sorted(keys), wait=True)
        assert sink.lost.wait(60)
        for number in range(SHARDS):  # as a round rotates them
            names = ShardKeys(Shard(subscription=SUBSCRIPTION, number=number))
            client.rename(names.commit, names.commit_generation(1))
        sink.loses = False
        assert recorder.flush(timeout_seconds=60)
        assert (recorder.state().recorded, recorder.state().missed) == (100, 0)
    assert committed(client) == keys
    assert members(client, lambda names: names.commit_generation(1)) == keys  # what the first try had written
