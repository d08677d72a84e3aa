"""What is to be made: how many keys of which class, in which window, and the rounds that a service would have run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]

#: The classes of the audit in the order of its rules, written down here again: generator and audit share no code.
CLASSES = (
    "EFFECT_INCOMPLETE",
    "EFFECT_WITHOUT_COMMIT",
    "DOUBLE_EFFECT",
    "REPAIR_DIFFERS",
    "UNNECESSARY_REPAIR",
    "NOT_ANNOUNCED_NOT_FOUND",
    "UNACCOUNTED",
    "LOST",
    "QUARANTINED",
    "REPAIRED",
    "EFFECT_LATE",
    "EFFECT_IN_TIME",
    "FILTERED",
    "REJECTED",
    "ROLLED_BACK",
    "PENDING",
)
CODE = {name: code for code, name in enumerate(CLASSES)}
IN_TIME = CODE["EFFECT_IN_TIME"]

PREFIXES = 64
ROUND_MS = 5_000
#: The tags that groups with an even number take; the other groups take every tag.
TAKEN_TAGS = ("paid", "shipped")
#: Midnight of 1 March 2026, UTC.
MIDNIGHT_MS = 1_772_323_200_000
#: History begins that long before the window.
BEFORE_MS = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything the files depend on. `rows` are the keys that belong to the window, accidents included."""

    rows: int
    seed: int
    accidents: Mapping[str, int] = field(default_factory=dict)
    topics: int = 2
    #: Consumer groups of each topic.
    groups: int = 1
    shards: int = 16
    key_lengths: tuple[int, ...] = (16,)
    #: One file a day and prefix; else one for each half an hour.
    compacted: bool = True
    #: Every row lies in two files.
    files_twice: bool = False
    #: The order of rows in files is random.
    shuffled: bool = False
    #: Keys around the window that must not be judged, with accidents of their own.
    outside: int = -1
    window_seconds: int = 0
    #: Distance of the window's middle from a UTC midnight.
    middle_offset_seconds: int = 0
    environment: str = "production"
    late_after_seconds: int = 300
    skew_bound_ms: int = 10_000

    @property
    def span_ms(self) -> int:
        """Length of the window; without a wish an hour, or as long as 500 messages a second take."""
        return 1_000 * (self.window_seconds or max(3_600, self.rows // 500))

    @property
    def start_ms(self) -> int:
        """First millisecond of the window."""
        return MIDNIGHT_MS + 1_000 * self.middle_offset_seconds - self.span_ms // 2

    @property
    def end_ms(self) -> int:
        """First millisecond after the window."""
        return self.start_ms + self.span_ms

    @property
    def grace_seconds(self) -> int:
        """30; beyond the window's close where keys are to be young enough for PENDING."""
        return self.late_after_seconds + 300 if self.accidents.get("PENDING") else 30

    @property
    def late_after_ms(self) -> int:
        """Limit between EFFECT_IN_TIME and EFFECT_LATE."""
        return 1_000 * self.late_after_seconds

    @property
    def history_start_ms(self) -> int:
        """Before the first round."""
        return self.start_ms - BEFORE_MS

    @property
    def rounds(self) -> int:
        """Rounds of every shard; the last one is at least 60 s after the window's close."""
        return (BEFORE_MS + self.span_ms + self.late_after_ms + 60_000) // ROUND_MS + 1

    @property
    def history_end_ms(self) -> int:
        """After the last round."""
        return self.history_start_ms + (self.rounds + 1) * ROUND_MS

    @property
    def collected_at_ms(self) -> int:
        """When the evidence was taken from the databases."""
        return self.history_end_ms + 300_000

    @property
    def outside_rows(self) -> int:
        """Keys around the window."""
        return self.rows // 100 if self.outside < 0 else self.outside

    def topic(self, number: int) -> str:
        """Name of a topic."""
        return f"ORDERS-{number}"

    def group(self, number: int) -> str:
        """Name of a consumer group, the same in every topic."""
        return f"billing-{number}"

    def producer_group(self, topic: int, number: int) -> str:
        """Name of one of the two producer groups of a topic."""
        return f"shop-{topic}-{number}"

    @property
    def subscriptions(self) -> list[tuple[int, int]]:
        """(topic, group) by number: topic * groups + group."""
        return [(topic, group) for topic in range(self.topics) for group in range(self.groups)]

    def share(self, total: int, prefix: int, salt: int) -> int:
        """How many of `total` keys lie in a prefix: as even as it goes, the remainder in places that depend on seed."""
        places = np.random.default_rng([self.seed, 1, salt]).permutation(PREFIXES)
        return total // PREFIXES + int(np.flatnonzero(places == prefix)[0] < total % PREFIXES)


class RoundTimes:
    """Redis TIME of every round: `at[subscription * shards + shard, round]`, growing along each row."""

    def __init__(self, plan: Plan) -> None:
        rng = np.random.default_rng([plan.seed, 2])
        rows = len(plan.subscriptions) * plan.shards
        self.rows = rows
        self.rounds = plan.rounds
        self._first = plan.history_start_ms
        self._phase = rng.integers(0, 4_000, rows, dtype=np.int64)
        steps = self._first + ROUND_MS * np.arange(plan.rounds, dtype=np.int64)
        jitter = rng.integers(0, 300, (rows, plan.rounds), dtype=np.int64)
        self.at: Int64s = steps[None, :] + self._phase[:, None] + jitter
        self.generation_first: Int64s = rng.integers(1, 100_000, rows, dtype=np.int64)
        self.epochs = [rng.bytes(8).hex() for _ in range(rows)]
        self.snapshots, self.snapshot_rounds = self._snapshots()

    def _snapshots(self) -> tuple[Int64s, Int64s]:
        """Times (rows, snapshots) and the round before each: the first round of each new day, and the last of all."""
        day = 86_400_000
        midnights = range((self._first // day + 1) * day, int(self.at[:, -1].min()), day)
        last = [np.minimum((self.at < midnight).sum(axis=1), self.rounds - 1) for midnight in midnights]
        rounds = np.stack([*last, np.full(self.rows, self.rounds - 1)], axis=1).astype(np.int64)
        return np.take_along_axis(self.at, rounds, axis=1) + 7, rounds

    def after(self, row: Int64s, time_ms: Int64s) -> Int64s:
        """Number of the first round at or after a time; -1 where time_ms is -1 or no round came any more."""
        guess = np.clip((time_ms - self._first - self._phase[row]) // ROUND_MS, 0, self.rounds)
        for _ in range(2):
            late = (guess < self.rounds) & (self.at[row, np.minimum(guess, self.rounds - 1)] < time_ms)
            guess = guess + late
        return np.where((time_ms < 0) | (guess >= self.rounds), -1, guess)
