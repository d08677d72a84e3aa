"""Guesses at passwords, slowed down by who is guessed and by where the guesses come from. Bounded memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from reconciler.clock import Backoff, Clock

#: Failures that cost nothing: people mistype.
FREE_FAILURES = 5
#: After each further failure; the longest is short, since by guessing anybody could lock a user out.
PAUSE = Backoff(first_seconds=2.0, longest_seconds=60.0)
#: Without a failure for so long, all is forgotten.
FORGOTTEN_SECONDS = 900.0
#: The one that failed least recently is forgotten for a new one.
COUNTED_MAX = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failures:
    count: int
    last_at_seconds: float

    @property
    def free_at_seconds(self) -> float:
        if self.count < FREE_FAILURES:
            return self.last_at_seconds
        return self.last_at_seconds + PAUSE.pause_seconds(self.count - FREE_FAILURES)


class LoginThrottle:
    """Shared by threads. What is counted: any text, such as a user's name or an address."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: OrderedDict[str, _Failures] = OrderedDict()

    def attempt(self, counted: Sequence[str]) -> float:
        """0: go on, and the attempt counts as failed until `take_back`, so that a hundred at once are not one.

        Else: seconds until the next attempt.
        """
        now = self._clock.monotonic_seconds()
        with self._lock:
            former = {one: self._recent(one, now) for one in counted}
            wait = max((found.free_at_seconds - now for found in former.values() if found is not None), default=0.0)
            if wait > 0:
                return wait
            for one, found in former.items():
                self._failures.pop(one, None)
                self._failures[one] = _Failures(count=1 + (found.count if found else 0), last_at_seconds=now)
            while len(self._failures) > COUNTED_MAX:
                self._failures.popitem(last=False)
        return 0.0

    def take_back(self, counted: Sequence[str]) -> None:
        """Takes the attempt back. Failures before it stay: a guesser with a login of its own must not wipe them out."""
        with self._lock:
            for one in counted:
                found = self._failures.pop(one, None)
                if found is not None and found.count > 1:
                    self._failures[one] = replace(found, count=found.count - 1)

    def _recent(self, one: str, now: float) -> _Failures | None:
        found = self._failures.get(one)
        return None if found is None or now - found.last_at_seconds >= FORGOTTEN_SECONDS else found
