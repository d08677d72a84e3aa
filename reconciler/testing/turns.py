"""Waits of the test kit. The kit waits for other threads in real time. For everything else, the kit runs turns until
nothing changes any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from reconciler.clock import SystemClock
from reconciler.errors import UsageError

#: The longest wait for consumers, whose threads may run late.
WAIT_SECONDS = 30.0
#: The longest wait for producers that the broker has asked.
ANSWER_SECONDS = 20.0
_PAUSE_SECONDS = 0.002
#: Seconds by which the clock moves between turns. Each turn that changes nothing doubles the step.
TURN_SECONDS = 30.0
#: The most turns in a row without a change. Together they move the clock by half an hour.
QUIET_TURNS_MAX = 6
TURNS_MAX = 60
#: The values for a database server, which sets the time: real seconds between turns, the most turns without a change,
#: and the most turns in all.
REAL_TURN_SECONDS = 0.1
REAL_QUIET_TURNS_MAX = 20
REAL_TURNS_MAX = 600


Seen = TypeVar("Seen")


class Turns(Generic[Seen]):
    """Runs turns until everything is at rest, or nothing changes any more."""

    def __init__(
        self,
        look: Callable[[], Seen],
        *,
        waits: Callable[[], bool],
        is_moved: bool,
        advance: Callable[[float], None],
    ) -> None:
        """`look` returns everything that a turn may change, as one value. `waits` returns True while something is due
        at a later real time. `is_moved` says that the test moves the time by `advance`."""
        self._look = look
        self._waits = waits
        self._is_moved = is_moved
        self._advance = advance

    def until(self, turn: Callable[[], None], is_at_rest: Callable[[Seen], bool]) -> bool:
        """Returns True once everything is at rest. Returns False if turns change nothing any more, but not everything
        is at rest."""
        quiet, before = 0, None
        quiet_max = QUIET_TURNS_MAX if self._is_moved else REAL_QUIET_TURNS_MAX
        for _ in range(TURNS_MAX if self._is_moved else REAL_TURNS_MAX):
            turn()
            after = self._look()
            if is_at_rest(after):
                return True
            is_quiet = after == before and (self._is_moved or not self._waits())
            quiet = quiet + 1 if is_quiet else 0
            if quiet == quiet_max:
                return False
            before = after
            if self._is_moved:
                self._advance(TURN_SECONDS * 2**quiet)
            else:
                SystemClock().sleep(REAL_TURN_SECONDS)
        return False


def wait_for(is_done: Callable[[], bool], what_if_not: str) -> None:
    """Waits in real time until `is_done` returns True. Raises UsageError if the wait takes too long."""
    if not _is_done_within(WAIT_SECONDS, is_done):
        raise UsageError(f"{what_if_not} within {WAIT_SECONDS:g} s: does its handler wait for something?")


def wait_for_answers(are_there: Callable[[], bool]) -> None:
    """Waits in real time for producers that were asked. The wait has a limit, because a dying producer never
    answers."""
    _is_done_within(ANSWER_SECONDS, are_there)


def _is_done_within(seconds: float, is_done: Callable[[], bool]) -> bool:
    clock = SystemClock()
    deadline = clock.monotonic_seconds() + seconds
    while not is_done():
        if clock.monotonic_seconds() > deadline:
            return False
        clock.sleep(_PAUSE_SECONDS)
    return True
