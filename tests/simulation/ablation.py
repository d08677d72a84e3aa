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
from dataclasses import dataclass

from tests.simulation.faults import FAULTS
from tests.simulation.mutants import Mutant, mutants
from tests.simulation.planting import Search, find_all

ON, OFF = 400, 40
#: In so many histories every planted bug is caught, needed faults or not.
HISTORIES_MAX = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a mutant."""

    mutant: Mutant
    #: Histories until it failed; None: it survived.
    caught_at: int | None
    #: How it failed.
    how: str


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


def try_all(found: Sequence[Mutant], *, seed: int, histories: int, jobs: int) -> Iterator[Outcome]:
    """Histories against each bug until one fails; in their order."""
    searches = [
        Search(patch=m.patch, seed=seed, histories=histories, always=m.always, never=frozenset(m.without))
        for m in found
    ]
    for mutant, (caught_at, how) in zip(found, find_all(searches, jobs=jobs), strict=True):
        yield Outcome(mutant=mutant, caught_at=caught_at, how=how)


def show_all(
    chosen: Sequence[tuple[str, Mutant]],
    *,
    seed: int,
    jobs: int,
    on: int = ON,
    off: int = OFF,
    met: Sequence[Outcome] | None = None,
) -> list[Shown]:
    """All pairs in their order. `met`: what try_all has found with this seed, if it has run already."""
    bugs = list({mutant.name: mutant for _, mutant in chosen}.values())
    if met is None:
        met = list(try_all(bugs, seed=seed, histories=on, jobs=jobs))
    caught = {outcome.mutant.name: outcome for outcome in met if (outcome.caught_at or on + 1) <= on}
    without = [
        Search(
            patch=mutant.patch, seed=seed, histories=off,
            always=mutant.always - {fault}, never=frozenset(mutant.without) | {fault},
        )
        for fault, mutant in chosen
    ]  # fmt: skip
    sound = [
        Search(
            patch="", seed=seed + (outcome.caught_at or 1) - 1, histories=1,
            always=outcome.mutant.always, never=frozenset(outcome.mutant.without),
        )
        for outcome in caught.values()
    ]  # fmt: skip
    found = list(find_all([*without, *sound], jobs=jobs))
    how_sound = {name: how for name, (_, how) in zip(caught, found[len(without) :], strict=True)}
    return [
        Shown(
            fault=fault,
            mutant=mutant,
            caught_at=caught[mutant.name].caught_at if mutant.name in caught else None,
            how=caught[mutant.name].how if mutant.name in caught else "",
            caught_without=caught_without,
            how_without=how_without,
            how_sound=how_sound.get(mutant.name, ""),
        )
        for (fault, mutant), (caught_without, how_without) in zip(chosen, found[: len(without)], strict=True)
    ]


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
