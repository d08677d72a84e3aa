"""One node of a Redis Cluster stands still and no replica takes over: the shards of the other nodes go on."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reconciler.clock import SystemClock
from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.unique_key import key_of, shard_of
from reconciler.errors import RedisAway
from reconciler.shards.access import open_client
from reconciler.shards.sets import RedisCommitSets
from tests.acceptance.deployment import Deployment
from tests.contract.ledger.rows import key
from tests.polling import eventually
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.redis_cluster import RedisClusterServers, ask, missing
from tests.services.redis_server import RedisServer
from tests.services.requirements import require

pytestmark = [pytest.mark.redis, pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(600)]

SHARDS = 8
SETTINGS = """
[rounds]
interval_seconds = 0.5
skew_margin_seconds = 0.5
lease_seconds = 3.0

[repairs]
check_back_wait_seconds = 0
"""
#: The others know that it is away, and serve their slots all the same; or they have not noticed yet.
NODES: Mapping[str, dict[str, Any]] = {
    "known_to_the_others": {"node_timeout_ms": 1_000, "cluster_require_full_coverage": "no"},
    "not_noticed_yet": {"node_timeout_ms": 600_000},
}


class Shards:
    """The shards of the one subscription, by the node that has them."""

    def __init__(self, deployed: Deployment, servers: RedisClusterServers) -> None:
        subscription = Subscription(environment=deployed.environment, topic=deployed.topic, group=deployed.group)
        self.keys = [ShardKeys(Shard(subscription=subscription, number=number)) for number in range(SHARDS)]
        self._server_of: dict[int, RedisServer] = {}
        for number, keys in enumerate(self.keys):
            server = servers.server_of(keys.pending)
            assert server is not None
            self._server_of[number] = server

    def on(self, server: RedisServer) -> set[int]:
        """Their numbers."""
        return {number for number, one in self._server_of.items() if one is server}

    def rounds(self, number: int) -> int:
        """How many the shard had; 0 while its node does not answer."""
        return int(ask(self._server_of[number], "GET", self.keys[number].generation) or 0)

    def pending(self) -> int:
        """Of all shards."""
        return sum(int(ask(self._server_of[n], "ZCARD", keys.pending) or 0) for n, keys in enumerate(self.keys))

    def busiest(self) -> RedisServer:
        """The node that has most, but not all of them."""
        server, count = Counter(self._server_of.values()).most_common(1)[0]
        assert count < SHARDS
        return server


def outages(deployed: Deployment) -> list[tuple[str, bool]]:
    """Reason, and whether it is over."""
    with closing(sqlite3.connect(deployed.ledger)) as db:
        rows = db.execute("SELECT reason, closed_at_ms FROM reconciler_outage ORDER BY started_at_ms").fetchall()
    return [(reason, closed_at_ms is not None) for reason, closed_at_ms in rows]


def status(deployed: Deployment) -> dict[str, Any]:
    """What `status` says."""
    found: dict[str, Any] = json.loads(deployed.command("status", "--output", "json").stdout)
    return found


def test_a_recorder_reaches_the_shards_of_the_nodes_that_answer(tmp_path: Path) -> None:
    require(missing())
    subscription = Subscription(environment="test", topic="ORDERS", group="billing")
    shards = [ShardKeys(Shard(subscription=subscription, number=number)) for number in range(SHARDS)]
    keys = [[key(number) for number in range(first, first + 64)] for first in (0, 64)]

    def theirs(shard: Shard) -> set[str]:
        return {one for some in keys for one in some if shard_of(one, SHARDS) == shard.number}

    with (
        RedisClusterServers(tmp_path, replicas=0, **NODES["not_noticed_yet"]) as servers,
        closing(open_client(servers.url, timeout_seconds=0.5)) as client,
    ):
        commit_sets = RedisCommitSets(client)
        server_of = {one.shard.number: servers.server_of(one.commit) for one in shards}
        silent = server_of[0]
        assert silent is not None
        silent.freeze()
        others = {one: server_of[one.shard.number] for one in shards if server_of[one.shard.number] is not silent}
        assert others

        def are_recorded() -> bool:
            """On a busy machine a node that answers may be late, too: a redelivery records its keys."""
            for some in keys:  # the second ones get no connection to the silent node any more
                with pytest.raises(RedisAway):
                    commit_sets.record(subscription, some, shards=SHARDS)
            return all(
                server is not None
                and {key_of(member) for member in ask(server, "SMEMBERS", one.commit)} == theirs(one.shard)
                for one, server in others.items()
            )

        eventually(are_recorded, within_seconds=60)


@pytest.mark.parametrize("kind", ["known_to_the_others", pytest.param("not_noticed_yet", marks=pytest.mark.nightly)])
def test_a_node_that_stands_still_costs_its_own_shards_their_rounds_and_no_others(kind: str, tmp_path: Path) -> None:
    require(missing())
    with (
        RedisClusterServers(tmp_path / "redis", replicas=0, **NODES[kind]) as servers,
        EmbeddedBroker() as broker,
        Deployment(
            tmp_path / "deployment",
            redis_url=servers.url,
            name_servers=broker.name_servers,
            shards=SHARDS,
            settings=SETTINGS,
        ) as deployed,
    ):
        deployed.run("run")
        deployed.consume()
        producer = deployed.producer()
        keys = deployed.commit(SHARDS, producer=producer)
        shards = Shards(deployed, servers)
        eventually(
            lambda: all(shards.rounds(number) >= 2 for number in range(SHARDS)),
            within_seconds=120,
            message="rounds everywhere",
        )

        silent = shards.busiest()
        theirs = shards.on(silent)
        silent.freeze()
        silent_since_ms = SystemClock().now_ms()
        eventually(lambda: outages(deployed) == [("AWAY", False)], within_seconds=60, message="the outage is told")
        lost = deployed.commit(6 * SHARDS, lose=True, producer=producer)
        keys += lost + deployed.commit(SHARDS, producer=producer)
        before = {number: shards.rounds(number) for number in set(range(SHARDS)) - theirs}
        elsewhere = {key for key in lost if shard_of(key, SHARDS) not in theirs}
        assert elsewhere
        assert set(lost) - elsewhere
        eventually(lambda: elsewhere <= set(deployed.effects()), within_seconds=60, message="repairs go on elsewhere")
        eventually(
            lambda: all(shards.rounds(n) > count + 3 for n, count in before.items()),
            within_seconds=120,
            message="rounds go on elsewhere",
        )
        assert silent.is_frozen
        assert outages(deployed) == [("AWAY", False)]
        found = status(deployed)
        assert any("an outage is open" in line for line in found["late"]), found
        assert [line for line in found["away"] if str(silent.port) in line], found
        frozen_at_ms = min(one["accounted_until_ms"] for one in found["subscriptions"])
        assert frozen_at_ms < silent_since_ms, found

        # The check of Redis' settings sees the nodes that answer, since their shards go on.
        other = next(server for server in servers.servers if server is not silent)
        assert ask(other, "CONFIG SET", "maxmemory-policy", "allkeys-lru")
        eventually(lambda: outages(deployed) == [("UNSAFE", False)], within_seconds=60, message="all shards wait")
        assert ask(other, "CONFIG SET", "maxmemory-policy", "noeviction")

        silent.thaw()
        eventually(lambda: set(keys) <= set(deployed.effects()), within_seconds=60, message="its own shards go on")
        eventually(lambda: outages(deployed) == [("UNSAFE", True)], within_seconds=60, message="the outage is over")
        eventually(lambda: shards.pending() == 0, within_seconds=60, message="nothing waits")
        eventually(lambda: not status(deployed)["late"], within_seconds=60, message="all is well")
        assert sorted(deployed.effects()) == sorted(keys)
        assert not set(deployed.repairs()) - set(lost)
