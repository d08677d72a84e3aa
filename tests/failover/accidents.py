"""The ways in which a primary stops being the primary. Each is struck, seen by a new primary, and healed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from tests.polling import eventually
from tests.services.redis_cluster import RedisClusterServers, ReplicatedRedis, ask
from tests.services.redis_sentinel import RedisSentinelServers
from tests.services.redis_server import RedisServer

#: How long a stale replica misses what the primary acknowledges.
STALE_SECONDS = 0.7
#: How long a frozen primary, back again, believes itself to be one before it is told, at least; and a split lasts.
SPLIT_SECONDS = 1.5


@dataclass(slots=True)
class Struck:
    """An accident that happened."""

    #: Called when a new primary serves: what the accident still has in store while the service recovers.
    when_promoted: Callable[[], None] = lambda: None
    #: Called when rounds, announcements and recorder go on again: leaves a Redis that becomes whole.
    heal: Callable[[], None] = lambda: None
    at: float = field(default_factory=time.monotonic)


Strike = Callable[[ReplicatedRedis, RedisServer], Struck]


def killed(servers: ReplicatedRedis, primary: RedisServer) -> Struck:
    """kill -9; started again later, as a replica."""
    struck = Struck(heal=lambda: servers.rejoin(primary))
    primary.kill()
    return struck


def stale(servers: ReplicatedRedis, primary: RedisServer) -> Struck:
    """kill -9 of a primary whose replicas had lost touch: the last acknowledged writes are gone."""
    replicas = cut_replication(servers, primary)
    time.sleep(STALE_SECONDS)
    struck = Struck(when_promoted=lambda: join_replication(replicas), heal=lambda: servers.rejoin(primary))
    primary.kill()
    return struck


def ordered(servers: ReplicatedRedis, primary: RedisServer) -> Struck:
    """CLUSTER FAILOVER, SENTINEL FAILOVER."""
    struck = Struck()
    servers.fail_over(primary)
    return struck


def frozen(servers: ReplicatedRedis, primary: RedisServer) -> Struck:
    """SIGSTOP for longer than the time-out: wakes up as a stale primary that clients still talk to."""
    struck = Struck(when_promoted=primary.thaw)
    primary.freeze()
    return struck


def hung(servers: ReplicatedRedis, primary: RedisServer) -> Struck:
    """SIGSTOP until everything goes on elsewhere: connections stay open and nothing ever answers."""
    struck = Struck(heal=primary.thaw)
    primary.freeze()
    return struck


def two_primaries(servers: ReplicatedRedis, primary: RedisServer) -> Struck:
    """A replica is promoted while clients still reach the old primary, which goes on acknowledging.

    Sentinel: Sentinels lose the primary, clients do not. Cluster: a stale replica is made primary by hand (TAKEOVER);
    a primary that loses the other nodes refuses writes by itself.
    """
    if isinstance(servers, RedisSentinelServers):
        struck = Struck(when_promoted=lambda: _end_split(servers, primary))
        servers.cut_off(primary)
        return struck
    replicas = cut_replication(servers, primary)
    time.sleep(STALE_SECONDS)
    struck = Struck(when_promoted=lambda: join_replication(replicas))
    assert ask(replicas[0], "CLUSTER FAILOVER", "TAKEOVER")
    return struck


def _end_split(servers: RedisSentinelServers, primary: RedisServer) -> None:
    time.sleep(SPLIT_SECONDS)
    servers.let_in(primary)
    # Sentinels watch a second primary for some 10 seconds before they make it a replica.
    eventually(lambda: servers.role_of(primary) == "slave", within_seconds=60, message="one primary is left")


ACCIDENTS: Mapping[str, Strike] = {
    "killed": killed,
    "stale": stale,
    "ordered": ordered,
    "frozen": frozen,
    "two_primaries": two_primaries,
    "hung": hung,
}


def cut_replication(servers: ReplicatedRedis, primary: RedisServer) -> list[RedisServer]:
    """Replicas lose the primary, which refuses their password, and stay up; returns them."""
    replicas = servers.replicas_of(primary)
    for replica in replicas:
        assert ask(replica, "CONFIG SET", "masterauth", "wrong")
    ask(primary, "CLIENT KILL TYPE", "replica")
    eventually(
        lambda: all((ask(r, "INFO", "replication") or {}).get("master_link_status") == "down" for r in replicas),
        within_seconds=10,
    )
    return replicas


def join_replication(replicas: list[RedisServer]) -> None:
    """The contrary; a server that is primary by now ignores it."""
    for replica in replicas:
        password = replica.options.get("masterauth", "")
        eventually(partial(ask, replica, "CONFIG SET", "masterauth", password), within_seconds=10)


def cluster_or_sentinel(kind: str) -> type[RedisClusterServers] | type[RedisSentinelServers]:
    """The servers of a KIND."""
    return {"cluster": RedisClusterServers, "sentinel": RedisSentinelServers}[kind]
