"""mypy checks the assignments; running them checks that the adapters can be built without a server."""

from __future__ import annotations

import fakeredis

from reconciler.clock import ManualClock
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.ports.announcing import CommitSets, HalfSets
from reconciler.policy.ports.rounds import RoundLeases, ShardMemory
from reconciler.shards.client import RoundRedis
from reconciler.shards.memory import RedisShardMemory
from reconciler.shards.round_leases import RedisRoundLeases
from reconciler.sql.engines import open_engine
from reconciler.telling.ports.reports import Ledger
from reconciler.testing.memory import MemoryLedger
from reconciler.testing.memory_shards import MemoryShards


def test_adapters_have_the_shape_of_their_ports() -> None:
    engine = open_engine("sqlite:////nowhere/ledger.db")
    ledgers: list[Ledger] = [MemoryLedger(ManualClock()), SqlLedger(engine)]
    shards = MemoryShards(ManualClock())
    with fakeredis.FakeRedis() as client:
        clients = RoundRedis(client=client)
        memories: list[ShardMemory] = [shards, RedisShardMemory(clients)]
        leases: list[RoundLeases] = [shards, RedisRoundLeases(client)]
    sets: tuple[HalfSets, CommitSets] = (shards, shards)
    assert (len(ledgers), len(memories), len(leases), len(sets)) == (2, 2, 2, 2)
    engine.dispose()
