"""How long the looks of a process have found no producer of a group at a broker, and where the half queue ended at each
look.

Whether a broker put a half back after a look is decided by queue offsets, because a broker's clock may be ahead of this
host's by hours. A broker that has not rebuilt its queue yet, or has cut it, reports too low an end. An end below the
highest known end proves nothing. If a broker reports lower ends for _LESS_SECONDS_MAX, it was built again, and all its
ends and absences are forgotten. If the end later leaps to the forgotten end, a replica that was behind had taken the
broker's place, and all is forgotten once more.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from math import inf
from typing import NamedTuple

from reconciler.clock import Clock

#: Least seconds between two questions for an end, per group and half queue of a broker. The last _ENDS_MAX ends are
#: kept.
_ENDS_EVERY_SECONDS = 5.0
_ENDS_MAX = 64
_GROUPS_MAX = 10_000
#: A broker that reports lower ends for longer than this was built again.
_LESS_SECONDS_MAX = 600.0


class Absence(NamedTuple):
    """The looks of a process without a producer, since the last look that found one."""

    seconds: float
    #: (seconds since the look, end of the half queue after the look), the oldest first.
    half_queue_ends: tuple[tuple[float, int], ...]


class AbsentProducers:
    """The absences of the _GROUPS_MAX groups that were looked at last. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: (broker, group) -> (monotonic seconds of the first look, and of the last one, half topic -> ends).
        self._absences: dict[tuple[str, str], tuple[float, float, dict[str, deque[tuple[float, int]]]]] = {}
        #: (broker, half topic) -> the highest end that the broker reported, or a half showed.
        self._ends: dict[tuple[str, str], int] = {}
        #: (broker, half topic) -> when the broker first and last reported a lower end.
        self._less: dict[tuple[str, str], tuple[float, float]] = {}
        #: (broker, half topic) -> the highest end that was forgotten.
        self._former: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def found(self, broker: str, group: str) -> None:
        """Ends the absence, because a producer is connected, or the broker did not answer."""
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
        """Notes a look without a producer. Asks for the end after the look, and raises the errors of
        `end_of_half_queue`.

        `known_offset`: the offset of a half in the queue. `unlooked_seconds_max`: after a longer time without a look,
        the absence begins again, because a producer may have come and left.
        """
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
                return Absence(0.0, ())  # another thread has found a producer or forgotten the broker meanwhile
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
        """Notes an end below the known end. Returns True if the broker has reported lower ends for too long."""
        since, last = self._less.get((broker, half_topic), (now, now))
        if now - last > unlooked_seconds_max:
            since = now
        self._less[broker, half_topic] = since, now
        return now - since > _LESS_SECONDS_MAX

    def _is_there_again(self, broker: str, half_topic: str, known: int, end: int) -> bool:
        """Returns True if the queue is the former one, perhaps without some of its tail. A new queue that grows to the
        former length looks the same once. The mistake only costs time."""
        former = self._former.get((broker, half_topic))
        return former is not None and (end >= former or (known > 0 and former - end <= end - known))

    def _forget(self, broker: str) -> None:
        """Forgets the broker, so that the next look counts as the first one."""
        for of, known in self._ends.items():
            if of[0] == broker:
                self._former[of] = max(known, self._former.get(of, 0))
        for of_broker in (self._absences, self._ends, self._less):
            for one in [one for one in of_broker if one[0] == broker]:
                del of_broker[one]
