"""The Redis client of the rounds, to the primary only; a round's MULTI alone is waited for longer.

One client for everything: what a plain command has found out about a fail-over, the round that follows knows. A client
of its own with a long time-out would meet a primary that hangs, and wait for it while its successor serves.
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.contract.secret import Secret
from reconciler.shards.access import RedisClient, RedisSilences, open_client

#: Longest wait for a round's reply: a round of 20 000 keys takes 16 ms, one of 10 000 000 under 30 s.
ROUND_TIMEOUT_SECONDS_DEFAULT = 120.0
TIMEOUT_SECONDS_DEFAULT = 5.0
CONNECT_TIMEOUT_SECONDS_DEFAULT = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRedis:
    """The Redis of the rounds."""

    #: A thread-safe connection pool that connects at first use.
    client: RedisClient
    #: Longest wait for the reply to a round's MULTI.
    round_timeout_seconds: float = ROUND_TIMEOUT_SECONDS_DEFAULT

    def close(self) -> None:
        """Closes all connections."""
        self.client.close()


def open_redis(
    url: Secret,
    *,
    round_timeout_seconds: float = ROUND_TIMEOUT_SECONDS_DEFAULT,
    timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT,
    connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS_DEFAULT,
    silences: RedisSilences | None = None,
) -> RoundRedis:
    """A client for a URL (reconciler/shards/access.py); the caller closes it.

    Raises InvalidValue for a malformed URL. A cluster is asked for its nodes at once: RedisAway if none answers.
    """
    client = open_client(
        url,
        timeout_seconds=timeout_seconds,
        connect_timeout_seconds=connect_timeout_seconds,
        primary_only=True,
        silences=silences,
    )
    return RoundRedis(client=client, round_timeout_seconds=round_timeout_seconds)
