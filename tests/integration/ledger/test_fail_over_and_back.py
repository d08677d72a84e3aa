"""Redis fails over to a stale replica, and back to the primary that had gone on: no floor passes an unsettled key.

Two real servers in place of one: whoever announces and runs rounds moves between them, and believes it is one Redis.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from reconciler.clock import SystemClock
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.events import Event, RoundsVoided
from reconciler.policy.shard_rounds import ShardRounds
from reconciler.shards.client import open_redis
from reconciler.shards.memory import RedisShardMemory
from reconciler.shards.round_leases import RedisRoundLeases
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import ledger_metadata
from tests.contract.ledger.rows import key, shard
from tests.contract.ledger.shards import QUEUE, InRedis
from tests.polling import eventually
from tests.services.fixtures import RedisFactory
from tests.services.redis_server import RedisServer

pytestmark = pytest.mark.redis
OF = shard("fail-over")


class Told:
    """EventSink."""

    def __init__(self) -> None:
        self.voided = 0

    def emit(self, event: Event) -> None:
        if isinstance(event, RoundsVoided):
            self.voided += event.rounds


@dataclass(frozen=True, slots=True)
class Side:
    """One of the servers, with the hands of everybody."""

    redis: InRedis
    rounds: ShardRounds

    def round(self) -> None:
        assert self.rounds.run(OF).done is not None


@dataclass(slots=True)
class Pair:
    primary: Side
    replica: Side
    ledger: SqlLedger
    told: Told
    replication: redis.Redis
    #: The unique-key topic's queue: keys by offset.
    log: list[str]

    def announce(self, side: Side, count: int) -> None:
        """New announcements."""
        self.log += [key(len(self.log) + number) for number in range(count)]
        self.follow(side)

    def follow(self, side: Side) -> None:
        """The announcement consumer reads on from the offset that it finds, else from the floor."""
        start = side.redis.position(OF)
        start = self.floor if start is None else start
        side.redis.announce(OF, self.log[start:], following=len(self.log))

    @property
    def floor(self) -> int:
        found = self.ledger.announcements.floor(OF.subscription, QUEUE)
        return 0 if found is None else found.queue_offset


@pytest.fixture
def pair(new_redis_server: RedisFactory, tmp_path: Path) -> Iterator[Pair]:
    """A primary with a replica that is up to date, and their ledger."""
    primary, replica = new_redis_server(), new_redis_server()
    engine = open_engine(f"sqlite:///{tmp_path}/ledger.db")
    ledger_metadata.create_all(engine)
    ledger, told = SqlLedger(engine), Told()
    with ExitStack() as stack:
        stack.callback(engine.dispose)

        def side(server: RedisServer) -> Side:
            client, rounds = (
                stack.enter_context(redis.Redis.from_url(server.url, socket_timeout=90)),
                open_redis(server.url, timeout_seconds=90),
            )
            stack.callback(rounds.close)
            return Side(
                redis=InRedis(client, rounds),
                rounds=ShardRounds(
                    memory=RedisShardMemory(rounds),
                    leases=RedisRoundLeases(rounds.client),
                    rounds=ledger.rounds,
                    owner="one",
                    lease_seconds=30.0,
                    clock=SystemClock(),
                    events=told,
                ),
            )

        of_replica = stack.enter_context(redis.Redis.from_url(replica.url))
        of_replica.replicaof("127.0.0.1", primary.port)
        eventually(lambda: of_replica.info("replication")["master_link_status"] == "up", within_seconds=60)
        yield Pair(side(primary), side(replica), ledger, told, of_replica, [])


def promote_the_replica(pair: Pair) -> None:
    """It has all that the primary had acknowledged; what comes there from now on it will never see."""
    primary = pair.primary.redis.client
    assert primary.execute_command("WAIT", 1, 60_000) == 1  # type: ignore[no-untyped-call]  # redis-py has no annotation
    pair.replication.replicaof("NO", "ONE")


@pytest.mark.parametrize("rounds_on_the_primary", [1, 2, 3])
def test_no_floor_passes_a_key_that_only_the_rounds_between_have_settled(
    pair: Pair, rounds_on_the_primary: int
) -> None:
    pair.announce(pair.primary, 3)
    pair.primary.round()
    pair.primary.redis.consume(OF, pair.log)
    pair.primary.round()
    assert pair.floor == 3
    promote_the_replica(pair)

    for _ in range(rounds_on_the_primary):  # nobody needs them, but their numbers
        pair.primary.round()
    pair.announce(pair.replica, 2)
    pair.replica.round()
    pair.replica.round()
    assert pair.floor == 3
    assert pair.told.voided >= 1
    pair.follow(pair.primary)
    pair.primary.round()
    pair.primary.round()
    assert set(pair.primary.redis.pending(OF)) == set(pair.log[3:])
    assert pair.floor == 3, "keys 3 and 4 are pending"

    pair.primary.redis.wipe()
    pair.primary.redis.memory.begin_epoch(OF)
    pair.follow(pair.primary)
    pair.primary.round()
    assert set(pair.primary.redis.pending(OF)) == set(pair.log[3:])


def test_rounds_of_the_replica_are_void_once_the_primary_is_back(pair: Pair) -> None:
    """By their time: the primary's own rounds have the same numbers."""
    pair.primary.round()
    promote_the_replica(pair)
    pair.primary.round()
    pair.primary.round()
    pair.replica.round()
    pair.replica.round()
    between = pair.ledger.rounds.last(OF)
    pair.primary.round()
    last = pair.ledger.rounds.last(OF)
    assert between is not None
    assert last is not None
    assert (last.generation, between.generation) == (4, 3)
    rows = pair.ledger.reports.last_rounds(OF.subscription)
    assert [row.done.generation for row in rows] == [4]
    assert pair.told.voided >= 4, "two of the primary, then two of the replica"
