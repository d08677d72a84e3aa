"""The part of a round in Redis: the durable, fenced, accumulating difference of one shard (ports.ShardMemory).

A round is one script (round_commands.py); small rounds of several shards are sent in one pipeline. Redis stores the
difference before it is returned, so a lost reply or a dead process loses nothing. The generation is the fence: each
call raises it by one at most. The script writes first and deletes last. The same code runs on Redis Cluster, because
all keys of a shard share a hash tag. Commands whose methods RedisCluster.pipeline refuses (redis-py 8.1.0) are sent by
execute_command.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from redis import Redis
from redis.cluster import RedisCluster
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ExecAbortError, NoPermissionError, RedisClusterException, WatchError
from redis.exceptions import TimeoutError as RedisTimeoutError

from reconciler.contract.keyspace import COMMIT_GENERATIONS_DEFAULT, ShardKeys, require_history_generations
from reconciler.contract.subscription import Shard
from reconciler.contract.unique_key import key_of, member_of
from reconciler.errors import ReconcilerError
from reconciler.policy.ports.rounds import NextRound, PendingKey, RoundDone, ShardReading, ShardState
from reconciler.shards.access import patience, translate, translated_errors
from reconciler.shards.client import RoundRedis
from reconciler.shards.pipelines import PIPELINE_COMMANDS_MAX, by_node
from reconciler.shards.round_commands import MEMBERS_A_COMMAND, by_hash, round_command, round_done
from reconciler.shards.script import RedisScript
from reconciler.shards.values import (
    damaged_key,
    epoch_of,
    generation_of,
    round_time_of,
    seen_ms_of,
    state_of_script,
    text_of,
    time_ms_of,
)

#: Members that one SSCAN asks for.
APART_PAGE_KEYS = 500
#: Maximum number of small rounds in one pipeline. The last round of a pipeline waits for all rounds before it.
ROUNDS_A_PIPELINE = 32

_READING = RedisScript("reconciler.shards", "reading.lua")
_log = logging.getLogger(__name__)


class RedisShardMemory:
    """The shards in Redis. Shared by threads, because every call takes its own connections from the pools."""

    def __init__(
        self,
        redis: RoundRedis,
        *,
        commit_generations: int = COMMIT_GENERATIONS_DEFAULT,
        history_generations: int = 0,
        new_epoch: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        """`history_generations`: number of last rounds whose sets are kept for round_capture.py, at most
        commit_generations."""
        require_history_generations(history_generations, commit_generations=commit_generations)
        self._redis = redis
        self._commit_generations = commit_generations
        self._history_generations = history_generations
        self._new_epoch = new_epoch
        #: Shard -> time of this process' last round there. The next round gets a later time, so ages never run
        #: backwards.
        self._last_ms: dict[Shard, int] = {}
        #: True if this login may read K:proofs; None if that was not tried yet.
        self._reads_proofs: bool | None = None

    @property
    def is_spread(self) -> bool:
        """True for a cluster."""
        return isinstance(self._redis.client, RedisCluster)

    def state(self, shard: Shard) -> ShardState:
        """Reads epoch, generation and times. Raises InvariantViolation for a key of a wrong type, or for the epoch of
        another environment."""
        keys = ShardKeys(shard)
        expected = self._expected_types(keys)
        client = self._redis.client
        with translated_errors(), client.pipeline(transaction=False) as pipe:
            pipe.get(keys.epoch)
            pipe.get(keys.generation)
            pipe.execute_command("HGET", keys.covered, "last")
            for key in expected:
                pipe.type(key)
            epoch, generation, last, *types = answers = pipe.execute(raise_on_error=False)
            now_ms = time_ms_of(client, client, keys)
        _check_types(shard, expected, types)
        for answer in answers:
            if isinstance(answer, Exception):
                raise translate(answer) from answer
        number = generation_of(shard, generation)
        return ShardState(
            epoch=epoch_of(shard, epoch),
            generation=number,
            now_ms=now_ms,
            round_at_ms=round_time_of(last, generation=number),
        )

    def readings(self, shards: Collection[Shard]) -> Mapping[Shard, ShardReading]:
        """Reads the shards by a script (reading.lua), in pipelines. If a node is away, the shards of the other nodes
        are still read."""
        found: dict[Shard, ShardReading] = {}
        for client, of_node in by_node(self._redis.client, shards, lambda shard: ShardKeys(shard).root):
            try:
                with translated_errors():
                    _READING.load(client)
                    for start in range(0, len(of_node), PIPELINE_COMMANDS_MAX):
                        found |= self._read_page(client, of_node[start : start + PIPELINE_COMMANDS_MAX])
            except ReconcilerError as error:
                _log.info("reading_failed: %s", error)
        return found

    def _read_page(self, client: Redis, page: Sequence[Shard]) -> dict[Shard, ShardReading]:
        with client.pipeline(transaction=False) as pipe:
            for shard in page:
                keys = ShardKeys(shard)
                expected = self._expected_types(keys)
                first = (keys.epoch, keys.generation, keys.covered, keys.pending, *self._commit_sets(keys))
                names = list(dict.fromkeys((*first, *expected)))
                types = [expected[name] for name in names]
                pipe.evalsha(_READING.sha, len(names), *names, *types, self._commit_generations + 1)
            answers = pipe.execute(raise_on_error=False)
        found = {}
        for shard, answer in zip(page, answers, strict=True):
            if isinstance(answer, Exception) or len(answer) == 1:
                continue
            with suppress(ReconcilerError):
                found[shard] = _reading_of(shard, answer)
        return found

    def begin_epoch(self, shard: Shard) -> str:
        """Writes a new marker unless one exists; returns the marker that is stored."""
        keys = ShardKeys(shard)
        marker = f"{shard.subscription.environment}:{self._new_epoch()}"
        with translated_errors():
            self._redis.client.set(keys.epoch, marker, nx=True)
            found = epoch_of(shard, self._redis.client.get(keys.epoch))
        return found if found is not None else marker

    def take_round(self, shard: Shard, *, epoch: str, not_before_ms: int = 0) -> RoundDone | None:
        """Runs the round once at most. None: the round did not run, or its reply was lost. In both cases the next round
        continues with its keys."""
        client, keys = self._redis.client, ShardKeys(shard)
        if self._reads_proofs is None:
            self._reads_proofs = self._may_read(keys.proofs)
        try:
            with translated_errors(), client.pipeline(transaction=True) as pipe:
                pipe.watch(keys.generation, keys.epoch, keys.pending, keys.new)
                generation = generation_of(shard, pipe.execute_command("GET", keys.generation))
                if epoch_of(shard, pipe.execute_command("GET", keys.epoch)) != epoch:
                    return None
                not_before_ms = max(not_before_ms, self._last_ms.get(shard, 0) + 1)
                command = self._command(keys, epoch=epoch, generation=generation, not_before_ms=not_before_ms)
                pipe.multi()
                pipe.execute_command(*command)
                with patience(pipe, self._redis.round_timeout_seconds):
                    answers = _execute(pipe)
        except WatchError:
            # Another owner ran a round, or redis-py lost the connection while watching. The caller reads the state
            # again.
            _log.info("round_not_run: round of %s did not run or its outcome is unknown", shard)
            return None
        if answers is None:
            _log.warning(
                "round_reply_lost: reply to the round of %s was lost: whether it ran shows in the next one", shard
            )
            return None
        done = round_done(shard, epoch=epoch, generation=generation, answer=answers[0])
        if done is not None:
            self._last_ms[shard] = done.at_ms
        return done

    def take_small_rounds(self, rounds: Sequence[NextRound]) -> Mapping[Shard, RoundDone]:
        """Sends each page of rounds in one pipeline. Redis knows the script once a round was run alone. If Redis does
        not know it, none of these rounds runs, and each is run alone."""
        wanted = {one.shard: one for one in rounds}
        found: dict[Shard, RoundDone] = {}
        for client, of_node in by_node(self._redis.client, wanted, lambda shard: ShardKeys(shard).root):
            for start in range(0, len(of_node), ROUNDS_A_PIPELINE):
                page = [wanted[shard] for shard in of_node[start : start + ROUNDS_A_PIPELINE]]
                try:
                    found |= self._take_page(client, page)
                except ReconcilerError as error:
                    _log.info("small_rounds_failed: %s", error)
                    break
        self._last_ms.update({shard: done.at_ms for shard, done in found.items()})
        return found

    def _take_page(self, client: Redis, page: Sequence[NextRound]) -> dict[Shard, RoundDone]:
        with translated_errors(), client.pipeline(transaction=False) as pipe:
            for one in page:
                command = self._command(
                    ShardKeys(one.shard),
                    epoch=one.epoch,
                    generation=one.generation,
                    not_before_ms=max(one.not_before_ms, self._last_ms.get(one.shard, 0) + 1),
                )
                pipe.execute_command(*by_hash(command))  # type: ignore[no-untyped-call]  # redis-py has no annotation
            answers = pipe.execute(raise_on_error=False)
        found = {}
        for one, answer in zip(page, answers, strict=True):
            with suppress(ReconcilerError):
                done = round_done(one.shard, epoch=one.epoch, generation=one.generation, answer=answer)
                if done is not None:
                    found[one.shard] = done
        return found

    def _command(self, keys: ShardKeys, *, epoch: str, generation: int, not_before_ms: int) -> tuple[Any, ...]:
        return round_command(
            keys,
            epoch=epoch,
            generation=generation,
            not_before_ms=not_before_ms,
            commit_generations=self._commit_generations,
            history_generations=self._history_generations,
            reads_proofs=self._reads_proofs is not False,
        )

    def _may_read(self, hash_name: str) -> bool:
        with translated_errors():
            try:
                self._redis.client.hget(hash_name, "probe/0")
            except NoPermissionError:
                _log.warning("right_missing: this login may not read %s: see docs/reference/rights.md", hash_name)
                return False
        return True

    def due(
        self, shard: Shard, *, first_seen_until_ms: int, limit: int, after: PendingKey | None = None
    ) -> list[PendingKey]:
        """Returns a page of pending keys, by first_seen_ms, then by key."""
        keys, client = ShardKeys(shard), self._redis.client
        if limit < 1 or (after is not None and after.first_seen_ms > first_seen_until_ms):
            return []
        lowest: int | str = "-inf" if after is None else after.first_seen_ms
        with translated_errors():
            skipped = 0 if after is None else self._ties_up_to(keys, after)
            found: Any = client.zrangebyscore(
                keys.pending, lowest, first_seen_until_ms, start=skipped, num=limit, withscores=True
            )
            are_apart: Any = client.smismember(keys.apart, [member for member, _ in found]) if found else ()
        return [
            PendingKey(unique_key=key_of(member), first_seen_ms=seen_ms_of(score), is_apart=bool(is_apart))
            for (member, score), is_apart in zip(found, are_apart, strict=True)
        ]

    def _ties_up_to(self, keys: ShardKeys, after: PendingKey) -> int:
        """Returns how many members with the score of `after` come before it or are it. `after` itself may have left.

        All keys of a round have one score, so counting by reading would read a whole round for each page. Instead the
        number is found by doubling and halving a range.
        """
        member, score = member_of(after.unique_key), after.first_seen_ms

        def follows(position: int) -> bool:
            found: Any = self._redis.client.zrangebyscore(keys.pending, score, score, start=position, num=1)
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
        """Removes settled keys from pending, in commands of limited size. After a crash some of these keys remain."""
        keys, removed = ShardKeys(shard), 0
        with translated_errors():
            for start in range(0, len(unique_keys), MEMBERS_A_COMMAND):
                members = [member_of(key) for key in unique_keys[start : start + MEMBERS_A_COMMAND]]
                count: Any = self._redis.client.zrem(keys.pending, *members)
                removed += int(count)
        return removed

    def apart(self, shard: Shard, *, cursor: int = 0) -> tuple[int, Sequence[str]]:
        """Sends one SSCAN, which accepts any cursor. A member that stays from the first page to the last is returned at
        least once."""
        with translated_errors():
            found: Any = self._redis.client.sscan(ShardKeys(shard).apart, cursor, count=APART_PAGE_KEYS)
        following, members = found
        return int(following), [key_of(member) for member in members]

    def compared(self, shard: Shard, *, not_taken: Sequence[str], going_on: Sequence[str]) -> int:
        """Removes keys from pending first, then from the keys set apart. After a crash in between, the next round
        compares these keys again.

        A key that is announced again between the two commands gets an ordinary verdict, and no harm follows.
        """
        keys, client = ShardKeys(shard), self._redis.client
        removed = self.forget(shard, not_taken)
        done = list(map(member_of, going_on))
        with translated_errors():
            for start in range(0, len(not_taken), MEMBERS_A_COMMAND):
                members = [member_of(key) for key in not_taken[start : start + MEMBERS_A_COMMAND]]
                are_new: Any = client.smismember(keys.half, members)
                done += [member for member, is_new in zip(members, are_new, strict=True) if not is_new]
            for start in range(0, len(done), MEMBERS_A_COMMAND):
                client.srem(keys.apart, *done[start : start + MEMBERS_A_COMMAND])
        return removed

    def pending_size(self, shard: Shard) -> tuple[int, int | None]:
        """Returns the number of pending keys and the lowest first_seen_ms."""
        keys = ShardKeys(shard)
        with translated_errors(), self._redis.client.pipeline(transaction=False) as pipe:
            pipe.zcard(keys.pending)
            pipe.zrange(keys.pending, 0, 0, withscores=True)
            size, first = pipe.execute()
        return int(size), seen_ms_of(first[0][1]) if first else None

    def _commit_sets(self, keys: ShardKeys) -> tuple[str, ...]:
        return (keys.commit, *(keys.commit_generation(age) for age in range(1, self._commit_generations + 1)))

    def _expected_types(self, keys: ShardKeys) -> Mapping[str, str]:
        kept = range(1, self._history_generations + 1)
        sets = [
            *(keys.half, *(keys.half_generation(number) for number in kept)),
            *self._commit_sets(keys),
            *(keys.new, keys.apart),
        ]
        sorted_sets = [keys.pending, keys.matched, *(keys.matched_generation(number) for number in kept)]
        return (
            dict.fromkeys(sets, "set")
            | dict.fromkeys(sorted_sets, "zset")
            | dict.fromkeys([keys.offsets, keys.taken, keys.covered], "hash")
            | dict.fromkeys([keys.epoch, keys.generation], "string")
        )


def _execute(pipe: Any) -> list[Any] | None:
    """Sends EXEC. None: its reply was lost, or the transaction did not run because the slot or the node moved."""
    try:
        answers: list[Any] = pipe.execute(raise_on_error=False)
    except (RedisConnectionError, RedisTimeoutError, RedisClusterException, OSError) as error:
        _log.info("exec_failed: EXEC: %s", error)
        return None
    except ExecAbortError as error:
        raise translate(error) from error
    return answers


def _reading_of(shard: Shard, answer: Sequence[Any]) -> ShardReading:
    epoch, number, last, pending, oldest, consumed, seconds, microseconds = answer
    return ShardReading(
        state=state_of_script(shard, (epoch, number, last, seconds, microseconds)),
        pending=int(pending),
        oldest_pending_ms=seen_ms_of(float(oldest)) if oldest else None,
        consumed=int(consumed),
    )


def _check_types(shard: Shard, expected: Mapping[str, str], types: Sequence[Any]) -> None:
    for (key, kind), found in zip(expected.items(), types, strict=True):
        if not isinstance(found, Exception) and text_of(found) not in ("none", kind):
            raise damaged_key(shard, key, f"is a {text_of(found)}, expected a {kind}", cause="wrong-type")
