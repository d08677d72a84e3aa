"""The one place that reads time. Everything else takes a Clock, so a test or the simulator can set the time."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, Protocol

from reconciler.errors import warn_of_former_paths


def _suspended_too() -> int | None:
    """Returns the clock of this machine that counts suspended time. Returns None if the machine has no such clock, or
    if a sandbox refuses it."""
    clock: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    try:
        return clock if clock is None or time.clock_gettime(clock) else None
    except OSError:
        return None


_SUSPENDED_TOO = _suspended_too()


def utc_text(at_ms: int, *, timespec: Literal["seconds", "milliseconds"] = "seconds") -> str:
    """Returns a time as people read it: RFC 3339, UTC. The time is rounded down, so that "until" never promises too
    much.

    A time outside of the calendar, as a damaged row may have, is shown as its number.
    """
    try:
        moment = datetime.fromtimestamp(at_ms // 1000, tz=UTC).replace(microsecond=at_ms % 1000 * 1000)
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"
    return moment.isoformat(timespec=timespec).replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between attempts. Each pause is twice as long as the pause before, up to the longest pause.

    The value has neither a counter nor a clock. The caller says how often it has failed since its last success.
    """

    first_seconds: float
    longest_seconds: float

    def pause_seconds(self, doublings: int) -> float:
        """Returns the first pause, doubled `doublings` times."""
        return min(self.first_seconds * 2.0 ** min(doublings, 32), self.longest_seconds)

    def jittered_seconds(self, doublings: int, dice: random.Random) -> float:
        """Returns the pause, shortened at random by up to a half. So processes that failed together do not come back
        together."""
        return self.pause_seconds(doublings) * dice.uniform(0.5, 1.0)


#: The pauses between two lines of the log about one trouble.
REMINDER_PAUSES = Backoff(first_seconds=60.0, longest_seconds=600.0)


class Reminders:
    """Says when a trouble that lasts is logged: at once, then after pauses that double. One thread at a time."""

    def __init__(self, clock: Clock, pauses: Backoff = REMINDER_PAUSES) -> None:
        self._clock = clock
        self._pauses = pauses
        #: Trouble -> number of its lines, and the time of its next line in monotonic seconds.
        self._lines: dict[Hashable, tuple[int, float]] = {}

    def is_due(self, trouble: Hashable) -> bool:
        """Returns True if the trouble is to be logged now. The next line is then one pause away."""
        now = self._clock.monotonic_seconds()
        lines, due_at = self._lines.get(trouble, (0, now))
        if now < due_at:
            return False
        self._lines[trouble] = (lines + 1, now + self._pauses.pause_seconds(lines))
        return True

    def end(self) -> None:
        """Forgets every trouble, because all of them are over."""
        self._lines.clear()


class Clock(Protocol):
    """Wall time for stamps, monotonic time for intervals, and waiting."""

    def now_ms(self) -> int:
        """Milliseconds of the wall clock since 1970-01-01 UTC. The wall clock may jump."""
        ...

    def monotonic_seconds(self) -> float:
        """Seconds that never go back. Only their differences mean anything."""
        ...

    def sleep(self, seconds: float) -> None:
        """Waits for the given time. With zero or less, returns at once."""
        ...

    def wait(self, event: threading.Event, timeout_seconds: float) -> bool:
        """Waits until the event is set or the time has passed. Returns True if the event is set."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Wall clock in milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic_seconds(self) -> float:
        """The machine's monotonic clock. On Linux, this clock goes on while the machine is suspended, because claims
        and leases expire in this time, too."""
        return time.monotonic() if _SUSPENDED_TOO is None else time.clock_gettime(_SUSPENDED_TOO)

    def sleep(self, seconds: float) -> None:
        """Blocks the calling thread."""
        if seconds > 0:
            time.sleep(seconds)

    def wait(self, event: threading.Event, timeout_seconds: float) -> bool:
        """Blocks the calling thread on the event."""
        return event.wait(max(0.0, timeout_seconds))


class ManualClock:
    """A clock for tests. The time of this clock changes only by advance() and by sleeping. A lock guards it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_seconds = 0.0
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        """The wall time that was set."""
        with self._lock:
            return self._now_ms

    def monotonic_seconds(self) -> float:
        """Seconds advanced so far."""
        with self._lock:
            return self._monotonic_seconds

    def sleep(self, seconds: float) -> None:
        """Advances the clock instead of waiting."""
        self.advance(max(0.0, seconds))

    def wait(self, event: threading.Event, timeout_seconds: float) -> bool:
        """Advances the clock unless the event is already set."""
        if event.is_set():
            return True
        self.advance(max(0.0, timeout_seconds))
        return event.is_set()

    def advance(self, seconds: float) -> None:
        """Moves wall and monotonic time together."""
        with self._lock:
            self._now_ms += round(seconds * 1000)
            self._monotonic_seconds += seconds

    def step_wall(self, seconds: float) -> None:
        """Moves only the wall clock, forwards or backwards, as an NTP step does."""
        with self._lock:
            self._now_ms += round(seconds * 1000)


class Standstill:
    """Measures for how long things have looked the same to this process. The measure is the monotonic clock of this
    process, so steps of wall clocks change nothing.

    For example, a lease was dated by a clock that was later set back, so the lease seems to end late. If this process
    has seen the lease unchanged for the length of a lease, the lease counts as over, because a living owner would have
    renewed it. Thread-safe. The object remembers the THINGS_MAX things that were looked at last.
    """

    THINGS_MAX = 10_000

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._seen: dict[Hashable, tuple[Hashable, float]] = {}
        self._lock = threading.Lock()

    def seconds(self, thing: Hashable, look: Hashable) -> float:
        """Returns the seconds for which the thing has looked like this at each look. Returns 0.0 if the thing is new,
        or looks different from the last look."""
        now = self._clock.monotonic_seconds()
        with self._lock:
            last, since = self._seen.pop(thing, (None, now))
            self._seen[thing] = (look, since if last == look else now)
            if len(self._seen) > self.THINGS_MAX:
                del self._seen[next(iter(self._seen))]
            return now - since if last == look else 0.0


warn_of_former_paths(__name__, {"ManualClock": "reconciler.testing"})
