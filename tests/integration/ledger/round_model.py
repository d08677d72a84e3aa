"""What a shard should hold and what each of its rounds should have moved, on plain sets."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from reconciler.policy.ports.rounds import RoundCounts


@dataclass(slots=True)
class Moved:
    """One round."""

    announced: set[str]
    consumed: set[str]
    late: set[str]


@dataclass(slots=True)
class RoundModel:
    """One shard since its memory began. Copied where Redis saves, put back where it falls back."""

    half: set[str] = field(default_factory=set)
    commits: list[set[str]] = field(default_factory=lambda: [set()])
    pending: set[str] = field(default_factory=set)
    generation: int = 0
    moved: dict[int, Moved] = field(default_factory=dict)
    #: Times of pending keys, as they were when they came.
    ages: dict[str, int] = field(default_factory=dict)
    #: For conservation: keys that rounds took, and what became of them.
    announced: int = 0
    matched: int = 0
    were_pending: int = 0
    matched_late: int = 0
    settled: int = 0

    def copy(self) -> RoundModel:
        return copy.deepcopy(self)

    def round(self) -> RoundCounts:
        """Every older commit set counts for what is new and for what is pending: the rule in its plainest form."""
        consumed: set[str] = set().union(*self.commits)
        before = len(self.pending)
        new = self.half - consumed
        united = self.pending | new
        late = united & consumed
        self.generation += 1
        self.moved[self.generation] = Moved(self.half, self.commits[0], late)
        counts = RoundCounts(
            announced=len(self.half),
            matched=len(self.half & consumed),
            pending_before=before,
            pending_added=len(united) - before,
            pending_matched=len(late),
            pending_after=len(united - consumed),
        )
        self.announced += counts.announced
        self.matched += counts.matched
        self.were_pending += len(new & self.pending)
        self.matched_late += counts.pending_matched
        self.pending = united - consumed
        self.half = set()
        self.commits = [set(), *self.commits[:2]]
        return counts

    def settle(self, keys: set[str]) -> None:
        """Keys whose ledger rows are committed leave pending."""
        assert keys <= self.pending
        self.pending -= keys
        self.settled += len(keys)

    @property
    def is_conserved(self) -> bool:
        """announced = matched + pending + settled; what was pending already is the same key twice."""
        left = self.matched + self.matched_late + self.settled + len(self.pending)
        return self.announced == left + self.were_pending
