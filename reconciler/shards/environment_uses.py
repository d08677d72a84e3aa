"""Stores in one expiring key of Redis which cluster an environment is used for (ports.EnvironmentUses).

A second key, which never expires, has the identity of this Redis (ports.RedisIdentity). A replica has the identity of
its primary, so a fail-over keeps the identity. A Redis that lost its memory gets a new identity.
"""

from __future__ import annotations

import re
import secrets
from typing import Any

from reconciler.contract.keyspace import identity_key, use_key
from reconciler.contract.row_rules import use_of, use_text, wait_ms
from reconciler.errors import InvariantViolation
from reconciler.policy.ports.environment import USE_SECONDS, EnvironmentUse
from reconciler.shards.access import RedisClient, translated_errors
from reconciler.shards.values import text_of

_IDENTITY = re.compile(r"[0-9a-f]{16}")


class RedisEnvironmentUses:
    """Uses of environments in Redis, and the identity of Redis. Shared by threads. Raises RedisAway."""

    place = "Redis"

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    def current(self, environment: str) -> EnvironmentUse | None:
        """Sends one GET. A value that another program wrote names no broker, and the next renewal replaces that
        value."""
        answer = self._get(use_key(environment))
        if answer is None:
            return None
        renewal, by, told = (*text_of(answer).split("\n", 2), "", "")[:3]
        brokers, redis = use_of(told)
        return EnvironmentUse(brokers=brokers, redis=redis, by=by, renewal=renewal)

    def renew(self, environment: str, brokers: frozenset[str], *, by: str, redis: str = "") -> None:
        """Sends one SET."""
        value = "\n".join((secrets.token_hex(8), by, use_text(brokers, redis)))
        with translated_errors():
            self._client.set(use_key(environment), value, px=wait_ms(USE_SECONDS))

    def identity(self, environment: str) -> str:
        """Sends one GET. A text that is not ours counts as no identity."""
        found = text_of(self._get(identity_key(environment)) or b"")
        return found if _IDENTITY.fullmatch(found) else ""

    def keep_identity(self, environment: str) -> str:
        """Sends one GET, and a SET NX if there is no identity. If two processes write, the first one's identity
        stays."""
        found = self.identity(environment)
        if not found:
            with translated_errors():
                self._client.set(identity_key(environment), secrets.token_hex(8), nx=True)
            found = self.identity(environment)
        return found

    def _get(self, key: str) -> Any:
        try:
            with translated_errors():
                return self._client.get(key)
        except InvariantViolation:  # the key has another type
            return b""
