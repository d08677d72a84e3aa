"""Asks once for all subscriptions of a process whether an outage is open."""

from __future__ import annotations

import threading

from reconciler.clock import Clock
from reconciler.policy.ports.announcing import AnnouncementLedger

OUTAGE_CHECK_SECONDS = 1.0


class OutageWatch:
    """The open outage of an environment. Shared by threads. Raises DatabaseAway.

    One thread asks, while the others use the last answer if it is young; without a young answer, each asks.
    """

    def __init__(self, ledger: AnnouncementLedger, environment: str, *, clock: Clock) -> None:
        self._ledger = ledger
        self._environment = environment
        self._clock = clock
        self._lock = threading.Lock()
        #: When the last answer was asked for; None: no answer counts.
        self._answered_at: float | None = None
        self._asked_at = float("-inf")
        #: How many outages this process opened.
        self._opened = 0
        #: How many answers reported an open outage, and what the last answer reports.
        self._seen: tuple[int, str | None] = (0, None)

    def seen(self) -> tuple[int, str | None]:
        """Returns how many answers reported an open outage, which a caller at rest may have missed, and the reason of
        one."""
        now = self._clock.monotonic_seconds()
        with self._lock:
            age = None if self._answered_at is None else now - self._answered_at
            is_asked = now - self._asked_at < OUTAGE_CHECK_SECONDS
            if age is not None and (age < OUTAGE_CHECK_SECONDS or (is_asked and age < 2 * OUTAGE_CHECK_SECONDS)):
                return self._seen
            self._asked_at, opened = now, self._opened
        reason = self._ledger.open_outage_reason(self._environment)
        with self._lock:
            # otherwise the answer may be older than the outage
            self._answered_at = now if opened == self._opened else None
            self._seen = (self._seen[0] + int(reason is not None), reason)
            return self._seen

    def ask_again(self) -> None:
        """Makes the last answer invalid, because an outage was opened."""
        with self._lock:
            self._opened += 1
            self._answered_at = None
