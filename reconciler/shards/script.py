"""Lua scripts from a package's .lua files, run by their text (in a MULTI) or by their hash."""

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
    """One script, run by EVALSHA and never by EVAL, because this project's ACL users may not use EVAL. Immutable,
    shared by threads.

    redis-py's own Script does the same, but belongs to one client and does not repeat SCRIPT LOAD. The demo needs that,
    because fakeredis' server closes the connection after an error reply such as NOSCRIPT.
    """

    def __init__(self, package: str, file: str) -> None:
        self._text = script_text(package, file)
        self.sha = hashlib.sha1(self._text.encode(), usedforsecurity=False).hexdigest()

    def run(self, client: RedisClient, keys: Sequence[str], arguments: Sequence[str | int | bytes]) -> Any:
        """Runs the script; all keys share a slot. NOSCRIPT means that it did not run: then it is loaded and run
        again."""
        try:
            return client.evalsha(self.sha, len(keys), *keys, *arguments)
        except exceptions.NoScriptError:
            self.load(client)
            return client.evalsha(self.sha, len(keys), *keys, *arguments)

    def load(self, client: RedisClient) -> None:
        """Loads the script; loading it twice changes nothing."""
        try:
            client.script_load(self._text)
        except exceptions.ConnectionError:
            client.script_load(self._text)
