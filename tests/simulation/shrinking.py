"""A failing history made smaller: fewer messages, fewer troubles, as long as it fails in the same way.

A variant is replayed by its three words alone. It is a history of its own (one trouble less is other dice), so
nothing says that the smallest one found is the smallest there is; the search is bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.simulation.checkers import Judgement
from tests.simulation.history import run_history
from tests.simulation.swarm import TROUBLES, Swarm, draw

#: Histories that one search may run: a few seconds.
RUNS_MAX = 120
MESSAGES_MIN = 2
#: TROUBLES=none: every trouble is off.
NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A seed, and what differs from what it draws. None: as drawn."""

    seed: int
    troubles: tuple[str, ...] | None = None
    messages: int | None = None

    def swarm(self) -> Swarm:
        """The parameters. Troubles that the seed draws keep their strength; others that are named are strong."""
        drawn = draw(self.seed)
        if self.troubles is not None:
            wanted = frozenset(self.troubles)
            drawn = draw(self.seed, only=wanted, always=wanted - frozenset(drawn.troubles))
        if self.messages is not None:
            drawn.messages = self.messages
        return drawn

    @property
    def command(self) -> str:
        """What replays it."""
        words = [f"make simulate SEED={self.seed} HISTORIES=1"]
        if self.troubles is not None:
            words.append(f"TROUBLES='{','.join(self.troubles) or NONE}'")
        if self.messages is not None:
            words.append(f"MESSAGES={self.messages}")
        return " ".join(words)


def troubles_of(text: str | None) -> tuple[str, ...] | None:
    """The names in a TROUBLES=...; None for none given. Raises ValueError for one that does not exist."""
    if not text:
        return None
    names = () if text == NONE else tuple(name.strip() for name in text.split(","))
    unknown = sorted(set(names) - set(TROUBLES))
    if unknown:
        raise ValueError(f"no such trouble: {', '.join(unknown)}; there are {', '.join(TROUBLES)}")
    return names


def kinds_of(judgement: Judgement) -> frozenset[str]:
    """In which ways it failed."""
    kinds = {text.partition(":")[0] for text in judgement.accidents}
    return frozenset(kinds | ({"unnecessary repair"} if judgement.unnecessary else set()))


def shrink(
    variant: Variant, *, run: Callable[[Swarm], Judgement] = run_history, runs_max: int = RUNS_MAX
) -> Variant | None:
    """The smallest variant found that fails in one of the ways of the given one; None if that does not fail."""
    return _Search(run, runs_max).smallest(variant)


class _Search:
    def __init__(self, run: Callable[[Swarm], Judgement], runs_max: int) -> None:
        self._run = run
        self._left = runs_max
        self._kinds: frozenset[str] = frozenset()

    def smallest(self, variant: Variant) -> Variant | None:
        swarm = variant.swarm()
        self._kinds = kinds_of(self._run(swarm))
        if not self._kinds:
            return None
        start = replace(variant, troubles=tuple(swarm.troubles), messages=swarm.messages)
        return self._fewer_messages(self._fewer_troubles(self._fewer_messages(start)))

    def _fails(self, variant: Variant) -> bool:
        if self._left <= 0:
            return False
        self._left -= 1
        return bool(self._kinds & kinds_of(self._run(variant.swarm())))

    def _fewer_messages(self, variant: Variant) -> Variant:
        messages = variant.messages or 0
        for share in (0.1, 0.25, 0.5, 0.75):
            fewer = max(MESSAGES_MIN, int(messages * share))
            smaller = replace(variant, messages=fewer)
            if fewer < messages and self._fails(smaller):
                return self._fewer_messages(smaller)
        return variant

    def _fewer_troubles(self, variant: Variant) -> Variant:
        """Leaves out one half of the troubles, then one quarter, down to single ones."""
        size = max(1, len(variant.troubles or ()) // 2)
        while size:
            first = 0
            while first < len(variant.troubles or ()):
                troubles = variant.troubles or ()
                smaller = replace(variant, troubles=troubles[:first] + troubles[first + size :])
                if self._fails(smaller):
                    variant = smaller
                else:
                    first += size
            size //= 2
        return variant
