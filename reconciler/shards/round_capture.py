"""Reads back which keys the last rounds of a shard moved (ports.RoundCapture over Redis).

The script of the round (round.lua) keeps the sets of the last rounds under numbered names, and notes their numbers of
members. Kept sets never change, but every round renames them to the next number. So one MULTI reads a page together
with the generation. If the generation has moved, the scan continues under the new names, because RENAME keeps a set as
it is. The size of every set is compared with the noted number: the set may have been deleted, another release may not
have kept it, or a restart of Redis may have spoilt the cursor of the scan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from reconciler.contract.keyspace import HISTORY_GENERATIONS_MAX, ShardKeys
from reconciler.contract.subscription import Shard
from reconciler.errors import InvariantViolation, RedisAway
from reconciler.policy.ports.history import Capture, CapturedRound, PendingSnapshot, RoundMark
from reconciler.shards.access import translated_errors
from reconciler.shards.client import RoundRedis
from reconciler.shards.readable_rounds import TakenRound, readable_rounds
from reconciler.shards.script import script_text
from reconciler.shards.values import epoch_of, generation_of, pairs_of, text_of, time_ms_of

#: Members of one page. Longer pages would delay other clients.
MEMBERS_A_PAGE = 1_000
#: If a set does not have the noted number of members, its round is read this often before the round counts as missed.
READINGS_MAX = 3
#: If a shard's memory changes while it is read, it is read this often before Redis counts as away.
VIEWS_MAX = 5

_SNAPSHOT_HEADER = script_text("reconciler.shards", "snapshot_header.lua")
_SNAPSHOT_PAGE = script_text("reconciler.shards", "snapshot_page.lua")


@dataclass(frozen=True, slots=True)
class _View:
    epoch: str | None
    generation: int
    taken: dict[int, TakenRound]


@dataclass(slots=True)
class _Scan:
    """A kept set while it is read."""

    expected: int
    members: set[bytes] = field(default_factory=set)
    cursor: int = 0
    is_over: bool = False


class _Moved(Exception):
    """Redis lost its memory or fell back during the reading."""


class RedisRoundCapture:
    """Captures of the rounds in Redis. Shared by threads, because every call takes its own connections from the
    pool."""

    def __init__(self, redis: RoundRedis) -> None:
        self._client = redis.client

    def capture(self, shard: Shard, *, after: RoundMark | None) -> Capture:
        """Reads the oldest rounds first, because their sets are deleted next."""
        for _ in range(VIEWS_MAX):
            view = self._view(shard)
            plan = readable_rounds(after, epoch=view.epoch, generation=view.generation, taken=view.taken)
            try:
                rounds = self._rounds(shard, view, plan.first_readable)
            except _Moved:
                continue
            first = rounds[0].generation if rounds else view.generation + 1
            with translated_errors():
                now_ms = time_ms_of(self._client, self._client, ShardKeys(shard))
            return Capture(
                shard=shard,
                epoch=view.epoch,
                generation=view.generation,
                now_ms=now_ms,
                rounds=tuple(rounds),
                missed=(plan.first_new, first - 1) if first > plan.first_new else None,
                new_memory=plan.new_memory,
                fell_back=plan.fell_back,
            )
        raise RedisAway(f"{shard}: Redis' memory changed {VIEWS_MAX} times while rounds were read back")

    def snapshot(self, shard: Shard) -> PendingSnapshot:
        """Pages by first_seen_ms and key."""
        keys = ShardKeys(shard)
        with translated_errors():
            answer: Any = self._client.execute_command("EVAL", _SNAPSHOT_HEADER, 2, keys.epoch, keys.generation)  # type: ignore[no-untyped-call]  # redis-py has no annotation
        epoch, generation, seconds, microseconds = answer
        return PendingSnapshot(
            shard=shard,
            epoch=epoch_of(shard, epoch),
            generation=generation_of(shard, generation),
            at_ms=int(seconds) * 1000 + int(microseconds) // 1000,
            pages=self._pages(keys),
        )

    # ---- inside

    def _pages(self, keys: ShardKeys) -> Iterator[Sequence[tuple[bytes, int]]]:
        score: int | str = ""
        member = b""
        while True:
            command = ("EVAL", _SNAPSHOT_PAGE, 1, keys.pending, score, member, MEMBERS_A_PAGE)
            with translated_errors():
                flat: Any = self._client.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py has no annotation
            page = [(bytes(key), int(float(seen))) for key, seen in zip(flat[::2], flat[1::2], strict=True)]
            if not page:
                return
            yield page
            member, score = page[-1]

    def _view(self, shard: Shard) -> _View:
        keys = ShardKeys(shard)
        with translated_errors(), self._client.pipeline(transaction=True) as pipe:
            for command in (("GET", keys.epoch), ("GET", keys.generation), ("HGETALL", keys.taken)):
                pipe.execute_command(*command)
            epoch, generation, taken = pipe.execute()
        return _View(
            epoch=epoch_of(shard, epoch),
            generation=generation_of(shard, generation),
            taken={int(number): _taken(shard, line) for number, line in pairs_of(taken)},
        )

    def _rounds(self, shard: Shard, view: _View, first: int) -> list[CapturedRound]:
        """Returns the rounds from `first` to the view's generation. If a round cannot be read, it and all rounds before
        it are left out."""
        rounds: list[CapturedRound] = []
        for generation in range(first, view.generation + 1):
            found = None
            for _ in range(READINGS_MAX):
                found = self._round(shard, view, generation)
                if found is not None:
                    break
            rounds = [*rounds, found] if found is not None else []
        return rounds

    def _round(self, shard: Shard, view: _View, generation: int) -> CapturedRound | None:
        """Returns one round with its keys. None: a set does not have as many members as the round noted, or the sets
        were deleted meanwhile."""
        taken, newest = view.taken[generation], view.generation
        scans = [_Scan(taken.announced), _Scan(taken.consumed), _Scan(taken.matched)]
        while not all(scan.is_over for scan in scans):
            number = newest - generation + 1
            if number > HISTORY_GENERATIONS_MAX:
                return None
            answers = self._page(shard, number, scans)
            if answers[0] != view.epoch or answers[1] < newest:
                raise _Moved
            if answers[1] > newest:
                newest = answers[1]  # another round ran, so the sets have other names now
                continue
            for scan, (cursor, members) in zip([s for s in scans if not s.is_over], answers[2], strict=True):
                scan.members.update(members)
                scan.cursor, scan.is_over = cursor, cursor == 0
        if any(len(scan.members) != scan.expected for scan in scans):
            return None
        announced, consumed, matched = (tuple(sorted(scan.members)) for scan in scans)
        return CapturedRound(
            shard=shard,
            epoch=view.epoch or "",
            generation=generation,
            at_ms=taken.at_ms,
            announced=announced,
            consumed=consumed,
            left_matched=matched,
        )

    def _page(
        self, shard: Shard, number: int, scans: Sequence[_Scan]
    ) -> tuple[str | None, int, list[tuple[int, list[bytes]]]]:
        """Returns epoch, generation, and the next page of every set that is not read to its end yet, in one step."""
        keys = ShardKeys(shard)
        half, consumed, matched = scans
        commands: list[tuple[Any, ...]] = [("GET", keys.epoch), ("GET", keys.generation)]
        for scan, name in ((half, keys.half_generation(number)), (consumed, keys.commit_generation(number))):
            if not scan.is_over:
                commands.append(("SSCAN", name, scan.cursor, "COUNT", MEMBERS_A_PAGE))
        if not matched.is_over:
            last = matched.cursor + MEMBERS_A_PAGE - 1
            commands.append(("ZRANGE", keys.matched_generation(number), matched.cursor, last))
        with translated_errors(), self._client.pipeline(transaction=True) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            epoch, generation, *pages = pipe.execute()
        if not matched.is_over:
            # The matched set is read by rank. The cursor is the number of members read so far, and 0 after the last
            # page.
            pages[-1] = (0 if len(pages[-1]) < MEMBERS_A_PAGE else matched.cursor + MEMBERS_A_PAGE, pages[-1])
        found = [(int(cursor), list(members)) for cursor, members in pages]
        return epoch_of(shard, epoch), generation_of(shard, generation), found


def _taken(shard: Shard, line: Any) -> TakenRound:
    try:
        at_ms, announced, consumed, matched = (int(part) for part in text_of(line).split(" "))
    except ValueError as error:
        wrong = f"{shard}: {ShardKeys(shard).taken} has {text_of(line)!r:.80}, which does not describe a round"
        raise InvariantViolation(wrong) from error
    return TakenRound(at_ms=at_ms, announced=announced, consumed=consumed, matched=matched)
