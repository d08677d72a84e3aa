"""The two Redis clients of the rounds, to the primary only: one that waits long, for a round, and one for the rest."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.redis_access import RedisClient, open_client

#: Longest wait for a round's reply: a round of 20 000 keys takes 16 ms, one of 10 000 000 under 30 s.
ROUND_TIMEOUT_SECONDS_DEFAULT = 120.0
TIMEOUT_SECONDS_DEFAULT = 5.0
CONNECT_TIMEOUT_SECONDS_DEFAULT = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisClients:
    """Two clients of one Redis; both are thread-safe connection pools that connect at first use."""

    #: For the round's MULTI: long time-out.
    rounds: RedisClient
    #: For everything else.
    short: RedisClient

    def close(self) -> None:
        """Closes all connections."""
        self.rounds.close()
        self.short.close()


def open_redis(
    url: str,
    *,
    round_timeout_seconds: float = ROUND_TIMEOUT_SECONDS_DEFAULT,
    timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT,
    connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS_DEFAULT,
) -> RedisClients:
    """Clients for a URL (reconciler/redis_access.py); the caller closes them.

    Raises InvalidValue for a malformed URL. A cluster is asked for its nodes at once: RedisAway if none answers.
    """
    rounds = open_client(
        url,
        timeout_seconds=round_timeout_seconds,
        connect_timeout_seconds=connect_timeout_seconds,
        primary_only=True,
    )
    try:
        short = open_client(
            url, timeout_seconds=timeout_seconds, connect_timeout_seconds=connect_timeout_seconds, primary_only=True
        )
    except BaseException:
        rounds.close()
        raise
    return RedisClients(rounds=rounds, short=short)
