"""Checks whether a Redis can safely keep the sets: `doctor` asks this, and `run` before it starts.

If Redis evicts keys of a set or refuses to write them, the difference only looks smaller. So a property that cannot be
verified is refused, unless `redis.accept_unverified` is set, for fakeredis and closed services.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto
from functools import partial
from typing import Any, TypeVar, cast

import redis
from redis.cluster import RedisCluster
from redis.exceptions import AskError, ReadOnlyError, ResponseError
from redis.sentinel import SentinelConnectionPool

from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.keyspace import ShardKeys, meta_key
from reconciler.contract.subscription import Shard, Subscription
from reconciler.errors import RedisAway
from reconciler.shards.access import RedisClient, is_of_state, translated_errors

T = TypeVar("T")

PRIMARY = Code("shards.primary")
NO_PRIMARY = Code("shards.no-primary", role=Field.NAME)
NAME_THE_PRIMARY = Code("shards.name-the-primary")
VERSION = Code("shards.version", version=Field.NAME)
OLD_VERSION = Code("shards.old-version", version=Field.NAME)
UPGRADE_REDIS = Code("shards.upgrade-redis")
NO_EVICTION = Code("shards.no-eviction")
EVICTS = Code("shards.evicts", policy=Field.NAME)
STOP_EVICTION = Code("shards.stop-eviction")
NEARLY_FULL = Code("shards.nearly-full", used=Field.NUMBER, limit=Field.NUMBER)
RAISE_MAXMEMORY = Code("shards.raise-maxmemory")
APPEND_ONLY_FILE = Code("shards.append-only-file")
SNAPSHOTS_ONLY = Code("shards.snapshots-only")
NO_APPEND_ONLY_FILE = Code("shards.no-append-only-file")
APPEND_TO_FILE = Code("shards.append-to-file")
FREES_IN_PLACE = Code("shards.frees-in-place")
FREE_LAZILY = Code("shards.free-lazily")
ROLE_REFUSED = Code("shards.role-refused", why=Field.TEXT)
VERSION_UNTOLD = Code("shards.version-untold")
EVICTION_UNTOLD = Code("shards.eviction-untold")
ALLOW_QUESTIONS = Code("shards.allow-questions")
EVERY_COMMAND = Code("shards.every-command")
COMMANDS_REFUSED = Code("shards.commands-refused", commands=Field.TEXT)
PROOFS_REFUSED = Code("shards.proofs-refused", commands=Field.TEXT)
ALLOW_COMMANDS = Code("shards.allow-commands")

#: The first version with ZDIFFSTORE.
VERSION_MIN = (6, 2)
MEMORY_SHARE_MAX = 0.7
#: Maximum number of characters of a server's refusal that are shown.
_SHOWN_CHARACTERS_MAX = 1_000


class Severity(Enum):
    """The effect of a finding on the start of `run`."""

    OK = auto()
    #: `run` starts; a change would improve the server.
    ADVICE = auto()
    #: `run` refuses to start.
    REFUSED = auto()


class RedisQuality(StrEnum):
    """The properties that are checked at a node."""

    ROLE = "role"
    VERSION = "version"
    EVICTION = "eviction"
    MEMORY = "memory"
    PERSISTENCE = "persistence"
    LAZY_FREE = "lazy-free"
    PERMISSIONS = "permissions"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisFinding:
    """One finding about one Redis node."""

    about: RedisQuality
    severity: Severity
    found: Fact
    #: The advice to a person; None if the severity is OK.
    remedy: Fact | None = None
    #: The node of a cluster; empty otherwise.
    node: str = ""


def check_redis(
    client: RedisClient,
    *,
    environment: str,
    accept_unverified: bool = False,
    judge: Callable[[Sequence[RedisFinding]], object] = lambda _: None,
) -> list[RedisFinding]:
    """Returns all findings; in a cluster, those of every primary. Writes nothing.

    `judge` gets the findings of each primary that answers, even if another one is silent. Raises what `judge` raises;
    RedisAway if Redis does not answer, or while a cluster or Sentinels name a server that is not a primary.
    """
    with translated_errors():
        if not isinstance(client, RedisCluster):
            is_named = isinstance(client.connection_pool, SentinelConnectionPool)
            found = list(_check_node(client, environment, accept_unverified=accept_unverified, is_named=is_named))
            judge(found)
            return found
        # The client may know the nodes from before a fail-over. A replica answers all questions of this module, so only
        # this step makes the client ask for the nodes again. Without this step, a healthy cluster would be refused for
        # ever.
        client.nodes_manager.initialize()

    def check(name: str, node: redis.Redis) -> list[RedisFinding]:
        found = _check_node(node, environment, accept_unverified=accept_unverified, is_named=True)
        named = [replace(one, node=name) for one in found]
        judge(named)
        return named

    return [finding for _, found in _of_each(client, check) for finding in found]


def require_answers(client: RedisClient) -> None:
    """Raises RedisAway, naming every primary that does not answer."""
    _of_each(client, lambda _, node: node.ping())


def require_room(client: RedisClient) -> None:
    """Raises RedisAway for a full primary, which answers but refuses every write.

    A primary that evicts keys is checked, too, because queueing a MULTI needs some memory. A primary that refuses INFO
    counts as having room.
    """
    full = [text for _, text in _of_each(client, _why_full) if text]
    if full:
        raise RedisAway("; ".join(full))


def _of_each(client: RedisClient, ask: Callable[[str, redis.Redis], T]) -> list[tuple[str, T]]:
    """Asks all primaries in parallel and returns the answer of each. Several silent primaries cost one time-out
    together.

    Raises RedisAway, naming all primaries that did not answer.
    """

    def find(name: str, node: redis.Redis) -> tuple[T | None, RedisAway | None]:
        try:
            with translated_errors():
                return ask(name, node), None
        except RedisAway as error:
            return None, _all_away([(f"{name}: {error}" if name else str(error), error.remedy)])

    primaries = list(_primaries(client))
    with ThreadPoolExecutor(max(1, len(primaries)), thread_name_prefix="asking") as threads:
        found = list(threads.map(lambda named: find(*named), primaries))
    away = [(str(error), error.remedy) for _, error in found if error is not None]
    if away:
        raise _all_away(away)
    return [(name, cast(T, answer)) for (name, _), (answer, _) in zip(primaries, found, strict=True)]


def _all_away(away: Sequence[tuple[str, str]]) -> RedisAway:
    """`away`: the text and the remedy of each error. A log tells an error again if its remedy is another one."""
    error = RedisAway("; ".join(text for text, _ in away))
    error.remedy = "; ".join(dict.fromkeys(remedy for _, remedy in away if remedy))
    return error


def _primaries(client: RedisClient) -> Iterator[tuple[str, redis.Redis]]:
    """Yields name (empty for a single server) and client of every primary that the client knows."""
    if not isinstance(client, RedisCluster):
        yield "", client
        return
    for node in client.get_primaries():  # type: ignore[no-untyped-call]  # redis-py has no annotation
        yield node.name, client.get_redis_connection(node)


def _why_full(name: str, node: redis.Redis) -> str:
    info = _ask(node, lambda: node.info("memory"))
    limit = int(info.get("maxmemory") or 0)
    # Buffers for replicas and for the append-only file do not count, as in getMaxmemoryState of Redis' evict.c.
    used = int(info.get("used_memory") or 0) - int(info.get("mem_not_counted_for_evict") or 0)
    if not limit or used <= limit:
        return ""
    return f"{name or 'it'} is full, {used} bytes of maxmemory {limit}: raise maxmemory, rounds will free what they can"


def _check_node(
    client: redis.Redis, environment: str, *, accept_unverified: bool, is_named: bool
) -> Iterator[RedisFinding]:
    """`is_named`: a cluster's nodes or Sentinels have named this server as a primary."""
    client.ping()
    info = _ask(client, lambda: client.info("all"))
    settings: dict[str, Any] = {}
    for name in ("maxmemory-policy", "lazyfree-lazy-server-del", "save"):  # Redis 6.2 takes only one name per command
        settings |= _ask(client, partial(client.config_get, name))
    unverified = Severity.ADVICE if accept_unverified else Severity.REFUSED
    yield _role(client, unverified, is_named=is_named)
    yield _version(info, unverified)
    yield _eviction(info, settings, unverified)
    yield from _memory(info)
    yield from _persistence(info, settings)
    if settings.get("lazyfree-lazy-server-del") == "no":
        yield RedisFinding(
            about=RedisQuality.LAZY_FREE, severity=Severity.ADVICE, found=FREES_IN_PLACE(), remedy=FREE_LAZILY()
        )
    yield _permissions(client, environment)


def _ask(client: redis.Redis, question: Callable[[], Any]) -> Mapping[str, Any]:
    """Returns the answer to the command; empty if the command is forbidden or unknown. Raises the server's error if its
    own state is the reason."""
    try:
        answer: Mapping[str, Any] = question()
    except ResponseError as error:
        _leave(client)
        if is_of_state(error):
            raise
        return {}
    return answer


def _leave(client: redis.Redis) -> None:
    # fakeredis' TCP server closes a connection after an error reply, so the next command needs a new connection.
    client.connection_pool.disconnect(inuse_connections=False)


def _role(client: redis.Redis, unverified: Severity, *, is_named: bool) -> RedisFinding:
    try:
        answer: Any = client.execute_command("ROLE")  # type: ignore[no-untyped-call]  # redis-py has no annotation
    except ResponseError as error:
        _leave(client)
        if is_of_state(error):
            raise
        return _unknown(RedisQuality.ROLE, ROLE_REFUSED(why=str(error)), unverified)
    role = answer[0].decode() if isinstance(answer[0], bytes) else str(answer[0])
    if role == "master":
        return RedisFinding(about=RedisQuality.ROLE, severity=Severity.OK, found=PRIMARY())
    if is_named:  # by a node or Sentinel that has not noticed a fail-over yet, so no setting is wrong
        _leave(client)  # Sentinels return the new primary only to new connections
        raise RedisAway(f"a server that is named as a primary is a {role}: a fail-over is not over yet")
    return RedisFinding(
        about=RedisQuality.ROLE,
        severity=Severity.REFUSED,
        found=NO_PRIMARY(role=role),
        remedy=NAME_THE_PRIMARY(),
    )


def _version(info: Mapping[str, Any], unverified: Severity) -> RedisFinding:
    text = str(info.get("redis_version") or "")
    numbers = tuple(int(part) for part in re.findall(r"\d+", text)[:2])
    if len(numbers) < 2:
        return _unknown(RedisQuality.VERSION, VERSION_UNTOLD(), unverified)
    if numbers < VERSION_MIN:
        return RedisFinding(
            about=RedisQuality.VERSION,
            severity=Severity.REFUSED,
            found=OLD_VERSION(version=text),
            remedy=UPGRADE_REDIS(),
        )
    return RedisFinding(about=RedisQuality.VERSION, severity=Severity.OK, found=VERSION(version=text))


def _eviction(info: Mapping[str, Any], settings: Mapping[str, Any], unverified: Severity) -> RedisFinding:
    policy = settings.get("maxmemory-policy") or info.get("maxmemory_policy")
    if policy is None:
        return _unknown(RedisQuality.EVICTION, EVICTION_UNTOLD(), unverified)
    if policy != "noeviction":
        return RedisFinding(
            about=RedisQuality.EVICTION,
            severity=Severity.REFUSED,
            found=EVICTS(policy=str(policy)),
            remedy=STOP_EVICTION(),
        )
    return RedisFinding(about=RedisQuality.EVICTION, severity=Severity.OK, found=NO_EVICTION())


def _memory(info: Mapping[str, Any]) -> Iterator[RedisFinding]:
    used, limit = int(info.get("used_memory") or 0), int(info.get("maxmemory") or 0)
    if limit and used > limit * MEMORY_SHARE_MAX:
        yield RedisFinding(
            about=RedisQuality.MEMORY,
            severity=Severity.ADVICE,
            found=NEARLY_FULL(used=used, limit=limit),
            remedy=RAISE_MAXMEMORY(),
        )


def _persistence(info: Mapping[str, Any], settings: Mapping[str, Any]) -> Iterator[RedisFinding]:
    if "aof_enabled" not in info:
        return
    about = RedisQuality.PERSISTENCE
    if int(info["aof_enabled"]):
        yield RedisFinding(about=about, severity=Severity.OK, found=APPEND_ONLY_FILE())
        return
    found = SNAPSHOTS_ONLY() if settings.get("save") else NO_APPEND_ONLY_FILE()
    yield RedisFinding(about=about, severity=Severity.ADVICE, found=found, remedy=APPEND_TO_FILE())


def _unknown(about: RedisQuality, found: Fact, unverified: Severity) -> RedisFinding:
    return RedisFinding(about=about, severity=unverified, found=found, remedy=ALLOW_QUESTIONS())


def _permissions(client: redis.Redis, environment: str) -> RedisFinding:
    """Queues under MULTI every command that `run` needs, then discards them. Redis checks permissions when it queues a
    command."""
    probe = Subscription(environment=environment, topic="doctor", group="doctor")
    keys = ShardKeys(Shard(subscription=probe, number=0))
    refused = _refused(client, keys, _commands(keys))
    without = [] if refused else _refused(client, keys, _commands_of_proofs(keys))
    if not refused and not without:
        return RedisFinding(about=RedisQuality.PERMISSIONS, severity=Severity.OK, found=EVERY_COMMAND())
    severity = Severity.REFUSED if refused else Severity.ADVICE
    lacking = COMMANDS_REFUSED if refused else PROOFS_REFUSED
    found = lacking(commands=", ".join(refused or without)[:_SHOWN_CHARACTERS_MAX])
    return RedisFinding(about=RedisQuality.PERMISSIONS, severity=severity, found=found, remedy=ALLOW_COMMANDS())


def _refused(client: redis.Redis, keys: ShardKeys, commands: Sequence[tuple[Any, ...]]) -> list[str]:
    """Raises the server's error if its own state is the reason: a full Redis refuses every command, whoever asks."""
    refused: list[str] = []
    is_queueing = True
    connection: Any = client.connection_pool.get_connection()
    try:
        for command in (("WATCH", keys.generation), ("TIME",), ("MULTI",), *commands, ("DISCARD",)):
            try:
                connection.send_command(*command)
                connection.read_response()
            except (AskError, ReadOnlyError):
                # This node of a cluster does not serve the slot: MOVED is an AskError, too. Redis checked the
                # permission before the slot, and before it refuses a write to a replica.
                continue
            except ResponseError as error:
                if is_of_state(error):
                    raise
                refused.append(f"{command[0]} ({error})")
                if command[0] == "MULTI":
                    break  # Redis would execute later commands instead of queueing them
        is_queueing = bool(refused)
    finally:  # redis-py has closed the connection after any other error
        if is_queueing:
            connection.disconnect()  # ends WATCH and MULTI of this connection
        client.connection_pool.release(connection)
    return refused


def _commands_of_proofs(keys: ShardKeys) -> list[tuple[Any, ...]]:
    """Returns commands to which a login of an older release may have no right. Without this right, rounds work as in
    that older release."""
    return [("HGET", keys.proofs, "probe/0"), ("HSET", keys.proofs, "probe/0", "")]


def _commands(keys: ShardKeys) -> list[tuple[Any, ...]]:
    return [
        ("GET", keys.epoch),
        ("SET", keys.epoch, "probe", "NX"),
        ("TYPE", keys.half),
        ("HGETALL", keys.offsets),
        ("HGET", keys.offsets, "probe/0"),
        ("ZCARD", keys.pending),
        ("SCARD", keys.half),
        ("SDIFFSTORE", keys.new, keys.half, keys.commit, keys.commit_generation(1)),
        ("ZUNIONSTORE", keys.pending, 2, keys.pending, keys.new, "WEIGHTS", 1, 1, "AGGREGATE", "MIN"),
        ("SSCAN", keys.new, 0),
        ("SMISMEMBER", keys.apart, "probe"),
        ("SREM", keys.apart, "probe"),
        ("ZADD", keys.pending, "NX", 1, "probe"),
        ("ZINTERSTORE", keys.matched, 2, keys.pending, keys.commit),
        ("ZDIFFSTORE", keys.pending, 2, keys.pending, keys.matched),
        ("ZRANGEBYSCORE", keys.pending, "-inf", 0, "LIMIT", 0, 1),
        ("ZRANGE", keys.pending, 0, 0),
        ("ZREM", keys.pending, "probe"),
        ("RENAME", keys.commit, keys.commit_generation(1)),
        ("UNLINK", keys.half, keys.new),
        ("INCRBY", keys.generation, 1),
        # Redis checks a script's commands only when the script runs them, so this list names them one by one.
        ("EVAL", "return 1", 1, keys.generation),
        ("HDEL", keys.taken, "0"),
        ("PEXPIRE", keys.round_lease, 1),
        ("HSETNX", meta_key(keys.shard.subscription), "shards", 1),
        # The announcement consumer in `run` sends these commands, and so does the scan after an outage.
        ("HSET", keys.offsets, "probe/0", 0),
        ("SADD", keys.commit, "probe"),
        ("SCRIPT", "LOAD", "return 1"),
        ("EVALSHA", "0" * 40, 1, keys.announcement_lease("probe")),
    ]
