"""What a module with probes calls while it runs (conditions.py puts the calls in): each counts, and returns what the
expression would have been without it. Nothing else happens: no port, no dice, no clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

#: Number of an outcome -> how often it was seen.
seen: Counter[int] = Counter()

#: The number of a leaf's false outcome, the true one being the next; or "and", "or", "not" with what it is of.
Tree = Any

_MISSING = object()


def told(false: int, value: Any) -> Any:
    """A condition that is no `and` or `or`."""
    seen[false + bool(value)] += 1
    return value


def decided(tree: Tree, *operands: Callable[[], Any]) -> Any:
    """An expression of `and` and `or`: of each operand that decided, its outcome.

    An operand decides if the whole would be another had the operand been: in `a and b`, what is false decides alone,
    and where both are true each of them does.
    """
    value, outcomes = _walked(tree, operands, _first(tree))
    for outcome in outcomes:
        seen[outcome] += 1
    return value


def chosen(first: int, choose: Callable[..., Any], *arguments: Any, key: Callable[[Any], Any] | None = None) -> Any:
    """`min` or `max` of several arguments: which one was chosen, if no other is its equal."""
    answer = choose(*arguments, key=key)
    ranks = [argument if key is None else key(argument) for argument in arguments]
    places = [place for place, rank in enumerate(ranks) if rank == choose(ranks)]
    if len(places) == 1:
        seen[first + places[0]] += 1
    return answer


def chosen_of(none: int, choose: Callable[..., Any], items: Iterable[Any], *, default: Any, **named: Any) -> Any:
    """`min` or `max` of any number of items: whether there were some."""
    answer = choose(items, default=_MISSING, **named)
    seen[none + (answer is not _MISSING)] += 1
    return default if answer is _MISSING else answer


def came_by(place: int) -> None:
    """A statement is executed."""
    seen[place] += 1


def _first(tree: Tree) -> int:
    while not isinstance(tree, int):
        tree = tree[1]
    return tree


def _walked(tree: Tree, operands: tuple[Callable[[], Any], ...], first: int) -> tuple[Any, tuple[int, ...]]:
    """The value, and the outcomes of the operands that decided it."""
    if isinstance(tree, int):
        value = operands[(tree - first) // 2]()
        return value, (tree + bool(value),)
    kind, *parts = tree
    if kind == "not":
        value, outcomes = _walked(parts[0], operands, first)
        return not value, outcomes
    together: tuple[int, ...] = ()
    for part in parts:
        value, outcomes = _walked(part, operands, first)
        if bool(value) is (kind == "or"):
            return value, outcomes
        together += outcomes
    return value, together
