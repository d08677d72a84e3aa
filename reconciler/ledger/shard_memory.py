"""The Redis half of the round: the durable, fenced, accumulating difference of one shard (ports.ShardMemory).

One MULTI under WATCH. The difference is stored, never only returned, so a lost reply or a dead process loses
nothing; the generation is the fence, so no call moves it by more than one; writes come first and deletions last,
because an error inside MULTI does not roll back. The same code runs on Redis Cluster: all keys of a shard share a
hash tag, and commands that RedisCluster.pipeline hides behind an error go through execute_command (redis-py 8.1.0).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from redis.cluster import RedisCluster
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ExecAbortError, RedisClusterException, WatchError
from redis.exceptions import TimeoutError as RedisTimeoutError

from reconciler.contract.keyspace import COMMIT_GENERATIONS_DEFAULT, ShardKeys
from reconciler.contract.subscription import Shard
from reconciler.contract.unique_key import key_of, member_of
from reconciler.errors import InvariantViolation
from reconciler.ledger.redis_client import RedisClients
from reconciler.ports import PendingKey, RoundCounts, RoundDone, ShardState
from reconciler.redis_access import RedisClient, translate, translated_errors

_log = logging.getLogger(__name__)

#: Members a command: a longer ZREM would stall other clients.
MEMBERS_A_COMMAND = 1_000


class RedisShardMemory:
    """Shards in Redis. Shared by threads: every call takes connections of its own from the pools."""

    def __init__(
        self,
        clients: RedisClients,
        *,
        commit_generations: int = COMMIT_GENERATIONS_DEFAULT,
        new_epoch: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self._clients = clients
        self._commit_generations = commit_generations
        self._new_epoch = new_epoch
        #: Time of the last round that this process ran in a shard: ages never run backwards.
        self._last_ms: dict[Shard, int] = {}

    def state(self, shard: Shard) -> ShardState:
        """Epoch and generation; InvariantViolation for a key of a wrong type or another environment's epoch."""
        keys = ShardKeys(shard)
        expected = self._expected_types(keys)
        client = self._clients.short
        with translated_errors(), client.pipeline(transaction=False) as pipe:
            pipe.get(keys.epoch)
            pipe.get(keys.generation)
            for key in expected:
                pipe.type(key)
            epoch, generation, *types = pipe.execute()
            now_ms = _time_ms(client, client, keys)
        _check_types(shard, expected, types)
        return ShardState(epoch=_epoch(shard, epoch), generation=_generation(shard, generation), now_ms=now_ms)

    def begin_epoch(self, shard: Shard) -> str:
        """Writes a new marker unless there is one; returns the marker that stands."""
        keys = ShardKeys(shard)
        marker = f"{shard.subscription.environment}:{self._new_epoch()}"
        with translated_errors():
            self._clients.short.set(keys.epoch, marker, nx=True)
            standing = _epoch(shard, self._clients.short.get(keys.epoch))
        return standing if standing is not None else marker

    def take_round(self, shard: Shard, *, epoch: str, not_before_ms: int = 0) -> RoundDone | None:
        """Runs the round once, or not at all; None also when nobody can tell."""
        client, keys = self._clients.rounds, ShardKeys(shard)
        expected = self._expected_types(keys)
        try:
            with translated_errors(), client.pipeline(transaction=True) as pipe:
                pipe.watch(keys.generation, keys.epoch, keys.pending, keys.new)
                generation = _generation(shard, pipe.execute_command("GET", keys.generation))
                if _epoch(shard, pipe.execute_command("GET", keys.epoch)) != epoch:
                    return None
                types = [pipe.execute_command("TYPE", key) for key in expected]
                _check_types(shard, expected, types)
                at_ms = max(_time_ms(client, pipe, keys), not_before_ms, self._last_ms.get(shard, 0) + 1)
                present = {key for key, kind in zip(expected, types, strict=True) if _text(kind) != "none"}
                commands = self._commands(keys, at_ms, present)
                pipe.multi()
                for command in commands:
                    pipe.execute_command(*command)
                answers = _execute(pipe)
        except WatchError:
            # Another owner was quicker, or redis-py lost the connection while watching: both mean "look again".
            _log.info("round of %s did not run or its outcome is unknown", shard)
            return None
        if answers is None:
            _log.warning("reply to the round of %s was lost: whether it ran shows in the next one", shard)
            return None
        self._last_ms[shard] = at_ms
        return _round_done(shard, epoch, generation, at_ms, commands, answers)

    def _commands(self, keys: ShardKeys, at_ms: int, present: set[str]) -> list[tuple[Any, ...]]:
        """The body of the MULTI (reliability: F2). Difference before union: the same result in half the time."""
        older = [keys.commit_generation(number) for number in range(1, self._commit_generations + 1)]
        commits = [keys.commit, *older]
        commands: list[tuple[Any, ...]] = [
            ("HGETALL", keys.offsets),
            ("ZCARD", keys.pending),
            ("SCARD", keys.half),
            ("SDIFFSTORE", keys.new, keys.half, *commits),
            # Members of a plain set score 1, so the weight makes it the round's time; MIN keeps older ages.
            ("ZUNIONSTORE", keys.pending, 2, keys.pending, keys.new, "WEIGHTS", 1, at_ms, "AGGREGATE", "MIN"),
            ("ZDIFFSTORE", keys.pending, 1 + len(commits), keys.pending, *commits),
            # The oldest first: RENAME onto a big key would free it in place.
            ("UNLINK", older[-1], keys.new),
        ]
        for younger, elder in zip(reversed(commits[:-1]), reversed(commits[1:]), strict=True):
            if younger in present:
                commands.append(("RENAME", younger, elder))
        commands += [("UNLINK", keys.half), ("INCRBY", keys.generation, 1)]
        return commands

    def due(
        self, shard: Shard, *, first_seen_until_ms: int, limit: int, after: PendingKey | None = None
    ) -> list[PendingKey]:
        """A page of pending: by first_seen_ms, ties by key."""
        keys, client = ShardKeys(shard), self._clients.short
        if limit < 1 or (after is not None and after.first_seen_ms > first_seen_until_ms):
            return []
        lowest: int | str = "-inf" if after is None else after.first_seen_ms
        with translated_errors():
            skipped = 0 if after is None else self._ties_up_to(keys, after)
            found: Any = client.zrangebyscore(
                keys.pending, lowest, first_seen_until_ms, start=skipped, num=limit, withscores=True
            )
        return [PendingKey(unique_key=key_of(member), first_seen_ms=int(score)) for member, score in found]

    def _ties_up_to(self, keys: ShardKeys, after: PendingKey) -> int:
        """How many members of the same score come up to `after`, which may be gone.

        A round gives all its keys one score, so reading them to count would read a whole round a page: doubling, then
        halving.
        """
        member, score = member_of(after.unique_key), after.first_seen_ms

        def follows(position: int) -> bool:
            found: Any = self._clients.short.zrangebyscore(keys.pending, score, score, start=position, num=1)
            return not found or found[0] > member

        if follows(0):
            return 0
        low, high = 0, 1
        while not follows(high):
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if follows(middle) else (middle, high)
        return high

    def forget(self, shard: Shard, unique_keys: Sequence[str]) -> int:
        """Removes keys from pending, in bounded commands; a crash in the middle leaves some, which are settled."""
        keys, removed = ShardKeys(shard), 0
        with translated_errors():
            for start in range(0, len(unique_keys), MEMBERS_A_COMMAND):
                members = [member_of(key) for key in unique_keys[start : start + MEMBERS_A_COMMAND]]
                count: Any = self._clients.short.zrem(keys.pending, *members)
                removed += int(count)
        return removed

    def pending_size(self, shard: Shard) -> tuple[int, int | None]:
        """Number of pending keys and the lowest first_seen_ms."""
        keys = ShardKeys(shard)
        with translated_errors(), self._clients.short.pipeline(transaction=False) as pipe:
            pipe.zcard(keys.pending)
            pipe.zrange(keys.pending, 0, 0, withscores=True)
            size, first = pipe.execute()
        return int(size), int(first[0][1]) if first else None

    def _expected_types(self, keys: ShardKeys) -> Mapping[str, str]:
        older = [keys.commit_generation(number) for number in range(1, self._commit_generations + 1)]
        sets = [keys.half, keys.commit, *older, keys.new]
        return dict.fromkeys(sets, "set") | {keys.pending: "zset", keys.offsets: "hash"}


def _execute(pipe: Any) -> list[Any] | None:
    """EXEC; None if its reply was lost or it was not carried out because the slot or the node moved."""
    try:
        answers: list[Any] = pipe.execute(raise_on_error=False)
    except (RedisConnectionError, RedisTimeoutError, RedisClusterException, OSError) as error:
        _log.info("EXEC: %s", error)
        return None
    except ExecAbortError as error:
        raise translate(error) from error
    return answers


def _round_done(
    shard: Shard, epoch: str, generation: int, at_ms: int, commands: Sequence[tuple[Any, ...]], answers: list[Any]
) -> RoundDone:
    failed = [
        f"{command[0]}: {answer}"
        for command, answer in zip(commands, answers, strict=True)
        if isinstance(answer, Exception)
    ]
    if failed:
        # The other commands ran all the same: the shard must not be touched before a person has looked.
        raise InvariantViolation(
            f"{shard}: the round of generation {generation + 1} failed in part: {'; '.join(failed)}"
        )
    offsets, before, announced, new, united, after = answers[:6]
    if int(answers[-1]) != generation + 1:
        raise InvariantViolation(f"{shard}: the fence is {answers[-1]} after generation {generation}")
    return RoundDone(
        shard=shard,
        epoch=epoch,
        generation=generation + 1,
        at_ms=at_ms,
        offsets={_text(field): int(offset) for field, offset in _pairs(offsets)},
        counts=RoundCounts(
            announced=int(announced),
            matched=int(announced) - int(new),
            pending_before=int(before),
            pending_added=int(united) - int(before),
            pending_matched=int(united) - int(after),
            pending_after=int(after),
        ),
    )


def _pairs(answer: Any) -> list[tuple[Any, Any]]:
    # A mapping where redis-py knows the command's answer, else Redis' flat list.
    if isinstance(answer, Mapping):
        return list(answer.items())
    return list(zip(answer[::2], answer[1::2], strict=True))


def _time_ms(client: RedisClient, connection: Any, keys: ShardKeys) -> int:
    """Redis TIME of the node that holds the shard; a cluster's pipeline refuses TIME, which has no key."""
    if isinstance(client, RedisCluster):
        node = client.get_node_from_key(keys.pending)  # type: ignore[no-untyped-call]  # redis-py has no annotation
        answer: Any = client.time(target_nodes=node)
    else:
        answer = connection.execute_command("TIME")
    seconds, microseconds = answer
    return int(seconds) * 1000 + int(microseconds) // 1000


def _epoch(shard: Shard, answer: Any) -> str | None:
    if answer is None:
        return None
    epoch, environment = _text(answer), shard.subscription.environment
    if epoch.rpartition(":")[0] != environment:
        raise InvariantViolation(f"{shard}: epoch {epoch!r} is not of environment {environment!r}")
    return epoch


def _generation(shard: Shard, answer: Any) -> int:
    try:
        return int(answer or 0)
    except ValueError as error:
        raise InvariantViolation(f"{shard}: generation {answer!r} is no number") from error


def _check_types(shard: Shard, expected: Mapping[str, str], types: Sequence[Any]) -> None:
    for (key, kind), found in zip(expected.items(), types, strict=True):
        if _text(found) not in ("none", kind):
            raise InvariantViolation(f"{shard}: {key} is a {_text(found)}, expected a {kind}; rounds stop")


def _text(answer: Any) -> str:
    return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else str(answer)
