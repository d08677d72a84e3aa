"""The stand-in Redis: the commands that the product uses, on Python values, one at a time.

Keys are text, members and values bytes. Only what the product needs of each command is here; anything else raises.
tests/simulation/test_stand_in_redis.py compares it with fakeredis and with a real server.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from redis import exceptions

from tests.simulation.redis_scripts import by_heart, run_lua, sha_of

Value = Any
#: Values by key, ends of life in ms by key, writes so far.
Snapshot = tuple[dict[str, Value], dict[str, int], int]


def _bytes(value: Any) -> bytes:
    if value.__class__ is bytes:
        found: bytes = value
        return found
    return str(value).encode()


def _text(value: Any) -> str:
    if value.__class__ is str:
        found: str = value
        return found
    return value.decode() if isinstance(value, bytes) else str(value)


def _wrong_type() -> exceptions.ResponseError:
    return exceptions.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value")


class RedisData:
    """One Redis server's memory. `now_ms` is its clock."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.values: dict[str, Value] = {}
        self.expires: dict[str, int] = {}
        #: Grows with every change of a key: what WATCH compares.
        self.versions: dict[str, int] = {}
        #: Scripts by hash; a restart forgets them.
        self.scripts: dict[str, str] = {}
        #: Grows with every restart: connections of before are gone.
        self.era = 0
        self.writes = 0
        self.is_full = False
        self._changes = 0
        self.commands: dict[str, Callable[..., Any]] = {name: getattr(self, method) for name, method in _METHODS}

    # ---- what may happen to it

    def snapshot(self) -> Snapshot:
        """What a disk or a replica would have now."""
        return {key: _copied(value) for key, value in self.values.items()}, dict(self.expires), self.writes

    def restore(self, snapshot: Snapshot, *, forgets_scripts: bool) -> int:
        """Falls back; returns how many acknowledged writes are gone."""
        values, expires, writes = snapshot
        self.values = {key: _copied(value) for key, value in values.items()}
        self.expires = dict(expires)
        lost, self.writes = self.writes - writes, writes
        self.restart(forgets_scripts=forgets_scripts)
        return lost

    def wipe(self, *, forgets_scripts: bool = True) -> int:
        """Loses everything; returns how many keys."""
        keys = len(self.values)
        self.values, self.expires, self.writes = {}, {}, 0
        self.restart(forgets_scripts=forgets_scripts)
        return keys

    def restart(self, *, forgets_scripts: bool) -> None:
        """Connections are closed."""
        self.era += 1
        self.versions = {}
        if forgets_scripts:
            self.scripts = {}

    # ---- commands

    def run(self, name: str, *arguments: Any) -> Any:
        """One command. Raises redis.exceptions.ResponseError as a server would answer."""
        command = self.commands.get(name)
        if command is None:
            raise exceptions.ResponseError(f"unknown command {name}")
        return command(*arguments)

    def _any(self, key: Any) -> Any:
        if key.__class__ is not str:
            key = _text(key)
        expires = self.expires
        if expires and key in expires and expires[key] <= self.now_ms():
            del expires[key]
            self.values.pop(key, None)
            self._touch(key)
        return self.values.get(key)

    def _get(self, key: Any, kind: type) -> Any:
        value = self._any(key)
        if value is not None and value.__class__ is not kind:
            raise _wrong_type()
        return value

    def _touch(self, key: str) -> None:
        self._changes += 1
        self.versions[key] = self._changes
        self.writes += 1

    def _put(self, key: str, value: Value) -> None:
        self._need_room()
        self._store(key, value)

    def _need_room(self) -> None:
        if self.is_full:
            raise exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'.")

    def _store(self, key: str, value: Value) -> None:
        if value or value.__class__ is bytes:
            self.values[key] = value
        else:
            self.values.pop(key, None)
        if self.expires:
            self.expires.pop(key, None)
        self._changes += 1
        self.versions[key] = self._changes
        self.writes += 1

    def _do_get(self, key: str) -> bytes | None:
        value: bytes | None = self._get(key, bytes)
        return value

    def _do_set(self, key: Any, value: Any, *options: Any) -> bool | None:
        key = _text(key)
        words = [_text(option).upper() for option in options]
        if "NX" in words and self._any(key) is not None:
            return None
        self._put(key, _bytes(value))
        if "PX" in words:
            self.expires[key] = self.now_ms() + int(_text(options[words.index("PX") + 1]))
        return True

    def _do_pexpire(self, key: str, milliseconds: Any) -> int:
        if self._any(key) is None:
            return 0
        self.expires[key] = self.now_ms() + int(milliseconds)
        self._touch(key)
        return 1

    def _do_incrby(self, key: Any, amount: Any) -> int:
        key = _text(key)
        number = int(self._get(key, bytes) or 0) + int(_text(amount))
        self._put(key, b"%d" % number)
        return number

    def _do_time(self) -> tuple[int, int]:
        milliseconds = self.now_ms()
        return milliseconds // 1000, milliseconds % 1000 * 1000

    def _do_type(self, key: str) -> bytes:
        value = self._any(key)
        return b"none" if value is None else _KINDS[value.__class__]

    def _do_exists(self, key: str) -> int:
        return int(self._any(key) is not None)

    def _do_hget(self, key: Any, field: Any) -> bytes | None:
        return (self._get(key, dict) or {}).get(_bytes(field))

    def _do_hset(self, key: Any, field: Any, value: Any) -> int:
        key = _text(key)
        known = self._get(key, dict)
        self._need_room()
        if known is None:
            known = {}
        field = _bytes(field)
        is_new = field not in known
        known[field] = _bytes(value)
        self._store(key, known)
        return int(is_new)

    def _do_hgetall(self, key: str) -> dict[bytes, bytes]:
        return dict(self._get(key, dict) or {})

    def _do_sadd(self, key: Any, *members: Any) -> int:
        key = _text(key)
        known = self._get(key, set)
        self._need_room()
        if known is None:
            known = set()
        before = len(known)
        known.update(map(_bytes, members))
        self._store(key, known)
        return len(known) - before

    def _do_sismember(self, key: str, member: bytes) -> int:
        return int(member in (self._get(key, set) or ()))

    def _do_smismember(self, key: str, *members: bytes) -> list[int]:
        known = self._get(key, set) or ()
        return [int(member in known) for member in members]

    def _do_srem(self, key: Any, *members: Any) -> int:
        key = _text(key)
        known = self._get(key, set)
        there = {member for member in map(_bytes, members) if member in (known or ())}
        if there:  # frees memory, so a full server does it
            known -= there
            self._store(key, known)
        return len(there)

    def _do_scard(self, key: str) -> int:
        return len(self._get(key, set) or ())

    def _do_sdiff(self, first: Any, *others: Any) -> list[bytes]:
        found = set(self._get(first, set) or ())
        for other in others:
            found -= self._get(other, set) or set()
        return sorted(found)

    def _do_sdiffstore(self, target: Any, first: Any, *others: Any) -> int:
        target = _text(target)
        found = set(self._get(first, set) or ())
        for other in others:
            found -= self._get(other, set) or set()
        self._put(target, found)
        return len(found)

    def _scores(self, key: Any) -> dict[bytes, float]:
        value = self._any(key)
        if value is None:
            return {}
        if isinstance(value, Scores):
            return value
        if isinstance(value, set):
            return dict.fromkeys(value, 1.0)
        raise _wrong_type()

    def _do_zunionstore(self, target: Any, count: Any, *rest: Any) -> int:
        target = _text(target)
        keys, options = rest[: int(_text(count))], [_text(option) for option in rest[int(_text(count)) :]]
        weights = [1.0] * len(keys)
        if "WEIGHTS" in options:
            at = options.index("WEIGHTS") + 1
            weights = [float(options[at + number]) for number in range(len(keys))]
        aggregate = options[options.index("AGGREGATE") + 1] if "AGGREGATE" in options else "SUM"
        folds: dict[str, Callable[[float, float], float]] = {"MIN": min, "MAX": max, "SUM": operator.add}
        fold = folds[aggregate]
        union = Scores()
        for key, weight in zip(keys, weights, strict=True):
            for member, score in self._scores(key).items():
                weighed = score * weight
                union[member] = fold(union[member], weighed) if member in union else weighed
        self._put(target, union)
        return len(union)

    def _do_zdiffstore(self, target: Any, count: Any, *keys: Any) -> int:
        target, count = _text(target), _text(count)
        left = Scores(self._scores(keys[0]))
        for other in keys[1 : int(count)]:
            if left:
                for member in self._scores(other):
                    left.pop(member, None)
        self._put(target, left)
        return len(left)

    def _do_zcard(self, key: str) -> int:
        return len(self._get(key, Scores) or ())

    def _do_zrem(self, key: Any, *members: Any) -> int:
        key = _text(key)
        known = self._get(key, Scores)
        if known is None:
            return 0
        there = {member for member in map(_bytes, members) if member in known}
        if there:
            self._need_room()
            for member in there:
                del known[member]
            self._store(key, known)
        return len(there)

    def _ordered(self, key: str) -> list[tuple[float, bytes]]:
        return sorted((score, member) for member, score in (self._get(key, Scores) or {}).items())

    def _do_zadd(self, key: Any, *words: Any) -> int:
        key = _text(key)
        is_new_only = _text(words[0]) == "NX"
        pairs = words[1:] if is_new_only else words
        known = self._get(key, Scores)
        self._need_room()
        if known is None:
            known = Scores()
        before = len(known)
        for score, member in zip(pairs[::2], pairs[1::2], strict=True):
            member = _bytes(member)
            if not (is_new_only and member in known):
                known[member] = float(_text(score))
        self._store(key, known)
        return len(known) - before

    def _do_zinterstore(self, target: Any, count: Any, *rest: Any) -> int:
        keys = rest[: int(_text(count))]
        weights = [1.0] * len(keys)
        words = [_text(word) for word in rest[len(keys) :]]
        if "WEIGHTS" in words:
            weights = [float(word) for word in words[1 : 1 + len(keys)]]
        found = Scores()
        parts = [self._scores(key) for key in keys]
        for member in parts[0]:
            if all(member in part for part in parts[1:]):
                found[member] = sum(part[member] * weight for part, weight in zip(parts, weights, strict=True))
        self._put(_text(target), found)
        return len(found)

    def _do_sscan(self, key: Any, cursor: Any, *options: Any) -> list[Any]:
        """Everything in one page, in an order that is the same in every run."""
        return [b"0", sorted(self._get(key, set) or ())]

    def _do_hdel(self, key: Any, *fields: Any) -> int:
        key = _text(key)
        known = self._get(key, dict)
        if known is None:
            return 0
        there = {field for field in map(_bytes, fields) if field in known}
        if there:
            self._need_room()
            for field in there:
                del known[field]
            self._store(key, known)
        return len(there)

    def _do_eval(self, source: str, count: Any, *words: Any) -> Any:
        """EVAL: an error stops the script; from now on the server knows it by its hash."""
        return self._scripted(self.load(source), source, list(words[: int(count)]), list(words[int(count) :]))

    def _do_evalsha(self, sha: str, count: Any, *words: Any) -> Any:
        return self.evalsha(sha, list(words[: int(count)]), list(words[int(count) :]))

    def _do_zrange(self, key: Any, first: Any, last: Any) -> list[tuple[bytes, float]]:
        first, last = int(first), int(last)
        end = None if last == -1 else last + 1
        return [(member, score) for score, member in self._ordered(key)[first:end]]

    def _do_zrangebyscore(self, key: str, low: Any, high: Any, start: int, num: int) -> list[tuple[bytes, float]]:
        low, high = float(low), float(high)
        found = [(member, score) for score, member in self._ordered(key) if low <= score <= high]
        return found[start : start + num]

    def _do_rename(self, key: Any, target: Any) -> bool:
        target = _text(target)
        value = self._any(key)
        if value is None:
            raise exceptions.ResponseError("no such key")
        self._put(target, value)
        self._do_unlink(key)
        return True

    def _do_unlink(self, *keys: Any) -> int:
        removed = 0
        for key in map(_text, keys):
            if self._any(key) is not None:
                del self.values[key]
                self.expires.pop(key, None)
                self._touch(key)
                removed += 1
        return removed

    def _do_ping(self) -> bool:
        return True

    # ---- scripts

    def load(self, source: str) -> str:
        """SCRIPT LOAD."""
        sha = sha_of(source)
        self.scripts[sha] = source
        return sha

    def evalsha(self, sha: str, keys: list[str], arguments: list[Any]) -> Any:
        """EVALSHA: Lua in earnest, but for the scripts known by heart."""
        if sha not in self.scripts:
            raise exceptions.NoScriptError("No matching script.")
        return self._scripted(sha, self.scripts[sha], keys, arguments)

    def _scripted(self, sha: str, source: str, keys: list[str], arguments: list[Any]) -> Any:
        known = by_heart(sha)
        answer = known(self, keys, arguments) if known is not None else None
        return answer if answer is not None else run_lua(self, source, keys, arguments)


class Scores(dict[bytes, float]):
    """A sorted set; a plain dict is a hash."""


_KINDS: dict[type, bytes] = {bytes: b"string", set: b"set", dict: b"hash", Scores: b"zset"}
#: Command -> method.
_METHODS = [(name[4:].upper(), name) for name in dir(RedisData) if name.startswith("_do_")]


def _copied(value: Value) -> Value:
    return value if isinstance(value, bytes) else type(value)(value)
