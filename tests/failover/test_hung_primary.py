"""A primary that hangs is noticed by the next command; a round that takes long still gets its reply."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import pytest

from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.unique_key import member_of
from reconciler.errors import RedisAway
from reconciler.policy.ports.rounds import RoundDone
from reconciler.shards.client import RoundRedis, open_redis
from reconciler.shards.memory import RedisShardMemory
from tests.contract.ledger.rows import key, shard
from tests.polling import eventually
from tests.services.redis_server import RedisServer

pytestmark = [pytest.mark.redis, pytest.mark.timeout(60)]

OF = shard("hung")
#: Of plain commands. A busy machine may need longer even for a primary that answers: whoever needs that asks again.
TIMEOUT_SECONDS = 1.0
#: With it at every command no test here would end within its own time-out.
ROUND_TIMEOUT_SECONDS = 600.0


class Interrupted(RedisShardMemory):
    """Something happens between WATCH and EXEC."""

    def __init__(self, rounds: RoundRedis, before_exec: Callable[[], object]) -> None:
        super().__init__(rounds)
        self._before_exec = before_exec
        self.is_interrupted = False

    def _command(self, *arguments: Any, **named: Any) -> tuple[Any, ...]:
        self.is_interrupted = True
        self._before_exec()
        return super()._command(*arguments, **named)


@pytest.fixture
def epoch(redis_server: RedisServer) -> str:
    """That of a shard with one key."""
    with closing(open_redis(redis_server.url, timeout_seconds=60.0)) as patient:
        patient.client.sadd(ShardKeys(OF).half, member_of(key(1)))
        return RedisShardMemory(patient).begin_epoch(OF)


@pytest.fixture
def rounds(redis_server: RedisServer) -> Iterator[RoundRedis]:
    with closing(
        open_redis(redis_server.url, timeout_seconds=TIMEOUT_SECONDS, round_timeout_seconds=ROUND_TIMEOUT_SECONDS)
    ) as opened:
        yield opened


def test_rounds_do_not_wait_a_rounds_time_out_for_a_primary_that_hangs(
    redis_server: RedisServer, rounds: RoundRedis, epoch: str
) -> None:
    memory = RedisShardMemory(rounds)

    def has_run() -> bool:
        with suppress(RedisAway):
            return memory.take_round(OF, epoch=epoch) is not None
        return False

    eventually(has_run, within_seconds=30)
    redis_server.freeze()
    for _ in range(3):
        with pytest.raises(RedisAway):
            memory.take_round(OF, epoch=epoch)
    redis_server.thaw()


def test_a_round_that_takes_longer_than_other_commands_may_still_gets_its_reply(
    redis_server: RedisServer, rounds: RoundRedis, epoch: str
) -> None:
    thaw = threading.Timer(3 * TIMEOUT_SECONDS, redis_server.thaw)

    def hang() -> None:
        redis_server.freeze()
        thaw.start()

    memory = Interrupted(rounds, hang)
    done: RoundDone | None = None

    def is_over() -> bool:
        nonlocal done
        with suppress(RedisAway):
            done = memory.take_round(OF, epoch=epoch)
        return memory.is_interrupted

    eventually(is_over, within_seconds=30)
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
