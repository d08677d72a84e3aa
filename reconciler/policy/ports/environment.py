"""Which cluster an environment is used for, as the processes that use it write it down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

#: A use that nobody has renewed for so long has ended.
USE_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentUse:
    """What the process that renewed it last knows of its cluster."""

    #: "cluster/broker at address", one for each address. Empty: the value is damaged, and says nothing.
    brokers: frozenset[str]
    #: "<identity> at <address>" of its Redis. Empty: it did not reach Redis.
    redis: str = ""
    #: That process.
    by: str
    #: Another text after each renewal.
    renewal: str


class EnvironmentUses(Protocol):
    """A place that the processes of an environment share: Redis, or the ledger. Raises RedisAway or DatabaseAway."""

    #: As it is named to people.
    place: str

    def current(self, environment: str) -> EnvironmentUse | None:
        """The use that was renewed within USE_SECONDS, by the place's own time; None: there is none."""
        ...

    def renew(self, environment: str, brokers: frozenset[str], *, by: str, redis: str = "") -> None:
        """Writes the use, whatever is there. Of two processes that write at once the last one is kept."""
        ...


class RedisIdentity(Protocol):
    """What tells one Redis from another: a random text that it loses with its memory only. Raises RedisAway."""

    def identity(self, environment: str) -> str:
        """Its identity; empty: it has none."""
        ...

    def keep_identity(self, environment: str) -> str:
        """Gives it one unless it has one; returns the one that it has. Empty: another program's key is in the way."""
        ...
