"""The cluster that an environment is used for, as its processes store it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

#: A use ends if it was not renewed for this time.
USE_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentUse:
    """The cluster, as known by the process that renewed the use last."""

    #: "cluster/broker at address": one text for each address. Empty: the stored value is damaged and says nothing.
    brokers: frozenset[str]
    #: "<identity> at <address>" of that process's Redis. Empty: the process did not reach Redis.
    redis: str = ""
    #: The process that renewed the use last.
    by: str
    #: A text that changes with each renewal.
    renewal: str


class EnvironmentUses(Protocol):
    """A place that all processes of an environment share: Redis or the ledger. Raises RedisAway or DatabaseAway."""

    #: The place's name for people.
    place: str

    def current(self, environment: str) -> EnvironmentUse | None:
        """Returns the use that was renewed within USE_SECONDS, by the place's own time. None: no such use exists."""
        ...

    def renew(self, environment: str, brokers: frozenset[str], *, by: str, redis: str = "") -> None:
        """Writes the use over any stored use. If two processes write at once, the last writer wins."""
        ...


class RedisIdentity(Protocol):
    """The identity of a Redis: a random text that is lost only with Redis' memory. Raises RedisAway."""

    def identity(self, environment: str) -> str:
        """Returns the identity. Empty: this Redis has none."""
        ...

    def keep_identity(self, environment: str) -> str:
        """Returns the identity, and creates it unless it exists. Empty: another program's key has that name."""
        ...
