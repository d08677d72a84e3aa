"""Breadth-first search over every state of the world in which halves announce, and what must hold in each state."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache

from tests.model.halves.actions import Step, steps
from tests.model.halves.state import (
    Bounds,
    Copies,
    Half,
    Known,
    Repairing,
    Rules,
    State,
    Transaction,
    Try,
    Wrong,
    first_state,
)
from tests.model.search import STATES_MAX, TooManyStates

_WRONG = {
    Wrong.CLOSED: ("CLOSED", "END ROLLBACK was sent"),
    Wrong.RACE: ("RACE", "END was sent while a producer could answer the broker about the half"),
    Wrong.SIBLING: ("SIBLING", "the message was sent although the row may be of another try"),
    Wrong.ROW_UNSEEN: ("ROW UNSEEN", "the message had its effect and was called unapplied"),
    Wrong.NO_ROW: ("NO ROW", "the effect of the message was believed without a row"),
    Wrong.NOT_PASSED: ("NOT PASSED", "the message was called delivered before the group had passed a copy"),
}
#: With these verdicts a person hears of the message.
_TOLD = frozenset({Known.LOST, Known.TRIES, Known.NO_TRY_DELIVERED, Known.OTHER_DELIVERED})
#: Verdicts on a delivered message.
_SAID = frozenset({Known.DELIVERED, Known.CONSUMED, Known.DELIVERED_NOT_APPLIED})
#: A try that producers delivered and the ledger has settled: nothing changes any more.
_OVER = Try(
    transaction=Transaction.COMMITTED, half=Half.ENDED, aged=1, copies=Copies.THEIRS, passed=1, known=Known.DELIVERED
)


@dataclass(slots=True, kw_only=True)
class Found:
    """What a search saw."""

    states: int = 0
    steps: int = 0
    depth: int = 0
    #: Names of all actions.
    names: set[str]
    #: The promise that does not hold, and how; empty if all hold.
    kind: str = ""
    detail: str = ""
    #: The shortest way there.
    way: tuple[Step, ...] = ()


def unsafe(s: State) -> tuple[str, str] | None:
    """What must hold in every state."""
    for one in s.tries:
        if one.copies is Copies.TWICE:
            return "DOUBLE", "the message was delivered twice, once by us"
        if one.copies and not one.is_committed:
            return "PHANTOM", "the message was never committed and was delivered"
        if one.was_lost and not one.is_committed:
            return "CALLED LOST", "the message was never committed and was called lost"
    return _WRONG.get(s.wrong)


def unfinished(s: State) -> tuple[str, str] | None:
    """What must hold when no process has a step left."""
    has_several = sum(one.half is not Half.NONE for one in s.tries) > 1
    for one in s.tries:
        if one.is_committed and not one.copies:
            if one.known not in _TOLD:
                return "LOST", "the message was committed and never delivered, and nobody is told"
            if one.half is Half.PARKED and not has_several:
                return "LOST", "the loss of the message was proved, and nobody sends it"
        if one.copies and one.known not in _SAID:
            return "UNACCOUNTED", "the message was delivered, and its verdict never says so"
        is_under_way = one.repair in (Repairing.OPEN, Repairing.SENDING, Repairing.SENT)
        is_waiting = one.copies and is_under_way and one.known is not Known.DELIVERED_NOT_APPLIED
        if one.hand or is_waiting:
            return "UNACCOUNTED", "the repair of the message never ends"
    return None


def without_dead_fields(s: State) -> State:
    """States that behave alike are one."""
    return s._replace(tries=_alive(s.tries, s.away > 0))


@cache
def _alive(tries: tuple[Try, ...], looks: bool) -> tuple[Try, ...]:
    return tuple(_without_dead_fields(one, looks) for one in tries)


def _without_dead_fields(one: Try, looks: bool) -> Try:
    is_repaired = one.repair in (Repairing.NONE, Repairing.DONE, Repairing.FAILED) and not one.hand
    if one.copies is Copies.THEIRS and one.known is Known.DELIVERED and is_repaired:
        return _OVER
    if one.half not in (Half.NONE, Half.OPEN):
        return one._replace(fresh=0, aims_low=0, put_back=min(one.put_back, 1))
    return one if looks else one._replace(fresh=0)


def search(bounds: Bounds, rules: Rules, *, kind: str = "", states_max: int = STATES_MAX) -> Found:
    """Visits every state; stops at the first violation. From each state, too, the world without further faults must
    become quiet, whoever works first.

    `kind`: only this violation counts. A LOST message counts only where the world is quiet by itself.
    """
    found = Found(names=set())
    start = first_state(bounds)
    came: dict[State, tuple[State, Step] | None] = {start: None}
    healed: tuple[set[State], set[State]] = (set(), set())
    frontier = [start]
    while frontier:
        following: list[State] = []
        for s in frontier:
            problem = unsafe(s)
            if problem is None and kind in ("", "LOST"):
                problem = _stuck(s, rules, bounds) if kind else _heals(s, rules, bounds, healed)
            if problem is not None and kind in ("", problem[0]):
                found.kind, found.detail = problem
                found.way = _way(came, s)
                return found
            for step in steps(s, rules, bounds):
                found.steps += 1
                found.names.add(step.name)
                now = without_dead_fields(step.after)
                if now not in came:
                    if len(came) >= states_max:
                        raise TooManyStates(f"more than {states_max} states")
                    came[now] = s, step
                    following.append(now)
        found.states += len(frontier)
        found.depth += bool(following)
        frontier = following
    return found


def _way(came: dict[State, tuple[State, Step] | None], s: State) -> tuple[Step, ...]:
    way: list[Step] = []
    while (origin := came[s]) is not None:
        s, step = origin
        way.append(step)
    return tuple(way[::-1])


def _calm(s: State) -> State:
    return without_dead_fields(s._replace(leaves=0, comes=0, lost=0, crashes=0))


def _stuck(s: State, rules: Rules, bounds: Bounds) -> tuple[str, str] | None:
    """No process has a step left, even if nothing fails from here on."""
    calm = _calm(s)
    is_quiet = all(now == calm for now in _work(calm, rules, bounds))
    return unfinished(calm) if is_quiet else None


def _heals(s: State, rules: Rules, bounds: Bounds, healed: tuple[set[State], set[State]]) -> tuple[str, str] | None:
    """Services and brokers work first, or the reconciler does."""
    return _converges(s, rules, bounds, healed[0], is_reversed=False) or _converges(
        s, rules, bounds, healed[1], is_reversed=True
    )


def _converges(
    s: State, rules: Rules, bounds: Bounds, healed: set[State], *, is_reversed: bool
) -> tuple[str, str] | None:
    """Lets all processes work without faults until nothing changes; every state on the way becomes quiet, too."""
    s = _calm(s)
    way: dict[State, None] = {}
    while s not in healed:
        if s in way:
            return "UNACCOUNTED", "the work never ends"
        way[s] = None
        work = _work(s, rules, bounds)
        following = next((now for now in (reversed(work) if is_reversed else work) if now != s), None)
        if following is None:
            problem = unsafe(s) or unfinished(s)
            if problem is not None:
                return problem
            break
        s = following
    healed.update(way)
    return None


@lru_cache(maxsize=100_000)  # both orders of work meet most states
def _work(s: State, rules: Rules, bounds: Bounds) -> tuple[State, ...]:
    return tuple(without_dead_fields(step.after) for step in steps(s, rules, bounds) if step.is_work)
