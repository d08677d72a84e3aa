"""python -m tests.simulation.ablation [MUTANT ...]: for each fault a planted bug that is met under that fault only.

For a bug and a fault that it needs: with the fault on it is caught within ON histories; with the fault off, everything
else as drawn and the bug's helpers on, it is not caught in OFF histories. Both runs leave out what has the same effect.
And the product without the bug passes the history that caught it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.simulation.faults import FAULTS
from tests.simulation.mutants import ROOT, Mutant, mutants, planted, run_until_failure

ON, OFF = 400, 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What one pair has shown."""

    fault: str
    mutant: Mutant
    #: Histories until it was caught with the fault on; None: never.
    caught_at: int | None
    how: str
    #: Histories until it was caught although the fault was off; None: never, as it must be.
    caught_without: int | None
    how_without: str
    #: What the history that caught it says of the product without the bug: nothing, as it must be.
    how_sound: str

    @property
    def holds(self) -> bool:
        """The fault is needed, and enough, and it was the bug that was caught."""
        return self.caught_at is not None and self.caught_without is None and not self.how_sound


def pairs(found: Sequence[Mutant]) -> list[tuple[str, Mutant]]:
    """Every fault with every bug that needs it."""
    return [(fault, mutant) for fault in FAULTS for mutant in found if fault in mutant.needs]


def show(fault: str, mutant: Mutant, *, seed: int, on: int = ON, off: int = OFF) -> Shown:
    """Two runs of one pair."""
    same = frozenset(mutant.without)
    others = mutant.always - {fault}
    with planted(mutant) as root:
        caught = run_until_failure(root, mutant, seed=seed, histories=on, always=mutant.always, never=same)
        missed = run_until_failure(root, mutant, seed=seed, histories=off, always=others, never=same | {fault})
    sound = ""
    if caught.caught_at is not None:
        at = seed + caught.caught_at - 1
        sound = run_until_failure(ROOT, mutant, seed=at, histories=1, always=mutant.always, never=same).how
    return Shown(
        fault=fault, mutant=mutant, caught_at=caught.caught_at, how=caught.how, caught_without=missed.caught_at,
        how_without=missed.how, how_sound=sound,
    )  # fmt: skip


def show_all(
    chosen: Sequence[tuple[str, Mutant]], *, seed: int, jobs: int, on: int = ON, off: int = OFF
) -> Iterator[Shown]:
    """All pairs, a few at a time, in their order."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda pair: show(*pair, seed=seed, on=on, off=off), chosen)


def main(arguments: list[str]) -> int:
    """Prints one line a pair; 1 if a pair does not hold or a fault has none."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.ablation")
    parser.add_argument("names", nargs="*", help="planted bugs; default: all that need a fault")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--on", type=int, default=ON)
    parser.add_argument("--off", type=int, default=OFF)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    chosen = pairs(mutants(options.names))
    wrong = 0
    for shown in show_all(chosen, seed=options.seed, jobs=options.jobs, on=options.on, off=options.off):
        wrong += not shown.holds
        without = "not without" if shown.caught_without is None else f"WITHOUT IT at {shown.caught_without}"
        how = shown.how_without or (f"SOUND PRODUCT: {shown.how_sound}" if shown.how_sound else shown.how)
        sys.stdout.write(
            f"{shown.fault}: {shown.mutant.name} {shown.caught_at or 'NEVER'}, {without}  {how[:140]}\n"
        )  # fmt: skip
        sys.stdout.flush()
    missing = set(FAULTS) - {fault for fault, _ in chosen} if not options.names else set()
    sys.stdout.write(
        f"{len(chosen)} pairs, {wrong} wrong; faults without one: {', '.join(sorted(missing)) or 'none'}\n"
    )
    return int(bool(wrong or missing))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
