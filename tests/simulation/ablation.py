"""python -m tests.simulation.ablation [BUG ...]: every planted bug is caught, and only under the faults that it needs.

A bug is caught within HISTORIES_MAX histories, within ON if it needs a fault. For each fault that it needs: with the
fault off, everything else as drawn and the bug's helpers on, it is not caught in several times as many histories as
were enough with it (`Search.after`), at most OFF. Both runs leave out what has the same effect. And the product without
the bug passes each history that caught it: an accident that both have is one of the product, or of its judges.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.simulation.faults import FAULTS
from tests.simulation.history import run_history
from tests.simulation.mutants import Mutant, mutants
from tests.simulation.planting import Found, Search, find_all
from tests.simulation.swarm import draw

ON, OFF = 1_000, 40
HISTORIES_MAX = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a planted bug."""

    mutant: Mutant
    #: Histories until it was caught; None: it survived.
    caught_at: int | None
    how: str
    #: By fault that it needs: what was found without the fault: nothing, as it must be.
    without: dict[str, Found]
    #: By how the history was drawn, "" or a fault that was off: what a history that caught it says of the product
    #: without the bug: nothing, as it must be.
    how_sound: dict[str, str]

    @property
    def problems(self) -> list[str]:
        """Why this bug does not show what it is there for; empty if it does."""
        name, found = self.mutant.name, []
        if self.caught_at is None:
            found.append(f"{name} survived")
        for fault, how in self.how_sound.items():
            off = f", {fault!r} being off" if fault else ""
            found.append(f"{name}: the product without it fails, too{off}: {how}")
        for fault, (at, how) in self.without.items():
            if at is not None and fault not in self.how_sound:
                found.append(f"{name} needs no {fault!r}: caught without it after {at} histories: {how}")
            if self.caught_at is not None and self.caught_at > ON:
                found.append(f"{name} is hardly met under {fault!r}: {self.caught_at} histories")
        return found


def pairs(found: Sequence[Mutant]) -> list[tuple[str, Mutant]]:
    """Every fault with every bug that needs it."""
    return [(fault, mutant) for fault in FAULTS for mutant in found if fault in mutant.needs]


def try_all(
    found: Sequence[Mutant],
    *,
    seed: int,
    jobs: int,
    histories: int = HISTORIES_MAX,
    off: int = OFF,
    known_first: bool = False,
) -> Iterator[Outcome]:
    """Histories against each bug, in their order, some bugs at a time. `known_first`: what met the bug before is tried
    before all others."""
    bugs = [(mutant.patch, _searches(mutant, seed, histories, off, known_first)) for mutant in found]
    for mutant, ((caught_at, how), *missed) in zip(found, find_all(bugs, jobs=jobs), strict=True):
        without = dict(zip(mutant.needs, missed, strict=True))
        told = {
            fault: _without_the_bug(mutant, seed + at - 1, fault)
            for fault, at in (("", caught_at), *((fault, at) for fault, (at, _) in without.items()))
            if at is not None
        }
        yield Outcome(
            mutant=mutant,
            caught_at=caught_at,
            how=how,
            without=without,
            how_sound={fault: said for fault, said in told.items() if said},
        )


def _searches(mutant: Mutant, seed: int, histories: int, off: int, known_first: bool) -> list[Search]:
    known = (mutant.met,) if known_first and mutant.met is not None else ()
    return [
        Search(
            seed=seed,
            histories=off if fault else histories,
            always=always,
            never=never,
            before=() if fault else known,
        )
        for fault in ("", *mutant.needs)
        for always, never in [_drawn(mutant, fault)]
    ]


def _drawn(mutant: Mutant, fault: str) -> tuple[frozenset[str], frozenset[str]]:
    """Faults that are on, and off, in each history: as the bug says, and a fault that it needs off, unless it is ""."""
    off = frozenset({fault}) - {""}
    return mutant.always - off, frozenset(mutant.without) | off


def _without_the_bug(mutant: Mutant, seed: int, fault: str) -> str:
    always, never = _drawn(mutant, fault)
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        judgement = run_history(draw(seed, always=always, never=never))
    finally:
        logging.disable(level)
    return "; ".join([*judgement.accidents, *judgement.unnecessary][:3])


def main(arguments: list[str]) -> int:
    """Prints one line a planted bug. 1: a bug is not caught as it should be, or a fault has no bug."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.ablation")
    parser.add_argument("names", nargs="*", help="planted bugs; default: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--histories", type=int, default=HISTORIES_MAX)
    parser.add_argument("--off", type=int, default=OFF)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    chosen, wrong = mutants(options.names), 0
    for outcome in try_all(
        chosen, seed=options.seed, jobs=options.jobs, histories=options.histories, off=options.off
    ):  # fmt: skip
        wrong += bool(outcome.problems)
        said = "; ".join(outcome.problems) or ", ".join(outcome.mutant.needs)
        sys.stdout.write(f"{outcome.mutant.name} {outcome.caught_at or 'NEVER'}: {said}  {outcome.how[:100]}\n")
        sys.stdout.flush()
    missing = set(FAULTS) - {fault for fault, _ in pairs(chosen)} if not options.names else set()
    sys.stdout.write(f"{len(chosen)} bugs, {wrong} wrong; faults without one: {', '.join(sorted(missing)) or 'none'}\n")
    return int(bool(wrong or missing))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
