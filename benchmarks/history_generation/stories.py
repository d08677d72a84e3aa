"""The story of every key of one prefix as columns: what happened to it, where, and when. First all is well."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.history_generation.keys import PrefixKeys
from benchmarks.history_generation.plan import IN_TIME, PREFIXES, TAKEN_TAGS, Int64s, Plan

Flags = NDArray[np.bool_]
Small = NDArray[np.int8]

#: Outbox states by number; 0: no row. 1 to 3 are committed.
STATES = ("", "NEW", "ANNOUNCED", "SETTLED", "ROLLED_BACK")
NO_ROW, NEW, ANNOUNCED, SETTLED, TOMBSTONE = range(5)
#: Tags by number; -1: none.
TAGS = (*TAKEN_TAGS, "audit", "test")
#: States of a candidate and reasons of leaving by number; 0: no row.
CANDIDATE_STATES = ("", "OPEN", "SETTLED", "QUARANTINED")
NO_CANDIDATE, OPEN, CLOSED, QUARANTINED = range(4)
VERDICTS = (
    *("", "CONSUMED", "LOST_CONFIRM", "REJECTED", "FILTERED", "COLLISION", "QUARANTINED", "DEAD_LETTERED"),
    "INCOMPLETE",
    *("DELIVERED_NOT_APPLIED", "LAGGING", "UNKNOWN", "PARKED"),
)
VERDICT = {name: number for number, name in enumerate(VERDICTS)}
RUNGS = ("end", "republish", "hand-over")
REPAIR_STATES = ("OPEN", "SENDING", "SENT", "DONE", "FAILED")
EVERY_GROUP = -1
NEVER = -1


@dataclass(slots=True)
class Repairs:
    """Rows of the ledger's table of repairs; -1 is NULL, scope -1 is every group."""

    key: Int64s
    scope: Int64s
    rung: Int64s
    state: Int64s
    attempts: Int64s
    created_ms: Int64s
    sent_ms: Int64s
    first_sent_ms: Int64s
    done_ms: Int64s


class Stories:
    """Columns of `keys` keys (first axis) and, where it says so, groups of their topic (second axis).

    Keys from `inside` on do not belong to the window: they were made before it or after it.
    """

    def __init__(self, plan: Plan, prefix: int) -> None:
        self.plan = plan
        self.rng = rng = np.random.default_rng([plan.seed, 3, prefix])
        # The share of rows is what the accidents and the remainder of ordinary keys add up to.
        self.planted = {name: plan.share(count, prefix, salt) for salt, (name, count) in _salted(plan)}
        ordinary = plan.share(plan.rows - sum(plan.accidents.values()), prefix, PREFIXES)
        self.inside = sum(self.planted.values()) + ordinary
        outside = plan.share(plan.outside_rows, prefix, PREFIXES + 1)
        count = self.inside + outside
        shape = (count, plan.groups)
        self.keys = PrefixKeys(rng, prefix, count, plan.key_lengths)
        self.shard = self.keys.shards(plan.shards)
        self.topic = rng.integers(0, plan.topics, count)
        self.producer = rng.integers(0, 2, count)
        self.created = np.sort(rng.integers(plan.start_ms, plan.end_ms, count))
        self.created[rng.integers(0, max(self.inside, 1), min(self.inside, 2))] = plan.start_ms
        self.state: Small = rng.integers(ANNOUNCED, SETTLED + 1, count, dtype=np.int8)
        self.tag: Small = rng.integers(0, len(TAKEN_TAGS), count, dtype=np.int8)
        self.digest_known: Flags = rng.random(count, np.float32) < 0.95
        # (key, group) from here on.
        self.effects: Small = np.ones(shape, np.int8)
        latency = np.exp(rng.normal(5.5, 1.0, shape).astype(np.float32))
        self.applied = self.created[:, None] + 30 + np.minimum(latency, 60_000).astype(np.int64)
        #: The handler committed halfway.
        self.incomplete: Flags = np.zeros(shape, bool)
        self.handed_over: Flags = np.zeros(shape, bool)
        self.digest_differs: Flags = np.zeros(shape, bool)
        self.inbox_digest_known: Flags = rng.random(shape, np.float32) < 0.95
        #: When the key was put into the half set and into the commit set; -1: never.
        self.announced = self.created[:, None] + rng.integers(20, 800, shape)
        self.consumed = self.applied + rng.integers(1, 200, shape)
        self.announced_again: Flags = np.zeros(shape, bool)
        #: Why it left pending other than by a match: a number of CANDIDATE_STATES, and when.
        self.left: Small = np.zeros(shape, np.int8)
        self.left_ms = np.full(shape, NEVER, np.int64)
        self.candidate: Small = np.zeros(shape, np.int8)
        self.verdict: Small = np.zeros(shape, np.int8)
        self.loss: Small = np.zeros(shape, np.int8)
        #: Snapshots that forget the key though it is pending: 1 the first one, 2 all.
        self.forgotten: Small = np.zeros(shape, np.int8)
        self.expected: Small = np.full(shape, IN_TIME, np.int8)
        self.expected[self.inside :] = -1
        self.repairs: list[Repairs] = []

    def __len__(self) -> int:
        return len(self.created)

    # What accidents are made of. `i` are keys, `g` the group of each.

    def lose(self, i: Int64s, g: Int64s) -> None:
        """No effect, nothing consumed."""
        self.effects[i, g] = 0
        self.consumed[i, g] = NEVER

    def unannounce(self, i: Int64s, g: Int64s) -> None:
        """Never in the half set."""
        self.announced[i, g] = NEVER

    def judge(self, i: Int64s, g: Int64s, state: int, verdict: str, *, loss: str = "", left: bool = True) -> None:
        """A row in the ledger; settled and quarantined ones leave pending 40 s after the announcement."""
        self.candidate[i, g] = state
        self.verdict[i, g] = VERDICT[verdict]
        self.loss[i, g] = VERDICT[loss]
        if state != OPEN and left:
            announced = self.announced[i, g]
            self.left[i, g] = np.where(announced < 0, 0, state)
            self.left_ms[i, g] = np.where(announced < 0, NEVER, announced + 40_000)

    def apply_at(self, i: Int64s, g: Int64s, applied_ms: Int64s) -> None:
        """The effect happens then, and is recorded 50 ms later."""
        self.effects[i, g] = 1
        self.applied[i, g] = applied_ms
        self.consumed[i, g] = applied_ms + 50

    def create_before(self, i: Int64s, last_ms: int) -> None:
        """Moves keys to some time of the window before `last_ms`, with all that follows from it."""
        start = self.plan.start_ms
        moved = self.rng.integers(start, max(last_ms, start + 1), len(i)) - self.created[i]
        self.move(i, moved)

    def move(self, i: Int64s, by_ms: Int64s) -> None:
        """Shifts everything that happened to the keys so far."""
        self.created[i] += by_ms
        for column in (self.applied, self.announced, self.consumed, self.left_ms):
            column[i] = np.where(column[i] < 0, column[i], column[i] + by_ms[:, None])

    def repair(
        self,
        i: Int64s,
        scope: Int64s,
        *,
        sent_ms: Int64s,
        rung: Int64s,
        attempts: Int64s,
        first_sent_ms: Int64s | None = None,
        state: str = "DONE",
    ) -> None:
        """A repair that was sent `attempts` times, the last time at `sent_ms` (the only one where it is 1)."""
        self.repairs.append(
            Repairs(
                key=i,
                scope=scope,
                rung=rung,
                state=np.full(len(i), REPAIR_STATES.index(state)),
                attempts=attempts,
                created_ms=sent_ms - 500,
                sent_ms=np.where(attempts > 0, sent_ms, NEVER),
                first_sent_ms=np.full(len(i), NEVER) if first_sent_ms is None else first_sent_ms,
                done_ms=sent_ms + 5_000 if state == "DONE" else np.full(len(i), NEVER),
            )
        )

    def expect(self, i: Int64s, g: Int64s | None, name_code: int) -> None:
        """The class of these keys in one group, or in every group (None)."""
        if g is None:
            self.expected[i] = name_code
        else:
            self.expected[i, g] = name_code


def _salted(plan: Plan) -> list[tuple[int, tuple[str, int]]]:
    return list(enumerate(sorted(plan.accidents.items())))
