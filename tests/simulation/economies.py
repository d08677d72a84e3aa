"""What is spared in nine of ten histories, without a change of what happens in them (tested: the same stories).

Every tenth seed runs everything as it is: frozen dataclasses (thawing.py), Redis' scripts by Lua (redis_scripts.py).
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache

from tests.simulation import redis_scripts
from tests.simulation.thawing import Thawed

#: One history in so many runs without economies.
AS_IT_IS_EVERY = 10


@contextmanager
def spared() -> Iterator[None]:
    """Histories inside are run with all economies."""
    thawed = _thawed()
    thawed.thaw()
    redis_scripts.are_known_by_heart = True
    try:
        yield
    finally:
        redis_scripts.are_known_by_heart = False
        thawed.freeze()


def in_turn(seeds: Iterable[int]) -> Iterator[int]:
    """Each seed; a caller that asks for the next one has run the last one as it is to be run."""
    waiting: list[int] = []
    for seed in seeds:
        waiting.append(seed)
        if seed % AS_IT_IS_EVERY == 0:
            yield from _run_down(waiting)
    yield from _run_down(waiting)


def _run_down(seeds: list[int]) -> Iterator[int]:
    with spared():
        yield from (seed for seed in seeds if seed % AS_IT_IS_EVERY)
    yield from (seed for seed in seeds if seed % AS_IT_IS_EVERY == 0)
    seeds.clear()


@cache
def _thawed() -> Thawed:
    return Thawed()


@contextmanager
def undisturbed() -> Iterator[None]:
    """No log, and no collector while a chunk runs: a tenth of the time went into looking for garbage."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    gc.disable()
    gc.freeze()  # modules and what they hold are no garbage: the collector need not look at them after each chunk
    try:
        yield
    finally:
        gc.enable()
        gc.collect()
        gc.unfreeze()
        logging.disable(level)
