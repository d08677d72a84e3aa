"""Planted bugs of the policy, searched in this world: it asks the product's own functions, so it meets them, too.

Each bug lives in a child of this process, which imports product and model once more (tests/simulation/planting.py).
"""

from __future__ import annotations

import importlib
import multiprocessing
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tests.model.halves.state import Bounds
from tests.simulation.mutants import ROOT, mutants, patched
from tests.simulation.planting import plant

_ALONE = Bounds(tries=1, leaves=1, comes=0, lost=1, crashes=0, questions=1)
_TWO = Bounds(tries=2, leaves=0, comes=0, lost=0, crashes=0, questions=1)

#: Name of a patch of tests/simulation/mutants -> a small world with it, and the promise that breaks first.
BUGS = {
    "a_half_is_a_commit": (_ALONE, "CALLED LOST"),
    "a_parked_half_is_lost": (_ALONE, "UNACCOUNTED"),
    "a_row_closes_other_halves": (_ALONE, "CLOSED"),
    "a_sibling_is_ignored": (_TWO, "PHANTOM"),
    "a_sibling_of_before_the_claim_counts": (_TWO, "SIBLING"),
    "a_stored_copy_is_delivered": (_ALONE, "NOT PASSED"),
    "an_ended_half_was_delivered": (_ALONE, "NOT PASSED"),
    "an_offset_is_believed_without_the_effect": (_ALONE, "ROW UNSEEN"),
    "two_siblings_are_sent": (_TWO, "PHANTOM"),
}
#: Planted bugs of worlds with an effect query.
_OF_EFFECT_QUERIES = frozenset({"an_offset_is_believed_without_the_effect"})
_MODEL = "tests.model."


def found_in(name: str) -> str:
    """The promise that the planted bug breaks; empty if the search finds none."""
    (mutant,) = mutants([name])
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(_search, (mutant.patch, asdict(BUGS[name][0]), name in _OF_EFFECT_QUERIES))


def _search(patch: str, bounds: Mapping[str, int], has_effect_query: bool) -> str:
    plant(patched(patch, ROOT))
    for name in [name for name in sys.modules if name.startswith(_MODEL)]:
        del sys.modules[name]
    state: Any = importlib.import_module(f"{_MODEL}halves.state")
    search: Any = importlib.import_module(f"{_MODEL}halves.search").search
    return str(search(state.Bounds(**bounds), state.Rules(has_effect_query=has_effect_query)).kind)
