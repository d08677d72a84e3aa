"""Captured rounds of the audited shards: which generations exist, where holes are, and until when rounds are complete.

Two records of one generation are allowed (two daemons, or a Redis that fell back), because generations are a set. A
round takes 16 bytes of memory. Of the rounds before the window, only the newest round of each epoch is kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconciler.audit.history.table import rests_by_round
from reconciler.audit.result.sentences import sentence
from reconciler.audit.result.values import HistoryGap

Longs = npt.NDArray[np.int64]
#: topic, group, shard
ShardKey = tuple[str, str, int]
#: Topic, group, shard and epoch.
EpochKey = tuple[str, str, int, str]

_KEYS = ["topic", "consumer_group", "shard", "epoch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRound:
    """One captured round."""

    epoch: str
    generation: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """Generations that are missing between two existing generations. The existing rounds ran at from_ms and to_ms."""

    epoch: str
    first_generation: int
    last_generation: int
    from_ms: int
    to_ms: int


class CapturedRounds:
    """Collector of tables of rounds. `finish` returns the rounds of all tables by shard."""

    def __init__(
        self, *, subscriptions: frozenset[tuple[str, str]], start_ms: int, end_ms: int, horizon_ms: int
    ) -> None:
        self._subscriptions = subscriptions
        self._start_ms = start_ms
        self._end_ms = end_ms
        #: Topics and groups outside of the audit that have rounds in the window.
        self.others: set[tuple[str, str]] = set()
        self._horizon_ms = horizon_ms
        self._inside: dict[EpochKey, list[tuple[Longs, Longs]]] = defaultdict(list)
        #: Highest generation before the window, and time and generation of the newest round before the window. The
        #: newest round has a lower generation if Redis fell back.
        self._before: dict[EpochKey, tuple[int, int, int]] = {}
        #: Generation -> first and last time at which the shard was seen at rest after that round.
        self._rests: dict[EpochKey, dict[int, tuple[int, int]]] = defaultdict(dict)

    def add(self, table: pa.Table) -> None:
        """Adds rows of the stream `round`."""
        table = table.select([*_KEYS, "generation", "at_ms"])
        table = table.filter(pc.less_equal(table["at_ms"], self._horizon_ms))
        grouped = table.group_by(_KEYS).aggregate([("generation", "list"), ("at_ms", "list")])
        keys = zip(*(grouped[name].to_pylist() for name in _KEYS), strict=True)
        for number, (topic, group, shard, epoch) in enumerate(keys):
            at_ms = grouped["at_ms_list"][number].values.to_numpy(zero_copy_only=False)
            if (topic, group) in self._subscriptions:
                generations = grouped["generation_list"][number].values.to_numpy(zero_copy_only=False)
                self._take((topic, group, shard, epoch), generations, at_ms)
            elif ((at_ms >= self._start_ms) & (at_ms < self._end_ms)).any():
                self.others.add((topic, group))

    def add_rests(self, table: pa.Table) -> None:
        """Adds rows of the stream `snapshot`. Only rows AT_REST count."""
        rests = rests_by_round(table.filter(pc.less_equal(table["at_ms"], self._horizon_ms)))
        for key, generation, first_ms, last_ms in rests:
            if key[:2] in self._subscriptions:
                known = self._rests[key].get(generation, (first_ms, last_ms))
                self._rests[key][generation] = (min(first_ms, known[0]), max(last_ms, known[1]))
            elif first_ms < self._end_ms and last_ms >= self._start_ms:
                self.others.add(key[:2])

    def _take(self, key: EpochKey, generations: Longs, at_ms: Longs) -> None:
        early = at_ms < self._start_ms
        if early.any():
            newest_ms, last = _newest(generations[early], at_ms[early])
            highest = int(generations[early].max())
            known = self._before.get(key, (highest, newest_ms, last))
            newest_ms, last = max((newest_ms, last), known[1:])
            self._before[key] = (max(highest, known[0]), newest_ms, last)
        if not early.all():
            self._inside[key].append((generations[~early], at_ms[~early]))

    def need_nothing_before(self, last_ms: int, shards: int) -> bool:
        """True if rows with times up to `last_ms` can change nothing any more."""
        newest: dict[ShardKey, int] = {}
        for (topic, group, shard, _), (_, at_ms, _) in self._before.items():
            key = (topic, group, shard)
            newest[key] = max(at_ms, newest.get(key, at_ms))
        keys = [(topic, group, shard) for topic, group in self._subscriptions for shard in range(shards)]
        return all(key in newest and newest[key] > last_ms for key in keys)

    def finish(self) -> RoundsByShard:
        """Sorts the collected rounds by shard."""
        lives: dict[ShardKey, list[_Life]] = defaultdict(list)
        for key in sorted(self._inside.keys() | self._before.keys()):
            topic, group, shard, epoch = key
            pairs = self._inside.get(key, [])
            generations = np.concatenate([[], *(g for g, _ in pairs)]).astype(np.int64)
            at_ms = np.concatenate([[], *(a for _, a in pairs)]).astype(np.int64)
            rows = np.unique(np.stack([generations, at_ms], axis=1), axis=0)
            life = _Life(
                epoch=epoch,
                before=self._before.get(key),
                generations=rows[:, 0],
                at_ms=rows[:, 1],
                rests=self._rests.get(key, {}),
            )
            lives[topic, group, shard].append(life)
        for of in lives.values():
            of.sort(key=lambda life: (life.first.at_ms, life.epoch))
        return RoundsByShard(lives)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Life:
    """One epoch of a shard: its newest round before the window, all later rounds, and its rests by generation."""

    epoch: str
    before: tuple[int, int, int] | None
    generations: Longs
    at_ms: Longs
    rests: Mapping[int, tuple[int, int]]

    @property
    def first(self) -> HistoryRound:
        """First round that is known."""
        if self.before is not None:
            return HistoryRound(epoch=self.epoch, generation=self.before[0], at_ms=self.before[1])
        generation = int(self.generations[0])
        at_ms = int(self.at_ms[self.generations == generation].min())
        return HistoryRound(epoch=self.epoch, generation=generation, at_ms=at_ms)

    @property
    def highest(self) -> int:
        """Highest generation."""
        before = 0 if self.before is None else self.before[0]
        return max(before, int(self.generations.max(initial=0)))

    @property
    def last(self) -> int:
        """Generation of the newest round. If Redis fell back, another round has the highest generation."""
        inside = [_newest(self.generations, self.at_ms)] if len(self.at_ms) else []
        before = [] if self.before is None else [self.before[1:]]
        return max(inside + before)[1]

    @property
    def times(self) -> Longs:
        """Times of all rounds, and time of the last rest after the newest round.

        A rest after an unknown round is ignored.
        """
        before = [] if self.before is None else [self.before[1]]
        rest = self.rests.get(self.last, ())[1:]
        return np.concatenate([self.at_ms, before, rest]).astype(np.int64)

    def longest_ms(self) -> int:
        """Measures the longest time between neighbouring rounds.

        If the shard rested in between, the time begins with the last rest.
        """
        longest = 0
        rounds = sorted(zip(self.at_ms.tolist(), self.generations.tolist(), strict=True))
        for (at_ms, generation), (next_ms, _) in pairwise(rounds):
            rested_ms = self.rests.get(generation, (0, 0))[1]
            longest = max(longest, next_ms - (rested_ms if at_ms < rested_ms <= next_ms else at_ms))
        return longest

    def holes(self) -> Iterator[Hole]:
        """Yields holes between neighbouring generations.

        Generations below the highest generation before the window are no holes. They existed before Redis fell back.
        """
        generations, at_ms = self.generations, self.at_ms
        if self.before is not None:
            later = generations > self.before[0]
            generations = np.insert(generations[later], 0, self.before[0])
            at_ms = np.insert(at_ms[later], 0, self.before[1])
        for place in np.flatnonzero(np.diff(generations) > 1):
            times = sorted((int(at_ms[place]), int(at_ms[place + 1])))
            yield Hole(
                epoch=self.epoch,
                first_generation=int(generations[place]) + 1,
                last_generation=int(generations[place + 1]) - 1,
                from_ms=times[0],
                to_ms=times[1],
            )


def _newest(generations: Longs, at_ms: Longs) -> tuple[int, int]:
    """Time and generation of the newest round."""
    newest_ms = at_ms.max()
    return int(newest_ms), int(generations[at_ms == newest_ms].max())


class RoundsByShard:
    """Rounds by shard, with epochs in the order of their first rounds."""

    def __init__(self, lives: Mapping[ShardKey, list[_Life]]) -> None:
        self._lives = lives

    @property
    def count(self) -> int:
        """Number of distinct rounds in the window and after it."""
        return sum(len(life.generations) for of in self._lives.values() for life in of)

    def head(self, key: ShardKey) -> HistoryRound | None:
        """Finds the first round that is known."""
        of = self._lives.get(key)
        return of[0].first if of else None

    def holes(self, key: ShardKey) -> list[Hole]:
        """Finds missing generations within each epoch, and before the first one of a later epoch."""
        found: list[Hole] = []
        highest, newest_ms = 0, 0
        for number, life in enumerate(self._lives.get(key, ())):
            first = life.first
            # A new epoch need not begin a new counter. If only the epoch's marker was lost, the counter continues.
            if number and first.generation > highest + 1:
                found.append(
                    Hole(
                        epoch=life.epoch,
                        first_generation=1,
                        last_generation=first.generation - 1,
                        from_ms=min(newest_ms, first.at_ms),
                        to_ms=first.at_ms,
                    )
                )
            found += life.holes()
            highest = max(life.highest, highest)
            newest_ms = max(int(life.times.max()), newest_ms)
        return found

    def head_seen_ms(self, key: ShardKey) -> int | None:
        """Finds when the first known round ran.

        If the shard was seen at rest before that round, the time is that of the first rest. None: no round is known.
        From that time until the first known round, no round is missing.
        """
        of = self._lives.get(key)
        if not of:
            return None
        head = of[0].first
        return min(head.at_ms, of[0].rests.get(head.generation - 1, (head.at_ms, 0))[0])

    def has_all(
        self, key: ShardKey, epoch: str | None, generations: tuple[int | None, int | None], *, since_ms: int
    ) -> bool:
        """True if each of these generations has a round since `since_ms` and since the window's start."""
        first, last = generations
        if first is None or last is None:
            return False
        mine = [life for life in self._lives.get(key, ()) if life.epoch == epoch]
        have = {int(g) for life in mine for g in life.generations[life.at_ms >= since_ms]}
        return last >= first and last - first < len(have) and have.issuperset(range(first, last + 1))

    def knows_of(self, key: ShardKey, epoch: str, generation: int) -> bool:
        """True if the generation has a round or may have one.

        Before the window, only the newest round of an epoch is known. If only an epoch's marker was lost, the counter
        continues after the last generation of the old epoch.
        """
        of = self._lives.get(key, ())
        mine = [life for life in of if life.epoch == epoch]
        if not mine:
            return any(life.highest == generation for life in of)
        return any(
            (life.before is not None and life.before[0] >= generation) or generation in life.generations
            for life in mine
        )

    def newest_ms(self, key: ShardKey, *, until_ms: int) -> int | None:
        """Finds the time, up to `until_ms`, of the newest round or of the newest rest after a round."""
        times = [int(t) for life in self._lives.get(key, ()) for t in life.times if t <= until_ms]
        return max(times, default=None)

    def longest_ms(self, key: ShardKey) -> int:
        """Measures the longest time between two neighbouring rounds."""
        return max((life.longest_ms() for life in self._lives.get(key, ())), default=0)

    def watermark(self, subscription: tuple[str, str], shards: int, start_ms: int) -> int | None:
        """Finds until when no shard has a hole that ends in or after the window. None: a shard has no round."""
        lowest: int | None = None
        for shard in range(shards):
            key: ShardKey = (*subscription, shard)
            if not self._lives.get(key):
                return None
            at_ms = np.concatenate([life.times for life in self._lives[key]])
            limit = min((hole.from_ms for hole in self.holes(key) if hole.to_ms >= start_ms), default=None)
            newest = int((at_ms if limit is None else at_ms[at_ms <= limit]).max())
            lowest = newest if lowest is None else min(newest, lowest)
        return lowest

    def missing(self, stored: pa.Table) -> list[HistoryGap]:
        """Finds runs of rounds that the ledger has and the history lacks.

        Rounds after a shard's newest captured round are no gap, because the history may lag. The watermark shows the
        lag.
        """
        have: dict[EpochKey, Longs] = {}
        newest: dict[ShardKey, int] = {}
        for shard_key, of in self._lives.items():
            newest[shard_key] = max(int(life.times.max()) for life in of)
            for life in of:
                have[(*shard_key, life.epoch)] = life.generations
        gaps: list[HistoryGap] = []
        for key, generations, at_ms in _by_epoch(stored):
            known = at_ms <= newest.get(key[:3], 0)
            generations, first = np.unique(generations[known], return_index=True)
            at_ms = at_ms[known][first]
            lacking = np.concatenate([[False], ~np.isin(generations, have.get(key, [])), [False]])
            edges = np.flatnonzero(lacking[1:] != lacking[:-1]).reshape(-1, 2)
            gaps += [_stored_only(key, generations[a:b], at_ms[a:b]) for a, b in edges.tolist()]
        return gaps


def _by_epoch(table: pa.Table) -> Iterator[tuple[EpochKey, Longs, Longs]]:
    """Yields generations and times of each epoch of a shard. The epochs come in the order of their first rounds."""
    names = [table[name].cast(pa.string()) if name != "shard" else table[name] for name in _KEYS]
    plain = pa.table([*names, table["generation"], table["at_ms"]], names=[*_KEYS, "generation", "at_ms"])
    grouped = (
        plain.group_by(_KEYS)
        .aggregate([("generation", "list"), ("at_ms", "list")])
        .sort_by([(name, "ascending") for name in _KEYS])
    )
    for number, key in enumerate(zip(*(grouped[name].to_pylist() for name in _KEYS), strict=True)):
        generations = grouped["generation_list"][number].values.to_numpy(zero_copy_only=False)
        yield key, generations, grouped["at_ms_list"][number].values.to_numpy(zero_copy_only=False)


def _stored_only(key: EpochKey, generations: Longs, at_ms: Longs) -> HistoryGap:
    topic, group, shard, epoch = key
    return HistoryGap(
        topic=topic,
        group=group,
        shard=shard,
        from_ms=int(at_ms.min()),
        to_ms=int(at_ms.max()),
        stream="round",
        rows=len(generations),
        why=sentence("stored-only", first=int(generations[0]), last=int(generations[-1]), epoch=epoch),
    )
