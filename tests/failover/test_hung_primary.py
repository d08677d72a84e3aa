"""A primary that hangs is noticed by the next command; a round that takes long still gets its reply."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.unique_key import member_of
from reconciler.errors import RedisAway
from reconciler.shards.client import RoundRedis, open_redis
from reconciler.shards.memory import RedisShardMemory
from tests.contract.ledger.rows import key, shard
from tests.services.redis_server import RedisServer

pytestmark = [pytest.mark.redis, pytest.mark.timeout(60)]

OF = shard("hung")


class Interrupted(RedisShardMemory):
    """Something happens between WATCH and EXEC."""

    def __init__(self, rounds: RoundRedis, before_exec: Callable[[], object]) -> None:
        super().__init__(rounds)
        self._before_exec = before_exec

    def _command(self, *arguments: Any, **named: Any) -> tuple[Any, ...]:
        self._before_exec()
        return super()._command(*arguments, **named)


def test_rounds_do_not_wait_a_rounds_time_out_for_a_primary_that_hangs(redis_server: RedisServer) -> None:
    # With the round's time-out at every command this test would not end within its own.
    with closing(open_redis(redis_server.url, timeout_seconds=1.0, round_timeout_seconds=600)) as rounds:
        memory = RedisShardMemory(rounds)
        epoch = memory.begin_epoch(OF)
        assert memory.take_round(OF, epoch=epoch) is not None
        redis_server.freeze()
        for _ in range(3):
            with pytest.raises(RedisAway):
                memory.take_round(OF, epoch=epoch)
        redis_server.thaw()


def test_a_round_that_takes_longer_than_other_commands_may_still_gets_its_reply(redis_server: RedisServer) -> None:
    with closing(open_redis(redis_server.url, timeout_seconds=1.0, round_timeout_seconds=30)) as rounds:
        thaw = threading.Timer(3.0, redis_server.thaw)

        def hang() -> None:
            redis_server.freeze()
            thaw.start()

        memory = Interrupted(rounds, hang)
        epoch = memory.begin_epoch(OF)
        rounds.client.sadd(ShardKeys(OF).half, member_of(key(1)))
        done = memory.take_round(OF, epoch=epoch)
        thaw.join()
        assert done is not None
        assert done.counts.pending_added == 1

        # Its patience has ended with it.
        redis_server.freeze()
        with pytest.raises(RedisAway):
            memory.state(OF)
        with pytest.raises(RedisAway):
            RedisShardMemory(rounds).take_round(OF, epoch=epoch)
        redis_server.thaw()
