"""Which cluster an environment is used for, in Redis (ports.EnvironmentUses): one key, which expires."""

from __future__ import annotations

import json
import secrets
from typing import Any

from reconciler.contract.keyspace import use_key
from reconciler.contract.row_rules import brokers_of, wait_ms
from reconciler.errors import InvariantViolation
from reconciler.policy.ports import USE_SECONDS, EnvironmentUse
from reconciler.shards.access import RedisClient, translated_errors
from reconciler.shards.values import text_of


class RedisEnvironmentUses:
    """Uses in Redis. Shared by threads. Raises RedisAway."""

    place = "Redis"

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    def current(self, environment: str) -> EnvironmentUse | None:
        """One GET. What another program wrote there knows no broker, and the next renewal replaces it."""
        try:
            with translated_errors():
                answer: Any = self._client.get(use_key(environment))
        except InvariantViolation:  # a key of another type
            answer = b""
        if answer is None:
            return None
        renewal, by, brokers = (*text_of(answer).split("\n", 2), "", "")[:3]
        return EnvironmentUse(brokers=brokers_of(brokers), by=by, renewal=renewal)

    def renew(self, environment: str, brokers: frozenset[str], *, by: str) -> None:
        """One SET."""
        value = "\n".join((secrets.token_hex(8), by, json.dumps(sorted(brokers))))
        with translated_errors():
            self._client.set(use_key(environment), value, px=wait_ms(USE_SECONDS))
