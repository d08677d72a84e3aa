"""The Redis user of each role: docs/operations.md shows exactly these, and the integration tests run with them."""

from __future__ import annotations

from dataclasses import dataclass

SHARD = "reconciler:v1:{%s:*}:"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisUser:
    """What one role may do, beginning with nothing."""

    name: str
    #: Patterns of keys; %s stands for the environment.
    keys: tuple[str, ...]
    commands: tuple[str, ...]

    def rules(self, *, environment: str, password: str, without: str | None = None) -> list[str]:
        """What follows `user <name>` in a configuration and ACL SETUSER <name>."""
        keys = [f"~{pattern % environment}" for pattern in self.keys]
        return ["on", f">{password}", *keys, "-@all", *(f"+{one}" for one in self.commands if one != without)]

    def line(self, *, environment: str, password: str) -> str:
        """The line of redis.conf or of an ACL file."""
        return f"user {self.name} {' '.join(self.rules(environment=environment, password=password))}"


#: Consuming services: CommitRecorder.
BUSINESS = RedisUser(name="business", keys=(SHARD + "commit",), commands=("sadd",))
#: Consuming services that keep their inbox in Redis: RedisInbox.
INBOX = RedisUser(
    name="inbox",
    keys=("reconciler:inbox:v1:{%s:*}",),
    commands=("evalsha", "script|load", "hget", "hset", "pexpire", "unlink"),
)
#: `reconciler announcements`.
ANNOUNCER = RedisUser(
    name="announcer",
    keys=(SHARD + "half", SHARD + "apart", SHARD + "offsets", SHARD + "announcement_lease:*"),
    commands=("evalsha", "script|load", "hget", "hset", "sadd", "scard", "get", "set", "unlink", "ping"),
)
#: `reconciler run` and every other command: rounds, an announcement consumer of its own, scans after an outage.
RECONCILER = RedisUser(
    name="reconciler",
    keys=(SHARD + "*",),
    commands=(
        "watch", "unwatch", "multi", "exec", "discard", "get", "set", "incrby", "time", "type", "hgetall", "hget",
        "hset", "hsetnx", "hdel", "zcard", "scard", "sdiffstore", "zunionstore", "zadd", "zinterstore", "zdiffstore",
        "zrangebyscore", "zrange", "sadd", "srem", "smismember", "sscan", "zrem", "rename", "unlink", "pexpire", "info",
        "role", "config|get", "script|load", "eval", "evalsha", "ping",
    ),
)  # fmt: skip
#: What each of them needs on the nodes of a Redis Cluster in addition: to find the nodes, and to follow a moving slot.
IN_A_CLUSTER = ("asking", "cluster|slots", "command")
USERS = (BUSINESS, INBOX, ANNOUNCER, RECONCILER)
