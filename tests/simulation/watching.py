"""Histories of a product with probes: which outcomes of its conditions they see (conditions.py).

As planted bugs do, the product with probes lives in children of this process.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import Counter
from collections.abc import Iterator

from tests.simulation import probes
from tests.simulation.checkers import Judgement
from tests.simulation.conditions import all_probed
from tests.simulation.economies import in_turn, undisturbed
from tests.simulation.faults import ASKED_FOR, BY_LOT
from tests.simulation.history import run_history
from tests.simulation.planting import plant
from tests.simulation.swarm import draw

CHUNK = 10
#: For so many histories as they are drawn, one with each fault that none has by chance.
DRAWN_TO_ONE_ASKED_FOR = 20

#: On in each history of such a fault: few are lost in most histories, what loses none repairs none, and most repairs
#: come when all troubles are over.
LOSING = frozenset({"end lost", "checks lost", "long troubles"})

#: Seeds, and a fault that all their histories have; None: as they are drawn.
Part = tuple[range, str | None]


def watched(seed: int, histories: int, *, jobs: int) -> Iterator[tuple[list[Judgement], Counter[int]]]:
    """All histories in parts, in no particular order, with how often each outcome was seen."""
    parts, count = _parts(seed, histories, None), histories // DRAWN_TO_ONE_ASKED_FOR
    for number, fault in enumerate(sorted(ASKED_FOR - BY_LOT)):
        parts += _parts(seed + histories + number * count, count, fault)
    with multiprocessing.get_context("fork").Pool(jobs, initializer=_begin) as pool:
        yield from pool.imap_unordered(judge_part, parts)


def _parts(seed: int, histories: int, fault: str | None) -> list[Part]:
    end = seed + histories
    return [(range(at, min(at + CHUNK, end)), fault) for at in range(seed, end, CHUNK)]


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C is for the parent, which then ends its children
    plant({path: module.tree for path, module in all_probed().items()})


def judge_part(part: Part) -> tuple[list[Judgement], Counter[int]]:
    """Run in a child, which finds this function by its name: in the module that it has imported once more."""
    seeds, fault = part
    probes.seen.clear()
    always = LOSING | {fault} if fault else frozenset[str]()
    with undisturbed():
        return [run_history(draw(seed, always=always)) for seed in in_turn(seeds)], probes.seen
