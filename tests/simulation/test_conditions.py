"""What the probes say of a small module, and that a history is the same with them."""

from __future__ import annotations

import importlib
import multiprocessing
from typing import Any

import pytest

from tests.simulation import probes
from tests.simulation.conditions import Probed, all_probed, entries, probed, reasons
from tests.simulation.history import run_history
from tests.simulation.planting import plant
from tests.simulation.swarm import draw

MODULE = '''"""Of no use."""
from __future__ import annotations

class Thing:
    def go(self, a, b, c=False):
        if not a and (b or c):
            return "both"
        return [n for n in (1, 2) if n > b]

def least(a, b):
    return min(a, b)

def largest(items):
    return max(items, default=0)

def kind(of):
    try:
        match of:
            case int():
                return "int"
            case _:
                return len(of) or "empty"
    except TypeError:
        return "none"

def first(items):
    while True:
        for item in items:
            return item
        break

def some(items):
    return any(items)
'''


def _unseen(call: str) -> tuple[Any, set[str]]:
    """What a call answers, and what it leaves unseen of the function it calls."""
    module = probed(MODULE)
    names: dict[str, Any] = {}
    exec(compile(module.tree, "small.py", "exec"), names)
    probes.seen.clear()
    answers = eval(call, names)
    return answers, _told(module)


def _told(module: Probed) -> set[str]:
    return {f"{place.text}: {said}" for place in module.places for said in place.unseen(probes.seen)}


@pytest.mark.parametrize(
    ("call", "answer", "seen", "unseen"),
    [
        # false decides alone, and then nobody asks the others
        ("Thing().go(1, 0)", [1, 2], {"a: never true"}, {"b: never false", "a: never false", "c: never false"}),
        ("Thing().go(0, 1)", "both", {"a: never false", "b: never true"}, {"b: never false", "c: never true"}),
        ("Thing().go(0, 0, 1)", "both", {"a: never false", "c: never true"}, {"b: never false", "c: never false"}),
        ("Thing().go(0, 0)", [1, 2], {"b: never false", "c: never false"}, {"a: never false", "b: never true"}),
        ("Thing().go(1, 1)", [2], {"n > b: never false", "n > b: never true"}, {"b: never true"}),
        ("least(1, 2)", 1, {"min(a, b): a never chosen"}, {"min(a, b): b never chosen"}),
        ("least(1, 1)", 1, set(), {"min(a, b): a never chosen", "min(a, b): b never chosen"}),
        ("largest([])", 0, {"max(items, default=0): default never needed"}, set()),
        ("largest([0])", 0, {"max(items, default=0): default always needed"}, set()),
        ("kind(1)", "int", {"case int(): never entered"}, {"case _: never entered"}),
        ("kind('')", "empty", {"case _: never entered", "len(of): never false"}, {"len(of): never true"}),
        ("kind(None)", "none", {"except TypeError: never entered"}, {"case int(): never entered"}),
        ("first([3])", 3, {"return item: never executed"}, {"break: never executed"}),
        ("first([])", None, {"break: never executed"}, {"return item: never executed"}),
        ("some([0])", False, {"any(items): never false"}, {"any(items): never true"}),
    ],
)  # fmt: skip
def test_an_outcome_is_seen_where_it_decided(call: str, answer: Any, seen: set[str], unseen: set[str]) -> None:
    answered, left = _unseen(call)
    assert answered == answer
    assert unseen <= left
    assert not seen & left
    assert seen <= _unseen("0")[1]  # nothing was seen before


def test_each_reason_is_of_an_outcome_that_a_file_has() -> None:
    had = {
        entry
        for path, module in all_probed().items()
        for place in module.places
        for entry in entries(path, place, place.outcomes)
    }
    assert set(reasons()) - had == set()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_history_of_a_product_with_probes_is_the_same_history() -> None:
    def told(has_probes: bool) -> tuple[list[str], int]:
        with multiprocessing.get_context("fork").Pool(1) as pool:
            return pool.apply(story_of, (7, has_probes))

    (as_it_is, none), (with_probes, many) = told(False), told(True)
    assert with_probes == as_it_is
    assert none == 0
    assert many > 300


def story_of(seed: int, has_probes: bool) -> tuple[list[str], int]:
    """In a child: a history, and how many outcomes it saw."""
    if has_probes:
        plant({path: module.tree for path, module in all_probed().items()})
        story: tuple[list[str], int] = importlib.import_module(__name__).story_of(seed, False)
        return story
    told: list[str] = []
    judgement = run_history(draw(seed), story=told)
    return [*told, repr(judgement)], len(probes.seen)
