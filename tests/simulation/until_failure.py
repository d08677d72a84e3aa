"""Histories one after the other until one fails; planting.py runs it in the child that has a planted bug."""

from __future__ import annotations

import gc
import logging
from collections.abc import Sequence
from itertools import chain

from tests.simulation.economies import in_turn
from tests.simulation.history import run_history
from tests.simulation.swarm import draw

#: Histories between two looks for garbage.
COLLECT_EVERY = 10


def first_failure(
    seed: int, histories: int, always: frozenset[str], never: frozenset[str], before: Sequence[int] = ()
) -> tuple[int | None, str]:
    """Number of the first history that failed, from 1, and how; None if none did. The process is not used any more.
    `before`: seeds that are tried before all others."""
    logging.disable(logging.CRITICAL)
    gc.disable()
    gc.freeze()  # modules are no garbage
    for number, chosen in enumerate(chain(in_turn(before), in_turn(range(seed, seed + histories)))):
        judgement = run_history(draw(chosen, always=always, never=never))
        found = judgement.accidents + [f"unnecessary repair: {text}" for text in judgement.unnecessary]
        if found:
            return chosen - seed + 1, f"seed {judgement.seed}: {found[0]}"
        if number % COLLECT_EVERY == COLLECT_EVERY - 1:
            gc.collect()
    return None, ""
