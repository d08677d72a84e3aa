"""redis-py as the product sees it, on the stand-in: one client of one process, with its network and its habits.

A call is one round trip. Its request may be lost, its reply may be lost after the server has executed it; a client
with redis-py's default retry sends a pipeline again then, which re-executes a MULTI without anybody noticing, unless
it watches something: then redis-py raises WatchError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from redis import exceptions

from reconciler.shards.round_commands import ROUND_SHA
from tests.simulation.kernel import Link, Process
from tests.simulation.redis_data import RedisData


def _is_round(command: Sequence[Any]) -> bool:
    return command[0] == "EVAL" or command[:2] == ("EVALSHA", ROUND_SHA)


def _has_run(answer: Any) -> bool:
    """False: the server does not know the script, or another round ran; nothing has changed."""
    return isinstance(answer, list) and answer[0] == b"ran"


class RedisServer:
    """A stand-in with its link; shared by all processes."""

    def __init__(self, data: RedisData, link: Link) -> None:
        self.data = data
        self.link = link
        #: Probability that the reply to EXEC is lost after the round has run.
        self.exec_reply_lost = 0.0
        #: Around each EXEC of a round, and before a ZREM, with its sender; told the root of the shard's keys. For
        #: checkers and faults.
        self.before_round: Callable[[str], Any] = lambda _root: None
        self.after_round: Callable[[str, Any], None] = lambda _root, _before: None
        self.before_record: Callable[[str, tuple[bytes, ...]], None] = lambda _root, _members: None
        self.after_script: Callable[[list[str], list[Any], Any], None] = lambda _keys, _arguments, _answer: None
        self.before_zrem: Callable[[Process, str, tuple[bytes, ...]], None] = lambda _sender, _root, _members: None


class SimulatedRedis:
    """A client of one process. `retries`: redis-py's default of version 6 and newer, which the product switches off."""

    def __init__(self, server: RedisServer, process: Process, *, retries: bool = False) -> None:
        self.server = server
        self.process = process
        self.retries = retries
        self._call = server.link.call
        self._data = server.data
        self._known_scripts: set[str] = set()

    def round_trip(self, act: Callable[[], Any], what: str) -> Any:
        """One request and its reply."""
        try:
            return self._call(self.process, act, exceptions.ConnectionError, exceptions.TimeoutError, what)
        except (exceptions.OutOfMemoryError, exceptions.ExecAbortError):
            self.process.kernel.saw("Redis refused a write: out of memory", what)
            raise

    def get_node_from_key(self, key: str) -> object:
        """Of a cluster. This is one server, which is not asked once more, node by node."""
        raise exceptions.RedisClusterException(f"no node but this one has {key}")

    def execute_command(self, name: str, *arguments: Any) -> Any:
        """One command."""
        return self.round_trip(partial(self._data.commands[name], *arguments), name)

    def get(self, key: str) -> Any:
        return self.execute_command("GET", key)

    def set(self, key: str, value: str, *, nx: bool = False, px: int | None = None) -> Any:
        options = [*(["NX"] if nx else []), *(["PX", px] if px is not None else [])]
        return self.execute_command("SET", key, value, *options)

    def hget(self, key: str, field: str) -> Any:
        return self.execute_command("HGET", key, field)

    def scard(self, key: str) -> Any:
        return self.execute_command("SCARD", key)

    def sscan(self, key: str, cursor: int, *, count: int) -> Any:
        return self.execute_command("SSCAN", key, cursor, "COUNT", count)

    def smismember(self, key: str, members: list[bytes]) -> Any:
        return self.execute_command("SMISMEMBER", key, *members)

    def srem(self, key: str, *members: bytes) -> Any:
        return self.execute_command("SREM", key, *members)

    def zrem(self, key: str, *members: bytes) -> Any:
        def remove() -> Any:
            self.server.before_zrem(self.process, key.removesuffix(":pending"), members)
            return self._data.run("ZREM", key, *members)

        return self.round_trip(remove, "ZREM")

    def zrangebyscore(
        self, key: str, low: Any, high: Any, *, start: int = 0, num: int = 1 << 30, withscores: bool = False
    ) -> Any:
        found = self.execute_command("ZRANGEBYSCORE", key, low, high, start, num)
        return found if withscores else [member for member, _ in found]

    def evalsha(self, sha: str, count: int, *words: Any) -> Any:
        return self.round_trip(partial(self.run_script, sha, count, *words), "EVALSHA")

    def run_script(self, sha: str, count: int, *words: Any) -> Any:
        """What the server does."""
        keys, arguments = list(words[:count]), list(words[count:])
        try:
            answer = self._data.evalsha(sha, keys, arguments)
        except exceptions.NoScriptError:
            if sha in self._known_scripts:
                self.process.kernel.saw("Redis did not know a script any more", sha[:8])
            raise
        self._known_scripts.add(sha)
        self.server.after_script(keys, arguments, answer)
        return answer

    def script_load(self, source: str) -> Any:
        return self.round_trip(lambda: self._data.load(source), "SCRIPT LOAD")

    def pipeline(self, *, transaction: bool = True) -> SimulatedPipeline:
        return SimulatedPipeline(self, is_transaction=transaction)

    def close(self) -> None:
        """Nothing to close."""


class SimulatedPipeline:
    """redis.client.Pipeline: immediate while it watches, else collected."""

    def __init__(self, client: SimulatedRedis, *, is_transaction: bool) -> None:
        self._client = client
        self._data = client.server.data
        self._is_transaction = is_transaction
        self._watched: dict[str, int | None] | None = None
        self._era = self._data.era
        self._is_explicit = False
        self._commands: list[tuple[Any, ...]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watched, self._commands, self._is_explicit = None, [], False

    def watch(self, *keys: str) -> bool:
        def watch() -> None:
            self._era = self._data.era
            self._watched = {key: self._data.versions.get(key) for key in keys}

        self._client.round_trip(watch, "WATCH")
        return True

    def multi(self) -> None:
        self._is_explicit = True

    def execute_command(self, *command: Any) -> Any:
        if self._watched is None or self._is_explicit:
            self._commands.append(command)
            return self

        def run() -> Any:
            if self._era != self._data.era:
                raise exceptions.WatchError("the connection was lost while watching")
            return self._data.run(*command)

        try:
            return self._client.round_trip(run, str(command[0]))
        except (exceptions.ConnectionError, exceptions.TimeoutError) as error:
            raise exceptions.WatchError("a ConnectionError occurred while watching") from error

    def get(self, key: str) -> None:
        self.execute_command("GET", key)

    def type(self, key: str) -> None:
        self._commands.append(("TYPE", key))  # never asked while watching

    def zcard(self, key: str) -> None:
        self.execute_command("ZCARD", key)

    def zrange(self, key: str, first: int, last: int, *, withscores: bool) -> None:
        assert withscores
        self.execute_command("ZRANGE", key, first, last)

    def sadd(self, key: str, *members: bytes) -> None:
        self.execute_command("SADD", key, *members)

    def evalsha(self, sha: str, count: int, *words: Any) -> None:
        self.execute_command("EVALSHA", sha, count, *words)

    def execute(self, *, raise_on_error: bool = True) -> list[Any]:
        commands, self._commands = self._commands, []
        is_multi = self._is_transaction
        watched, self._watched, self._is_explicit = self._watched, None, False
        is_round = any(_is_round(command) for command in commands)
        server = self._client.server

        known = self._data.commands

        def run() -> list[Any]:
            if watched is not None:
                self._compare(watched)
            if is_multi and self._data.is_full:
                raise exceptions.ExecAbortError("Transaction discarded because of: OOM")
            answers: list[Any] = []
            for command in commands:
                name, *arguments = command
                root, before = "", None
                if _is_round(command):
                    root = str(command[3]).removesuffix(":epoch")
                    before = server.before_round(root)
                elif name == "SADD":
                    server.before_record(str(arguments[0]).removesuffix(":commit"), tuple(arguments[1:]))
                try:
                    answers.append(
                        self._client.run_script(*arguments) if name == "EVALSHA" else known[name](*arguments)
                    )
                except exceptions.ResponseError as error:
                    answers.append(error)  # it does not stop the rest
                if root and _has_run(answers[-1]):
                    server.after_round(root, before)
            return answers

        answers = self._sent(run, commands, is_round=is_round, is_watching=watched is not None)
        if raise_on_error:
            for answer in answers:
                if isinstance(answer, Exception):
                    raise answer
        return answers

    def _compare(self, watched: dict[str, int | None]) -> None:
        if self._era != self._data.era:
            raise exceptions.WatchError("the connection was lost while watching")
        if any(self._data.versions.get(key) != version for key, version in watched.items()):
            raise exceptions.WatchError("Watched variable changed.")

    def _sent(
        self, run: Callable[[], list[Any]], commands: Sequence[tuple[Any, ...]], *, is_round: bool, is_watching: bool
    ) -> list[Any]:
        client, server = self._client, self._client.server
        kernel = client.process.kernel
        what = "EXEC" if self._is_transaction else "pipeline"
        try:
            answers: list[Any] = client.round_trip(run, what)
            if is_round and server.exec_reply_lost and kernel.dice.random() < server.exec_reply_lost:
                kernel.saw("redis reply to the round lost", f"{len(commands)} commands")
                client.process.sleep(server.link.timeout_seconds)
                raise exceptions.TimeoutError("no answer to EXEC")
        except (exceptions.ConnectionError, exceptions.TimeoutError) as error:
            if not client.retries:
                raise
            if is_watching:
                raise exceptions.WatchError("a ConnectionError occurred while watching") from error
            kernel.saw("redis-py silently sent a pipeline again", what)
            answers = client.round_trip(run, what)
        return answers
