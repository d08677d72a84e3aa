"""Breadth-first search over all states, and what must hold in each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.model.actions import Step, healing, steps
from tests.model.dead_fields import without_dead_fields
from tests.model.state import ANNOUNCED, KEY, MESSAGE, NEW, Bounds, Rules, State, canonical, first_state, packed

#: The issue's ceiling; a search that needs more is refused.
STATES_MAX = 20_000_000


class TooManyStates(Exception):
    """The search would not end within its ceiling."""


Normal = Callable[[State], State]


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A promise that does not hold, and the shortest way there."""

    #: LOST, DOUBLE, PHANTOM, UNACCOUNTED or FLOOR.
    kind: str
    detail: str
    way: tuple[Step, ...] = ()


@dataclass(slots=True, kw_only=True)
class Found:
    """What a search saw."""

    states: int = 0
    steps: int = 0
    depth: int = 0
    violation: Violation | None = None


def unsafe(s: State, rules: Rules) -> tuple[str, str] | None:
    """What must hold in every state: G1, G2, G4 and the floor of F8."""
    for g, (keys, offset, _last, floor, _disk) in enumerate(s[1]):
        for i, number in enumerate(keys):
            k = KEY[number]
            if k.effects > 1:
                return "DOUBLE", f"message {i} took effect twice in group {g}"
            if k.effects and MESSAGE[s[0][i]].row not in (NEW, ANNOUNCED):
                return "PHANTOM", f"message {i} was not committed and took effect in group {g}"
        if rules != Rules():
            continue
        for i in s[2][:offset]:
            k = KEY[keys[i]]
            if not (k.in_half or k.pending or k.in_commit or k.effects):
                return "UNACCOUNTED", f"key {i} was announced to group {g} and is nowhere"
        for i in s[2][:floor]:
            if not KEY[keys[i]].effects:
                return "FLOOR", f"the floor of group {g} lies above key {i}, which is not settled"
    return None


def unfinished(s: State) -> tuple[str, str] | None:
    """What must hold when no process has a step left: L1 and G4."""
    for i, number in enumerate(s[0]):
        m = MESSAGE[number]
        for g, group in enumerate(s[1]):
            k = KEY[group[0][i]]
            if m.row in (NEW, ANNOUNCED) and not k.effects:
                return "LOST", f"message {i} was committed and never took effect in group {g}"
            if k.pending or k.in_half:
                return "UNACCOUNTED", f"key {i} is pending in group {g} for ever"
        if m.in_hand or (m.repair and not m.copies):
            return "UNACCOUNTED", f"the repair of message {i} never ends"
    return None


def search(
    bounds: Bounds, rules: Rules, *, states_max: int = STATES_MAX, heals: bool = True, forgets: bool = True
) -> Found:
    """Visits every state up to the names of messages and groups; stops at the first violation.

    `heals`: from every state, too, the world without further faults must become quiet (no endless turning).
    """
    found = Found()
    normal = _alike if forgets and rules == Rules() and not bounds.falls_back else canonical
    start = normal(first_state(bounds))
    seen = {packed(start)}
    frontier = [start]
    converges: set[int] = set()
    while frontier:
        following: list[State] = []
        for state in frontier:
            problem = unsafe(state, rules)
            if problem is None:
                problem = _heals(state, rules, bounds, converges, normal) if heals else None
            if problem is not None:
                found.violation = Violation(kind=problem[0], detail=problem[1])
                return found
            for _name, _i, _g, after in steps(state, rules, bounds):
                found.steps += 1
                least = normal(after)
                number = packed(least)
                if number not in seen:
                    if len(seen) >= states_max:
                        raise TooManyStates(f"more than {states_max} states")
                    seen.add(number)
                    following.append(least)
        found.states += len(frontier)
        found.depth += bool(following)
        frontier = following
    return found


def _alike(state: State) -> State:
    return canonical(without_dead_fields(state))


def _heals(state: State, rules: Rules, bounds: Bounds, converges: set[int], normal: Normal) -> tuple[str, str] | None:
    """Lets all processes work without faults until all is quiet; every state on the way converges, too."""
    way: list[int] = []
    on_way: set[int] = set()
    state = normal((*state[:3], 0, 0, 0))
    while True:
        number = packed(state)
        if number in converges:
            break
        if number in on_way:
            return "LOST", "the work never ends"
        way.append(number)
        on_way.add(number)
        options = (normal(after) for after in healing(state, rules, bounds))
        following = next((after for after in options if after != state), None)
        if following is None:
            problem = unfinished(state)
            if problem is not None:
                return problem
            break
        state = following
    converges.update(way)
    return None
