"""Asks, once for all subscriptions of a process, whether an outage is open."""

from __future__ import annotations

import threading

from reconciler.clock import Clock
from reconciler.policy.ports.announcing import AnnouncementLedger

OUTAGE_CHECK_SECONDS = 1.0


class OutageWatch:
    """The open outage of an environment. Thread-safe. Its calls can raise DatabaseAway.

    One thread asks. Meanwhile, other threads use the last answer if it is young. Without a young answer, each thread
    asks.
    """

    def __init__(self, ledger: AnnouncementLedger, environment: str, *, clock: Clock) -> None:
        self._ledger = ledger
        self._environment = environment
        self._clock = clock
        self._lock = threading.Lock()
        #: The monotonic second at which the last answer was asked for. None: no answer counts.
        self._answered_at: float | None = None
        self._asked_at = float("-inf")
        #: Number of outages that this process opened.
        self._opened = 0
        #: Number of answers that reported an open outage, and the reason in the last answer. None: the last answer
        #: reported no outage.
        self._seen: tuple[int, str | None] = (0, None)

    def seen(self) -> tuple[int, str | None]:
        """Returns two values: the number of answers that reported an open outage, and the reason of the open outage.
        From the number, a caller sees whether it missed an outage."""
        now = self._clock.monotonic_seconds()
        with self._lock:
            age = None if self._answered_at is None else now - self._answered_at
            is_asked = now - self._asked_at < OUTAGE_CHECK_SECONDS
            if age is not None and (age < OUTAGE_CHECK_SECONDS or (is_asked and age < 2 * OUTAGE_CHECK_SECONDS)):
                return self._seen
            self._asked_at, opened = now, self._opened
        reason = self._ledger.open_outage_reason(self._environment)
        with self._lock:
            # Otherwise, the answer may be older than the outage.
            self._answered_at = now if opened == self._opened else None
            self._seen = (self._seen[0] + int(reason is not None), reason)
            return self._seen

    def ask_again(self) -> None:
        """Makes the last answer invalid, because an outage was opened."""
        with self._lock:
            self._opened += 1
            self._answered_at = None
