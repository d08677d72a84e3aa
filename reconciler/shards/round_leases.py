"""Leases of rounds, and looks at shards.

A *lease* (K:round_lease) gives the rounds of a shard to one process. The lease only saves work: the fence and the
claims keep rounds and repairs correct without it. A *look* (look.lua) reads in one step what a shard contains and who
holds its lease. Looks at all shards are sent in pipelines.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from redis import Redis
from redis.exceptions import NoScriptError, WatchError

from reconciler.clock import Clock
from reconciler.contract.keyspace import COMMIT_GENERATIONS_DEFAULT, ShardKeys
from reconciler.contract.subscription import Shard
from reconciler.errors import ReconcilerError
from reconciler.policy.ports.rounds import ShardLook
from reconciler.shards.access import RedisClient, translated_errors
from reconciler.shards.lease_values import LeaseValues, is_held_by
from reconciler.shards.pipelines import PIPELINE_COMMANDS_MAX, by_node
from reconciler.shards.script import RedisScript
from reconciler.shards.values import offsets_of, seen_ms_of, state_of_script

_LOOK = RedisScript("reconciler.shards", "look.lua")
_log = logging.getLogger(__name__)


class RedisRoundLeases:
    """The leases of rounds in Redis. Shared by threads, because every call takes its own connection from the pool."""

    def __init__(
        self,
        client: RedisClient,
        *,
        clock: Clock | None = None,
        commit_generations: int = COMMIT_GENERATIONS_DEFAULT,
    ) -> None:
        """`commit_generations`: number of older commit sets that rounds keep."""
        self._client = client
        self._commit_generations = commit_generations
        self._values = LeaseValues(clock)
        #: Servers that have loaded the script of a look.
        self._know_look: set[Redis] = set()

    def take(self, shard: Shard, *, token: str, lease_seconds: float) -> bool:
        """Takes or renews the lease; False if another token holds it."""
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
        """Gives the lease back if the token holds it."""
        key = ShardKeys(shard).round_lease
        with translated_errors():
            self._if(lambda held: is_held_by(token, held), key, ("UNLINK", key))

    def holder(self, shard: Shard) -> str:
        """Returns the token that holds the lease; empty if the lease is free."""
        with translated_errors():
            held = self._client.get(ShardKeys(shard).round_lease) or b""
        return (held if isinstance(held, str) else held.decode(errors="replace")).partition(" ")[0]

    def look(self, shards: Mapping[Shard, bool], *, token: str, lease_seconds: float) -> Mapping[Shard, ShardLook]:
        """Uses one connection per node. If a node is away, the looks at the shards of other nodes are still
        returned."""
        found: dict[Shard, ShardLook] = {}
        for client, of_node in by_node(self._client, shards, lambda shard: ShardKeys(shard).root):
            for start in range(0, len(of_node), PIPELINE_COMMANDS_MAX):
                page = {shard: shards[shard] for shard in of_node[start : start + PIPELINE_COMMANDS_MAX]}
                try:
                    found |= self._look(client, page, token=token, lease_seconds=lease_seconds)
                except ReconcilerError as error:
                    _log.info("look_failed: %s", error)
                    break
        return found

    def _look(
        self, client: Redis, page: Mapping[Shard, bool], *, token: str, lease_seconds: float
    ) -> dict[Shard, ShardLook]:
        milliseconds = max(1, round(lease_seconds * 1000))
        with translated_errors():
            if client not in self._know_look:
                _LOOK.load(client)
                self._know_look.add(client)
            with client.pipeline(transaction=False) as pipe:
                for shard, renews in page.items():
                    keys, value = self._keys_of_look(ShardKeys(shard)), self._values.renewed(token) if renews else ""
                    pipe.evalsha(_LOOK.sha, len(keys), *keys, token, milliseconds, value)
                answers = pipe.execute(raise_on_error=False)
        looks = {}
        for shard, answer in zip(page, answers, strict=True):
            if isinstance(answer, NoScriptError):
                # The server was restarted, or a replica took over. The next look loads the script again.
                self._know_look.discard(client)
            elif not isinstance(answer, Exception):
                with suppress(ReconcilerError):
                    looks[shard] = self._seen(shard, answer, token, lease_seconds)
        return looks

    def _keys_of_look(self, keys: ShardKeys) -> tuple[str, ...]:
        older = [keys.commit_generation(number) for number in range(1, self._commit_generations + 1)]
        shard = (keys.epoch, keys.generation, keys.covered, keys.half, keys.pending, keys.apart, keys.round_lease)
        return (*shard, keys.offsets, keys.commit, *older)

    def _seen(self, shard: Shard, answer: Any, token: str, lease_seconds: float) -> ShardLook:
        epoch, number, last, announced, consumed, pending, oldest, apart, held, seconds, microseconds, offsets = answer
        return ShardLook(
            state=state_of_script(shard, (epoch, number, last, seconds, microseconds)),
            members=int(announced) + int(consumed),
            pending=int(pending),
            oldest_pending_ms=seen_ms_of(float(oldest)) if oldest else None,
            has_apart=bool(apart),
            is_ours=self._is_ours(ShardKeys(shard).round_lease, held, token, lease_seconds),
            offsets=offsets_of(offsets),
        )

    def _is_ours(self, key: str, held: bytes, token: str, lease_seconds: float) -> bool | None:
        if is_held_by(token, held or None):
            return True
        return None if not held or self._values.is_over(key, held, lease_seconds=lease_seconds) else False

    def _if(self, holds: Callable[[bytes | None], bool], key: str, command: tuple[Any, ...]) -> bool:
        """Runs the command if `holds` accepts the lease's value. WATCH protects the lease of a process that was
        faster."""
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
