"""Lua for the stand-in Redis: run by Lua 5.1 itself, but for the scripts that are known by heart."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

from lupa.lua51 import LuaRuntime

from reconciler.shards.lease_values import is_held_by
from tests.simulation.known_scripts import SHA_OF_SCRIPT
from tests.simulation.round_twin import round_twin

#: What stands for a script: the stand-in, KEYS and ARGV in, the answer out; None: only Lua knows.
Script = Callable[[Any, list[str], list[Any]], Any]


class Runs(Protocol):
    """The stand-in, as scripts see it."""

    commands: dict[str, Callable[..., Any]]

    def run(self, name: str, *arguments: Any) -> Any:
        """One command."""
        ...


def as_bytes(value: Any) -> bytes:
    """As Redis' protocol carries it."""
    return value if isinstance(value, bytes) else str(value).encode()


def _admit(data: Runs, keys: list[str], arguments: list[Any]) -> list[Any]:
    run = data.run
    stored = run("HGET", keys[1], arguments[0]) or b"none"
    if stored != as_bytes(arguments[1]):
        return [0, stored]
    apart, apart_max, proof, trail_field, trail, *members = arguments[3:]
    if members:
        run("SADD", keys[0], *members)
    if apart and run("SCARD", keys[2]) < apart_max:
        run("SADD", keys[2], *members[:apart])
    if proof:
        run("HSET", keys[-1], arguments[0], proof)
        if trail:
            run("HSET", keys[-1], trail_field, trail)
    run("HSET", keys[1], arguments[0], arguments[2])
    return [1, as_bytes(arguments[2])]


def _take_lease(data: Runs, keys: list[str], arguments: list[Any]) -> Any:
    holder = data.run("GET", keys[0])
    token, milliseconds, value, over = arguments
    if holder and not is_held_by(token, holder) and holder != as_bytes(over):
        return holder
    data.run("SET", keys[0], value, "PX", milliseconds)
    return 1


def _release_lease(data: Runs, keys: list[str], arguments: list[Any]) -> int:
    if is_held_by(arguments[0], data.run("GET", keys[0])):
        return int(data.run("UNLINK", keys[0]))
    return 0


def _look(data: Runs, keys: list[str], arguments: list[Any]) -> list[Any]:
    run = data.run
    epoch, generation, covered, half, pending, apart, lease, offsets, *commits = keys
    found = [run("GET", epoch) or b"", run("GET", generation) or b"", run("HGET", covered, "last") or b""]
    found += [run("SCARD", half), sum(run("SCARD", commit) for commit in commits), run("ZCARD", pending)]
    oldest = run("ZRANGE", pending, 0, 0)
    found += [b"%d" % oldest[0][1] if oldest else b"", run("SCARD", apart)]
    taken = [word for pair in run("HGETALL", offsets).items() for word in pair]
    now, holder = run("TIME"), run("GET", lease)
    token, milliseconds, renewed = arguments
    if renewed and is_held_by(token, holder):
        run("SET", lease, renewed, "PX", milliseconds)
    return [*found, holder or b"", *now, taken]


def _sharers(data: Runs, keys: list[str], arguments: list[Any]) -> list[Any]:
    token, milliseconds, digest = arguments
    seconds, microseconds = map(int, data.run("TIME"))
    now_ms = seconds * 1000 + microseconds // 1000
    data.run("HSET", keys[0], token, f"{now_ms + int(milliseconds)} {milliseconds} {digest}")
    data.run("PEXPIRE", keys[0], milliseconds)
    found = []
    for name, entry in data.run("HGETALL", keys[0]).items():
        until_ms, length_ms, shared = as_bytes(entry).split(b" ")
        if 0 < int(until_ms) - now_ms <= int(length_ms):
            found += [name, shared]
        else:
            data.run("HDEL", keys[0], name)
    return found


#: False: every script is run by Lua. See economies.py.
are_known_by_heart = False
_FUNCTIONS: dict[str, Script] = {
    "admit": _admit, "look": _look, "take lease": _take_lease, "release lease": _release_lease, "round": round_twin,
    "sharers": _sharers,
}  # fmt: skip
_BY_HEART = {SHA_OF_SCRIPT[name]: function for name, function in _FUNCTIONS.items()}


def by_heart(sha: str) -> Script | None:
    """A script that need not be interpreted."""
    return _BY_HEART.get(sha) if are_known_by_heart else None


@cache
def sha_of(source: str) -> str:
    """The name that Redis gives a script."""
    return hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()


#: Source -> compiled function; one interpreter a process, which Lua 5.1 scripts cannot leave anything in.
_LUA: dict[str, Any] = {}


def _compiled(source: str) -> Any:
    if not _LUA:
        _LUA["runtime"] = LuaRuntime(encoding=None, unpack_returned_tuples=False)
    if source not in _LUA:
        _LUA[source] = _LUA["runtime"].eval(b"function(KEYS, ARGV, redis)\n" + source.encode() + b"\nend")
    return _LUA[source]


def run_lua(data: Runs, source: str, keys: list[str], arguments: list[Any]) -> Any:
    """Raises redis.exceptions.ResponseError as a command inside does."""
    function, table = _compiled(source), _LUA["runtime"].table_from
    commands = data.commands

    def to_lua(answer: Any) -> Any:
        if answer is None:
            return False
        if isinstance(answer, (bytes, int)):
            return answer
        return table([to_lua(one) for one in answer])

    def call(name: bytes, *words: Any) -> Any:
        command = commands.get(_NAMES.get(name, ""))
        if command is None:
            return to_lua(data.run(name.decode(), *words))
        if name == b"ZRANGE":
            found = command(*words[:3])
            has_scores = words[3:] == (b"WITHSCORES",)
            return table([word for m, score in found for word in ((m, b"%d" % score) if has_scores else (m,))])
        answer = command(*words)
        if answer.__class__ is int:
            return answer
        if name == b"TYPE":
            return table({b"ok": answer})
        if name == b"HGETALL":
            answer = [word for pair in answer.items() for word in pair]
        return to_lua(answer)

    answer = function(
        table([as_bytes(key) for key in keys]),
        table([as_bytes(argument) for argument in arguments]),
        table({b"call": call}),
    )
    return _from_lua(answer)


def _from_lua(answer: Any) -> Any:
    return [_from_lua(one) for one in answer.values()] if hasattr(answer, "values") else answer


#: What the scripts of the product call, as Lua spells it.
_NAMES = {
    name.encode(): name
    for name in (
        "GET", "SET", "TYPE", "ZCARD", "SCARD", "SDIFFSTORE", "ZUNIONSTORE", "SSCAN", "ZADD", "ZINTERSTORE",
        "ZDIFFSTORE", "ZREM", "ZRANGE", "UNLINK", "RENAME", "HSET", "HGET", "HGETALL", "HDEL", "INCRBY", "SADD",
    )
}  # fmt: skip
