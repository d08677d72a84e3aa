"""Slows down guesses at passwords, by origin and by guessed user, in limited memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.clock import Clock

#: Maximum number of counted texts. Above this number, the entry whose last failure is oldest is forgotten.
COUNTED_MAX = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Number of failures that are free, because people mistype. After each pause, one failure is forgotten."""

    failures: int
    #: Pause before the next attempt after further failures.
    pause_seconds: float


#: Bound for one user from one address, or on one known device.
OF_ONE_PLACE = Bound(failures=5, pause_seconds=60.0)
#: Bound for one address, which many people may share.
OF_AN_ADDRESS = Bound(failures=20, pause_seconds=10.0)
#: Bound for one user from all other devices together. Four addresses that guess at full speed do not reach it.
OF_A_USER = Bound(failures=40, pause_seconds=15.0)


class LoginThrottle:
    """Counts failed attempts by any text, such as a user's name or an address. Threads share this object."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: Counted text -> time at which all its failures are forgotten.
        self._forgotten_at: OrderedDict[str, float] = OrderedDict()

    def attempt(self, counted: Mapping[str, Bound]) -> float:
        """Returns 0 if the attempt may begin. The attempt counts as failed until `take_back`, so that a hundred
        attempts at once count as a hundred.

        Otherwise returns the seconds until the next attempt, at once. A refused attempt is not counted.
        """
        now = self._clock.monotonic_seconds()
        with self._lock:
            former = {one: max(self._forgotten_at.get(one, now), now) for one in counted}
            waits = (former[one] - now - (of.failures - 1) * of.pause_seconds for one, of in counted.items())
            wait = max(waits, default=0.0)
            if wait > 0:
                return wait
            for one, of in counted.items():
                self._forgotten_at[one] = former[one] + of.pause_seconds
                self._forgotten_at.move_to_end(one)
            while len(self._forgotten_at) > COUNTED_MAX:
                self._forgotten_at.popitem(last=False)
        return 0.0

    def take_back(self, counted: Mapping[str, Bound]) -> None:
        """Takes back an attempt. Earlier failures stay, so that a guesser cannot erase them by a login with an own
        account."""
        with self._lock:
            for one, of in counted.items():
                if one in self._forgotten_at:
                    self._forgotten_at[one] -= of.pause_seconds
