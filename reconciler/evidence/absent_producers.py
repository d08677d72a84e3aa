"""Since when a process has found no producer of a group at a broker, and where the half queue ended at its looks.

An offset tells what a broker put back after a look by the broker's own order: its clock may be ahead of ours by hours.
A queue that its broker has not built yet, or has cut, ends too early: an end that is less than is known of it proves
nothing. A broker that was built anew says less for ever: after a while what was known of it is forgotten. If its
queue then leaps to where it once ended, a replica that was behind had stood in, and all is forgotten once more.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from math import inf
from typing import NamedTuple

from reconciler.clock import Clock

#: Ends are asked for at most so often, for each group and half queue of a broker, and so many are kept.
_ENDS_EVERY_SECONDS = 5.0
_ENDS_MAX = 64
_GROUPS_MAX = 10_000
#: A broker that has said less at every look for longer has begun anew.
_LESS_SECONDS_MAX = 600.0


class Absence(NamedTuple):
    """What looks of a process have found, each since a producer was last there."""

    seconds: float
    #: How many seconds ago a look was, and where the half queue ended after it; oldest first.
    half_queue_ends: tuple[tuple[float, int], ...]


class AbsentProducers:
    """Thread-safe. It knows the groups that were looked at last, _GROUPS_MAX of them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: Broker and group -> since when, the last look, and ends by half topic, since each counts for itself; by the
        #: monotonic clock.
        self._absences: dict[tuple[str, str], tuple[float, float, dict[str, deque[tuple[float, int]]]]] = {}
        #: Broker and half topic -> the highest end that it said, or that a half of it showed.
        self._ends: dict[tuple[str, str], int] = {}
        #: Broker and half topic -> since when, and when last, it said less than that.
        self._less: dict[tuple[str, str], tuple[float, float]] = {}
        #: The same -> the highest end before it was forgotten.
        self._former: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def found(self, broker: str, group: str) -> None:
        """Notes that a producer was there, or that the broker did not say."""
        with self._lock:
            self._absences.pop((broker, group), None)

    def not_found(
        self,
        broker: str,
        group: str,
        half_topic: str,
        end_of_half_queue: Callable[[], int],
        *,
        known_offset: int,
        unlooked_seconds_max: float,
    ) -> Absence:
        """Notes that no producer was there. Asks for the end after the look, and raises what that raises.

        `known_offset`: of a half that is in the queue. `unlooked_seconds_max`: after a longer time without a look one
        may have come, answered and left."""
        now = self._clock.monotonic_seconds()
        with self._lock:
            since, looked, of_topics = self._absences.pop((broker, group), (now, now, {}))
            if now - looked > unlooked_seconds_max:
                since, of_topics = now, {}
            self._absences[broker, group] = since, now, of_topics
            ends = of_topics.setdefault(half_topic, deque(maxlen=_ENDS_MAX))
            if len(self._absences) > _GROUPS_MAX:
                del self._absences[next(iter(self._absences))]
            asked = max(ends[-1][0] if ends else -inf, self._less.get((broker, half_topic), (0.0, -inf))[1])
            is_beyond = (broker, half_topic) in self._former and known_offset >= self._ends.get((broker, half_topic), 0)
            is_due = is_beyond or now - asked >= _ENDS_EVERY_SECONDS
        end = end_of_half_queue() if is_due else None
        with self._lock:
            if self._absences.get((broker, group), (0.0, 0.0, None))[2] is not of_topics:
                return Absence(0.0, ())  # another thread has seen a producer meanwhile, or that all is to be forgotten
            known_before = self._ends.get((broker, half_topic), 0)
            known = max(known_before, known_offset + 1, end or 0)
            self._ends[broker, half_topic] = known
            if end is not None and self._is_there_again(broker, half_topic, known_before, end):
                self._forget(broker)
                self._former = {of: former for of, former in self._former.items() if of[0] != broker}
                return Absence(0.0, ())
            if end == known:
                self._less.pop((broker, half_topic), None)
                ends.append((now, known))
            elif end is not None and self._has_begun_anew(broker, half_topic, now, unlooked_seconds_max):
                self._forget(broker)
                return Absence(0.0, ())
            return Absence(now - since, tuple((now - at, offset) for at, offset in ends))

    def _has_begun_anew(self, broker: str, half_topic: str, now: float, unlooked_seconds_max: float) -> bool:
        """Notes that the broker said less than is known."""
        since, last = self._less.get((broker, half_topic), (now, now))
        if now - last > unlooked_seconds_max:
            since = now
        self._less[broker, half_topic] = since, now
        return now - since > _LESS_SECONDS_MAX

    def _is_there_again(self, broker: str, half_topic: str, known: int, end: int) -> bool:
        """Whether the queue is the former one: it may have lost some of its tail. One that grew there looks the same
        once, which costs time."""
        former = self._former.get((broker, half_topic))
        return former is not None and (end >= former or (known > 0 and former - end <= end - known))

    def _forget(self, broker: str) -> None:
        """The next look is the first one."""
        for of, known in self._ends.items():
            if of[0] == broker:
                self._former[of] = max(known, self._former.get(of, 0))
        for of_broker in (self._absences, self._ends, self._less):
            for one in [one for one in of_broker if one[0] == broker]:
                del of_broker[one]
