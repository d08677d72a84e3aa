"""A private primary with replicas, watched by Sentinels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.polling import eventually
from tests.services.ports import answers, free_port
from tests.services.processes import Child
from tests.services.redis_cluster import ANSWER_SECONDS, LOGIN, ORDER_SECONDS, WHOLE_SECONDS, ask
from tests.services.redis_server import RedisServer
from tests.services.requirements import redis_missing, sentinel_missing
from tests.services.stacked import Stacked

__all__ = ["RedisSentinelServers", "missing"]

SERVICE = "shards"
#: Sentinels log in under a name of their own, so that a test can cut them off and leave the clients alone.
WATCHER, WATCHER_PASSWORD = "watcher", "watches"
USERS = f"""user default off
user {WATCHER} on >{WATCHER_PASSWORD} ~* &* +@all
user {LOGIN[0]} on >{LOGIN[1]} ~* &* +@all
"""


def missing() -> str | None:
    """None, or how to get what is missing."""
    return redis_missing() or sentinel_missing()


class RedisSentinelServers(Stacked):
    """One primary, two replicas, three Sentinels, on free loopback ports. Confined to one test."""

    def __init__(self, folder: Path, *, replicas: int = 2, down_after_ms: int = 500, **options: str) -> None:
        super().__init__()
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "users.acl").write_text(USERS)
        self._down_after_ms = down_after_ms
        self.servers = [
            RedisServer(
                folder / f"server-{number}",
                options={
                    "appendfsync": "everysec",
                    "repl-diskless-sync-delay": "0",
                    "repl-ping-replica-period": "1",
                    "aclfile": str(folder / "users.acl"),
                    "masteruser": LOGIN[0],
                    "masterauth": LOGIN[1],
                    **{name.replace("_", "-"): value for name, value in options.items()},
                },
            )
            for number in range(1 + replicas)
        ]
        self.sentinel_ports: list[int] = []
        self.sentinels: list[Child] = []

    @property
    def url(self) -> str:
        """All Sentinels."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.sentinel_ports)
        return f"redis+sentinel://{LOGIN[0]}:{LOGIN[1]}@{hosts}/{SERVICE}"

    def _start(self) -> None:
        for server in self.servers:
            self._stack.enter_context(server)
        for server in self.servers[1:]:
            assert ask(server, "REPLICAOF", "127.0.0.1", self.servers[0].port, timeout_seconds=ORDER_SECONDS)
        for number in range(3):
            self._start_sentinel(number)
        eventually(self.is_whole, within_seconds=WHOLE_SECONDS, message="Sentinels know everybody")

    def _start_sentinel(self, number: int) -> None:
        port, folder = free_port(), self._folder / f"sentinel-{number}"
        folder.mkdir(parents=True)
        configuration = folder / "sentinel.conf"
        configuration.write_text(
            f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor {SERVICE} 127.0.0.1 {self.servers[0].port} 2\n"
            f"sentinel auth-user {SERVICE} {WATCHER}\nsentinel auth-pass {SERVICE} {WATCHER_PASSWORD}\n"
            f"sentinel down-after-milliseconds {SERVICE} {self._down_after_ms}\n"
            f"sentinel failover-timeout {SERVICE} 2000\nsentinel parallel-syncs {SERVICE} 2\n"
        )
        sentinel = Child(["redis-sentinel", str(configuration)], log=folder / "sentinel.log")
        self._stack.callback(sentinel.kill)
        sentinel.until(lambda: answers(port), within_seconds=60, what="redis-sentinel")
        self.sentinels.append(sentinel)
        self.sentinel_ports.append(port)

    # ----------------------------------------------------------------- looking

    @staticmethod
    def ask_sentinel(port: int, *command: str | int) -> Any:
        """The answer of one Sentinel, strings decoded; None if there is none in time or it is an error."""
        with redis.Redis(
            port=port, socket_timeout=ANSWER_SECONDS, retry=Retry(NoBackoff(), 0), decode_responses=True
        ) as client:
            try:
                return client.execute_command(*command)
            except (redis.RedisError, OSError):
                return None

    def server_of(self, key: str) -> RedisServer | None:
        """The one that most Sentinels name and that is a primary; all keys are there."""
        del key
        named = [self.ask_sentinel(port, "SENTINEL GET-MASTER-ADDR-BY-NAME", SERVICE) for port in self.sentinel_ports]
        for server in self.servers:
            votes = sum(address is not None and int(address[1]) == server.port for address in named)
            if 2 * votes > len(named) and self.role_of(server) == "master":
                return server
        return None

    def replicas_of(self, primary: RedisServer) -> list[RedisServer]:
        """Those that say so themselves."""
        return [
            server
            for server in self.servers
            if (found := ask(server, "INFO", "replication"))
            and found.get("role") == "slave"
            and found.get("master_port") == primary.port
        ]

    def is_whole(self) -> bool:
        """One primary that all Sentinels name, all others follow it, none is thought to be down."""
        primary = self.server_of("")
        if primary is None or len(self.replicas_of(primary)) != len(self.servers) - 1:
            return False
        if any((ask(s, "INFO", "replication") or {}).get("master_link_status", "up") != "up" for s in self.servers):
            return False
        return all(self._sees_all(port, primary) for port in self.sentinel_ports)

    def _sees_all(self, port: int, primary: RedisServer) -> bool:
        with redis.Redis(port=port, socket_timeout=ANSWER_SECONDS, retry=Retry(NoBackoff(), 0)) as client:
            try:
                seen: Any = client.sentinel_master(SERVICE)
                replicas: Any = client.sentinel_slaves(SERVICE)
            except (redis.RedisError, OSError):
                return False
        return bool(
            seen["port"] == primary.port
            and seen["num-other-sentinels"] == len(self.sentinel_ports) - 1
            and not (seen["is_sdown"] or seen["is_odown"])
            and len(replicas) == len(self.servers) - 1
            and not any(replica["is_sdown"] or replica["is_disconnected"] for replica in replicas)
        )

    @staticmethod
    def role_of(server: RedisServer) -> str | None:
        """What it takes itself for: master or slave; None if it does not answer."""
        answer = ask(server, "ROLE")
        return None if not answer else answer[0].decode()

    # ----------------------------------------------------------------- doing

    def fail_over(self, primary: RedisServer) -> None:
        """SENTINEL FAILOVER: without agreement, and the old primary goes on until it is told."""
        del primary
        eventually(
            lambda: any(self.ask_sentinel(port, "SENTINEL FAILOVER", SERVICE) for port in self.sentinel_ports),
            within_seconds=60,
        )

    def rejoin(self, server: RedisServer) -> None:
        """Follows whom the Sentinels name."""
        server.start()

        def follows() -> bool:
            primary = self.server_of("")
            return primary is not None and bool(ask(server, "REPLICAOF", "127.0.0.1", primary.port))

        eventually(follows, within_seconds=60)

    def cut_off(self, server: RedisServer) -> None:
        """Sentinels lose it, clients do not: two primaries as soon as a replica is promoted."""
        assert ask(server, "ACL SETUSER", WATCHER, "off", timeout_seconds=ORDER_SECONDS)
        ask(server, "CLIENT KILL USER", WATCHER)

    def let_in(self, server: RedisServer) -> None:
        """Ends the split."""
        assert ask(server, "ACL SETUSER", WATCHER, "on", timeout_seconds=ORDER_SECONDS)
