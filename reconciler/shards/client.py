"""The Redis client of the rounds. The client uses only the primary, and waits longer for a round's MULTI than for other
commands.

One client serves all commands, so a round uses the new primary once a plain command has found it. A second client with
a long time-out would wait for a hanging primary although its successor already serves.
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.contract.secret import Secret
from reconciler.shards.access import RedisClient, RedisSilences, open_client

#: Longest wait for a round's reply. A round of 20 000 keys takes 16 ms; a round of 10 000 000 keys takes less than 30
#: s.
ROUND_TIMEOUT_SECONDS_DEFAULT = 120.0
TIMEOUT_SECONDS_DEFAULT = 5.0
CONNECT_TIMEOUT_SECONDS_DEFAULT = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRedis:
    """The Redis client of the rounds, with its time-out."""

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
    """Returns a client for a URL (reconciler/shards/access.py). The caller closes it.

    Raises InvalidValue for a malformed URL, and RedisAway if no node of a cluster answers.
    """
    client = open_client(
        url,
        timeout_seconds=timeout_seconds,
        connect_timeout_seconds=connect_timeout_seconds,
        primary_only=True,
        silences=silences,
    )
    return RoundRedis(client=client, round_timeout_seconds=round_timeout_seconds)
