"""Guesses at passwords, slowed down by where they come from and by who is guessed. Bounded memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.clock import Clock

#: The one that failed least recently is forgotten for a new one.
COUNTED_MAX = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """So many failures cost nothing, since people mistype; after each pause one of them is forgotten."""

    failures: int
    #: What somebody who goes on failing waits for the next attempt.
    pause_seconds: float


#: One user from one address, or on one device that has let this user in before.
OF_ONE_PLACE = Bound(failures=5, pause_seconds=60.0)
#: Many people may share an address.
OF_AN_ADDRESS = Bound(failures=20, pause_seconds=10.0)
#: One user from all other devices together: four addresses that guess as fast as they may do not reach it.
OF_A_USER = Bound(failures=40, pause_seconds=15.0)


class LoginThrottle:
    """Shared by threads. What is counted: any text, such as a user's name or an address."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: What is counted -> when all its failures are forgotten.
        self._forgotten_at: OrderedDict[str, float] = OrderedDict()

    def attempt(self, counted: Mapping[str, Bound]) -> float:
        """0: go on, and the attempt counts as failed until `take_back`, so that a hundred at once are not one.

        Else: seconds until the next attempt. Nobody waits here, and one that is refused counts nowhere.
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
        """Takes the attempt back. Failures before it stay: a guesser with a login of its own must not wipe them out."""
        with self._lock:
            for one, of in counted.items():
                if one in self._forgotten_at:
                    self._forgotten_at[one] -= of.pause_seconds
