"""Runs the tasks of a stage until each has an answer. A source that is away costs a wait.

The other sources still answer.

A stage ends once each of its tasks has an answer. The next stage begins afterwards, so the order of reading is kept.
The longest wait equals the time that the audit has read so far. So a wrong address is reported at once, and hours of
reading allow minutes of waiting.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from reconciler.audit.collect.tasks import Answer, Task, answer
from reconciler.audit.errors import SourceAwayError

#: Longest wait of an audit for its sources, counted from the last answer of a source that was away.
WAIT_SECONDS_MAX = 600.0
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0

#: Function that runs tasks beside each other and returns the answers in the order of the tasks.
Runner = Callable[[Callable[[Task], Answer], Sequence[Task]], list[Answer]]
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Clock and pause of the waits."""

    #: Monotonic clock, seconds.
    clock: Callable[[], float] = time.perf_counter
    pause: Callable[[float], object] = threading.Event().wait


@dataclass(slots=True, kw_only=True)
class Asking:
    """Runner of tasks that repeats the tasks whose source was away. Made when the audit begins to read."""

    run: Runner
    progress: Progress
    waiting: Waiting = field(default_factory=Waiting)
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.waiting.clock()

    def tasks(self, plan: Callable[[], Iterable[Task]]) -> list[Task]:
        """Plans the tasks of a stage. For this, the planning lists the files of exports.

        Raises AuditError. A SourceAwayError says how long the source was asked.
        """
        patience = self._patience()
        while True:
            try:
                return list(plan())
            except SourceAwayError as error:
                if not patience.pause([error.source]):
                    raise SourceAwayError(error.source, f"{error}{patience.told()}") from error

    def answers(self, tasks: Sequence[Task]) -> list[Answer]:
        """Returns the answers in the order of the tasks.

        The answer of a source that stays away says how long the source was asked.
        """
        found = self.run(answer, tasks)
        patience = self._patience()
        while away := _away(found):
            if not patience.pause(list(away)):
                told = patience.told()
                return [replace(one, message=one.message + told) if one.away else one for one in found]
            if self._ask_again(tasks, found, away):
                patience.begin_anew()
        return found

    def _patience(self) -> _Patience:
        wait_seconds = min(WAIT_SECONDS_MAX, self.waiting.clock() - self._began)
        return _Patience(wait_seconds=wait_seconds, progress=self.progress, waiting=self.waiting)

    def _ask_again(self, tasks: Sequence[Task], found: list[Answer], away: dict[str, list[int]]) -> bool:
        """Asks the tasks of away sources again. True: at least one source has answered.

        The first task of each source goes ahead, because a silent host would make each of its tasks wait.
        """
        firsts = [numbers[0] for numbers in away.values()]
        for number, one in zip(firsts, self.run(answer, [tasks[number] for number in firsts]), strict=True):
            found[number] = one
        back = [number for numbers in away.values() if found[numbers[0]].reason is None for number in numbers[1:]]
        if back:
            for number, one in zip(back, self.run(answer, [tasks[number] for number in back]), strict=True):
                found[number] = one
        return any(found[number].reason is None for number in firsts)


@dataclass(slots=True, kw_only=True)
class _Patience:
    """Number and length of the pauses before sources that are away are asked again."""

    wait_seconds: float
    progress: Progress
    waiting: Waiting
    _since: float = field(init=False)
    _pause_seconds: float = field(init=False)
    _tries: int = field(init=False)

    def __post_init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Restarts the wait."""
        self._since, self._pause_seconds, self._tries = self.waiting.clock(), FIRST_PAUSE_SECONDS, 1

    def pause(self, away: Sequence[str]) -> bool:
        """Waits before the sources are asked again.

        Returns False without a wait if the wait would exceed `wait_seconds`.
        """
        if self.waiting.clock() + self._pause_seconds > self._since + self.wait_seconds:
            return False
        self.progress(f"{', '.join(away)}: away; asking again in {self._pause_seconds:g} s")
        self.waiting.pause(self._pause_seconds)
        self._pause_seconds, self._tries = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS), self._tries + 1
        return True

    def told(self) -> str:
        """Makes the end of a message: how often and how long the sources were asked.

        "": every source was asked once.
        """
        waited = round(self.waiting.clock() - self._since)
        return f"; it was asked {self._tries} times in {waited} s" if self._tries > 1 else ""


def _away(found: Sequence[Answer]) -> dict[str, list[int]]:
    """Maps each source that was away to the places of its answers in the list.

    Returns an empty dict if a task failed for another reason, because waiting does not fix that reason.
    """
    failed = [(number, one.away) for number, one in enumerate(found) if one.reason is not None]
    if not all(source for _, source in failed):
        return {}
    away: dict[str, list[int]] = {}
    for number, source in failed:
        away.setdefault(source, []).append(number)
    return away
