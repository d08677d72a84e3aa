"""Lua scripts from the .lua files of a package; Redis runs them by their text or by their hash."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from redis import exceptions

from reconciler.shards.access import RedisClient


def script_text(package: str, file: str) -> str:
    """Returns the text of a script that lies beside the modules of a package."""
    return files(package).joinpath(file).read_text("utf-8")


class RedisScript:
    """One script, run by EVALSHA and never by EVAL, because the login of `reconciler announcements` may not use EVAL.
    Immutable, shared by threads.

    redis-py's own Script belongs to one client and does not repeat SCRIPT LOAD. The demo needs the repetition, because
    fakeredis' server closes the connection after an error reply such as NOSCRIPT.
    """

    def __init__(self, package: str, file: str) -> None:
        self._text = script_text(package, file)
        self.sha = hashlib.sha1(self._text.encode(), usedforsecurity=False).hexdigest()

    def run(self, client: RedisClient, keys: Sequence[str], arguments: Sequence[str | int | bytes]) -> Any:
        """Runs the script, whose keys share a slot. If Redis does not know the script (NOSCRIPT), loads it and runs
        it."""
        try:
            return client.evalsha(self.sha, len(keys), *keys, *arguments)
        except exceptions.NoScriptError:
            self.load(client)
            return client.evalsha(self.sha, len(keys), *keys, *arguments)

    def load(self, client: RedisClient) -> None:
        """Loads the script. Loading it twice changes nothing."""
        try:
            client.script_load(self._text)
        except exceptions.ConnectionError:
            client.script_load(self._text)
