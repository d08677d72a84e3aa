"""Lua scripts from the .lua files of a package, by their text (in a MULTI) or by their hash."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from redis import exceptions

from reconciler.shards.access import RedisClient


def script_text(package: str, file: str) -> str:
    """The script that lies beside the modules of a package."""
    return files(package).joinpath(file).read_text("utf-8")


class RedisScript:
    """One script, run by EVALSHA, never by EVAL: the ACL users of this project may not. Immutable, shared by threads.

    redis-py's own Script does the same, but belongs to one client and does not try SCRIPT LOAD again, which the demo
    needs: fakeredis' server closes the connection after an error answer, NOSCRIPT among them.
    """

    def __init__(self, package: str, file: str) -> None:
        self._text = script_text(package, file)
        self.sha = hashlib.sha1(self._text.encode(), usedforsecurity=False).hexdigest()

    def run(self, client: RedisClient, keys: Sequence[str], arguments: Sequence[str | int | bytes]) -> Any:
        """Runs it; all keys share a slot. NOSCRIPT means that it did not run: it is loaded, and run once more."""
        try:
            return client.evalsha(self.sha, len(keys), *keys, *arguments)
        except exceptions.NoScriptError:
            self.load(client)
            return client.evalsha(self.sha, len(keys), *keys, *arguments)

    def load(self, client: RedisClient) -> None:
        """Loads it; twice changes nothing."""
        try:
            client.script_load(self._text)
        except exceptions.ConnectionError:
            client.script_load(self._text)
