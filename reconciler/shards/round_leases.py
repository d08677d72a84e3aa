"""A *lease* (K:round_lease) gives one process a shard's rounds. It saves work; fence and claims decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redis.exceptions import WatchError

from reconciler.clock import Clock
from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Shard
from reconciler.shards.access import RedisClient, translated_errors
from reconciler.shards.lease_values import LeaseValues, is_held_by


class RedisRoundLeases:
    """Leases in Redis. Shared by threads: every call takes a connection of its own from the pool."""

    def __init__(self, client: RedisClient, *, clock: Clock | None = None) -> None:
        self._client = client
        self._values = LeaseValues(clock)

    def take(self, shard: Shard, *, token: str, lease_seconds: float) -> bool:
        """Takes or renews; False if another token holds it."""
        key, milliseconds = ShardKeys(shard).round_lease, max(1, round(lease_seconds * 1000))
        value = self._values.renewed(token)

        def is_free(held: bytes | None) -> bool:
            is_over = held is not None and self._values.is_over(key, held, lease_seconds=lease_seconds)
            return is_held_by(token, held) or is_over

        with translated_errors():
            if self._client.set(key, value, nx=True, px=milliseconds):
                return True
            return self._if(is_free, key, ("SET", key, value, "PX", milliseconds))

    def release(self, shard: Shard, *, token: str) -> None:
        """Gives up if the token holds it."""
        key = ShardKeys(shard).round_lease
        with translated_errors():
            self._if(lambda held: is_held_by(token, held), key, ("UNLINK", key))

    def holder(self, shard: Shard) -> str:
        """The token that holds it; empty: none does."""
        with translated_errors():
            held = self._client.get(ShardKeys(shard).round_lease) or b""
        return (held if isinstance(held, str) else held.decode(errors="replace")).partition(" ")[0]

    def _if(self, holds: Callable[[bytes | None], bool], key: str, command: tuple[Any, ...]) -> bool:
        """Runs the command if that is true of the lease; WATCH, so that it never hits a successor's lease."""
        try:
            with self._client.pipeline(transaction=True) as pipe:
                pipe.watch(key)
                if not holds(pipe.execute_command("GET", key)):
                    return False
                pipe.multi()
                pipe.execute_command(*command)
                pipe.execute()
        except WatchError:
            return False
        return True
