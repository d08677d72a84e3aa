"""The sharers of an environment in Redis (ports.Sharers): one hash, in which each entry ends like a lease."""

from __future__ import annotations

from collections.abc import Collection

from reconciler.contract.keyspace import sharers_key
from reconciler.shards.access import RedisClient, translated_errors
from reconciler.shards.script import RedisScript
from reconciler.shards.values import text_of

_SHARERS = RedisScript("reconciler.shards", "sharers.lua")


class RedisSharers:
    """The sharers in Redis. Shared by threads."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    def enter(self, environment: str, *, token: str, digest: str, seconds: float) -> Collection[str]:
        """Runs one script."""
        milliseconds = max(1, round(seconds * 1000))
        with translated_errors():
            answer = _SHARERS.run(self._client, [sharers_key(environment)], [token, milliseconds, digest])
        found = [text_of(one) for one in answer]
        return {sharer for sharer, shared in zip(found[::2], found[1::2], strict=True) if shared == digest}

    def leave(self, environment: str, *, token: str) -> None:
        """Sends one HDEL."""
        with translated_errors():
            self._client.hdel(sharers_key(environment), token)
