"""Lua scripts by their hash: EVALSHA, and SCRIPT LOAD when a restarted Redis has forgotten them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from redis import exceptions

from reconciler.shards.access import RedisClient


class RedisScript:
    """One script. Never sent by EVAL: the ACL users of this project may not. Immutable, shared by all threads."""

    def __init__(self, source: str) -> None:
        self.source = source.strip()
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()

    def run(self, client: RedisClient, keys: Sequence[str], arguments: Sequence[str | int | bytes]) -> Any:
        """Runs it; all keys share a slot. After NOSCRIPT it is loaded and run once more: it had not run before."""
        try:
            return client.evalsha(self.sha, len(keys), *keys, *arguments)
        except exceptions.NoScriptError:
            try:
                client.script_load(self.source)
            except exceptions.ConnectionError:
                # fakeredis' server closes a connection after an error reply; loading twice changes nothing.
                client.script_load(self.source)
            return client.evalsha(self.sha, len(keys), *keys, *arguments)
