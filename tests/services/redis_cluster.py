"""A private Redis Cluster, and what it shares with Sentinel: several servers, one of which serves a key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import redis
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.retry import Retry

from tests.polling import eventually
from tests.services.ports import free_port
from tests.services.processes import ServiceFailed
from tests.services.redis_server import RedisServer
from tests.services.requirements import redis_missing as missing
from tests.services.stacked import Stacked

__all__ = ["RedisClusterServers", "ReplicatedRedis", "ask", "connected", "missing"]

SLOTS = 16_384
WHOLE_SECONDS = 60.0
#: A node that does not answer within this is down for the test.
ANSWER_SECONDS = 0.5
#: An order that is given once waits longer.
ORDER_SECONDS = 20.0
#: Name and password of clients where servers have an ACL file.
LOGIN = ("service", "serves")


class ReplicatedRedis(Protocol):
    """Several redis-servers behind one URL."""

    servers: list[RedisServer]

    @property
    def url(self) -> str:
        """As `redis.url` in the settings."""
        ...

    def server_of(self, key: str) -> RedisServer | None:
        """The primary that serves the key now; None while no primary does."""
        ...

    def replicas_of(self, primary: RedisServer) -> list[RedisServer]:
        """Its replicas that answer."""
        ...

    def fail_over(self, primary: RedisServer) -> None:
        """Asks for an ordered fail-over."""
        ...

    def rejoin(self, server: RedisServer) -> None:
        """Starts a killed server again, with its data, as a replica."""
        ...

    def is_whole(self) -> bool:
        """Whether every server answers and every replica follows its primary."""
        ...


@contextmanager
def connected(server: RedisServer, *, timeout_seconds: float = ANSWER_SECONDS) -> Iterator[redis.Redis]:
    """A client of this very server, without retries."""
    username, password = LOGIN if "aclfile" in server.options else (None, None)
    with redis.Redis(
        port=server.port,
        username=username,
        password=password,
        socket_timeout=timeout_seconds,
        retry=Retry(NoBackoff(), 0),
        socket_connect_timeout=1.0,
    ) as client:
        yield client


def ask(server: RedisServer, *command: str | int, timeout_seconds: float = ANSWER_SECONDS) -> Any:
    """The answer of this very server; None if there is none in time or it is an error."""
    if server.is_frozen:
        return None
    try:
        with connected(server, timeout_seconds=timeout_seconds) as client:
            return client.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py has no annotation
    except (redis.RedisError, OSError):
        return None


class RedisClusterServers(Stacked):
    """Primaries that share the slots, each with replicas, on free loopback ports. Confined to one test."""

    def __init__(
        self, folder: Path, *, primaries: int = 3, replicas: int = 1, node_timeout_ms: int = 1_000, **options: str
    ) -> None:
        super().__init__()
        self._primaries, self._replicas = primaries, replicas
        self.servers = [
            RedisServer(
                folder / f"node-{number}",
                options={
                    "appendfsync": "everysec",
                    "cluster-enabled": "yes",
                    "cluster-node-timeout": str(node_timeout_ms),
                    "cluster-port": str(free_port()),
                    "cluster-allow-replica-migration": "no",
                    "repl-diskless-sync-delay": "0",
                    "repl-ping-replica-period": "1",
                    "enable-debug-command": "yes",
                    **{name.replace("_", "-"): value for name, value in options.items()},
                },
            )
            for number in range(primaries * (1 + replicas))
        ]

    @property
    def url(self) -> str:
        """Three of the nodes; the client finds the others."""
        return "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers[:3])

    def _start(self) -> None:
        for server in self.servers:
            self._stack.enter_context(server)
        self._form()

    def _form(self) -> None:
        primaries, replicas = self.servers[: self._primaries], self.servers[self._primaries :]
        bounds = [round(SLOTS * number / self._primaries) for number in range(self._primaries + 1)]
        for server, first, after in zip(primaries, bounds, bounds[1:], strict=False):
            assert ask(server, "CLUSTER ADDSLOTSRANGE", first, after - 1, timeout_seconds=ORDER_SECONDS)
        # Epochs of their own, so that no two begin with the same one and have to sort that out first.
        for number, server in enumerate(self.servers, 1):
            assert ask(server, "CLUSTER SET-CONFIG-EPOCH", number, timeout_seconds=ORDER_SECONDS)
        for server in self.servers[1:]:
            address = ("127.0.0.1", server.port, server.options["cluster-port"])
            assert ask(self.servers[0], "CLUSTER MEET", *address, timeout_seconds=ORDER_SECONDS)
        eventually(lambda: all(len(self.nodes(s)) == len(self.servers) for s in self.servers), within_seconds=60)
        for number, server in enumerate(replicas):
            primary = self.node_id(primaries[number % self._primaries])
            eventually(partial(ask, server, "CLUSTER REPLICATE", primary), within_seconds=60)
        eventually(self.is_whole, within_seconds=WHOLE_SECONDS, message="the cluster is whole")

    # ----------------------------------------------------------------- looking

    @staticmethod
    def nodes(server: RedisServer) -> dict[str, dict[str, Any]]:
        """What one node knows of all: address -> fields; empty if it does not answer."""
        return ask(server, "CLUSTER NODES") or {}

    def itself(self, server: RedisServer) -> dict[str, Any]:
        """What a node says of itself; empty if it does not answer."""
        return next((node for node in self.nodes(server).values() if "myself" in node["flags"]), {})

    def node_id(self, server: RedisServer) -> str:
        """The node's identity."""
        return str(eventually(lambda: self.itself(server).get("node_id"), within_seconds=ORDER_SECONDS))

    def server_of(self, key: str) -> RedisServer | None:
        """Of those that claim the slot the one with the highest epoch, which wins in the end."""
        return self.server_of_slot(key_slot(key.encode()))

    def server_of_slot(self, slot: int) -> RedisServer | None:
        """The same for a slot."""
        claims = []
        for number, server in enumerate(self.servers):
            node = self.itself(server)
            if "master" in node.get("flags", "") and any(
                int(bounds[0]) <= slot <= int(bounds[-1]) for bounds in node["slots"]
            ):
                claims.append((int(node["epoch"]), number))
        return self.servers[max(claims)[1]] if claims else None

    def replicas_of(self, primary: RedisServer) -> list[RedisServer]:
        """Those that say so themselves."""
        identity = self.node_id(primary)
        return [server for server in self.servers if self.itself(server).get("master_id") == identity]

    def is_whole(self) -> bool:
        """Every node sees the same primaries, all slots are served, all replicas follow."""
        primaries = 0
        views: set[frozenset[tuple[str, ...]]] = set()
        for server in self.servers:
            information = ask(server, "INFO", "replication") or {}
            state = ask(server, "CLUSTER INFO") or {}
            if state.get("cluster_state") != "ok" or state.get("cluster_slots_ok") != str(SLOTS):
                return False
            nodes = self.nodes(server).values()
            if any("fail" in node["flags"] for node in nodes):
                return False
            views.add(frozenset((node["node_id"], node["master_id"], str(node["slots"])) for node in nodes))
            if information.get("role") == "master":
                primaries += 1
                if information.get("connected_slaves") != self._replicas:
                    return False
            elif information.get("master_link_status") != "up":
                return False
        return primaries == self._primaries and len(views) == 1

    # ----------------------------------------------------------------- doing

    def fail_over(self, primary: RedisServer) -> None:
        """CLUSTER FAILOVER at its replica, again where it came to nothing: it is given up silently after 5 s."""
        replica = eventually(lambda: self.replicas_of(primary), within_seconds=ORDER_SECONDS)[0]
        for _ in range(5):
            ask(replica, "CLUSTER FAILOVER")
            with suppress(AssertionError):
                eventually(lambda: "master" in self.itself(replica).get("flags", ""), within_seconds=6)
                return
        raise ServiceFailed("CLUSTER FAILOVER came to nothing five times")

    def rejoin(self, server: RedisServer) -> None:
        """nodes.conf knows the rest."""
        server.start()
