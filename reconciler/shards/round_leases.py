"""A *lease* (K:round_lease) gives one process a shard's rounds. It saves work; fence and claims decide."""

from __future__ import annotations

from typing import Any

from redis.exceptions import WatchError

from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Shard
from reconciler.shards.access import RedisClient, translated_errors


class RedisRoundLeases:
    """Leases in Redis. Shared by threads: every call takes a connection of its own from the pool."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    def take(self, shard: Shard, *, token: str, lease_seconds: float) -> bool:
        """Takes or renews; False if another token holds it."""
        key, milliseconds = ShardKeys(shard).round_lease, max(1, round(lease_seconds * 1000))
        with translated_errors():
            if self._client.set(key, token, nx=True, px=milliseconds):
                return True
            return self._if_held(key, token, ("PEXPIRE", key, milliseconds))

    def release(self, shard: Shard, *, token: str) -> None:
        """Gives up if the token holds it."""
        key = ShardKeys(shard).round_lease
        with translated_errors():
            self._if_held(key, token, ("UNLINK", key))

    def _if_held(self, key: str, token: str, command: tuple[Any, ...]) -> bool:
        """Runs the command if the lease is the token's; WATCH, so that it never hits a successor's lease."""
        try:
            with self._client.pipeline(transaction=True) as pipe:
                pipe.watch(key)
                if pipe.execute_command("GET", key) != token.encode():
                    return False
                pipe.multi()
                pipe.execute_command(*command)
                pipe.execute()
        except WatchError:
            return False
        return True
