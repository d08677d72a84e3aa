"""The value of a lease in Redis: the token of its holder, a blank, and a number that each renewal changes.

Redis ends a lease by its own wall clock. If that clock is set back by an hour, Redis keeps the lease of a dead process
for that hour. So other processes watch the value: if the value stays unchanged for the length of a lease, measured by
their own monotonic clock, its holder has not renewed it. Releases up to 0.2.0 write only the token, which never
changes. Other processes wait until Redis ends the leases of such releases.
"""

from __future__ import annotations

import itertools

from reconciler.clock import Clock, Standstill


class LeaseValues:
    """Makes the values of one process, and knows for how long the values of other processes have not changed. Shared by
    threads."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._numbers = itertools.count(1)
        self._standstill = Standstill(clock)

    def renewed(self, token: str) -> str:
        """Returns a value that the token has never had."""
        return f"{token} {next(self._numbers)}"

    def is_over(self, key: str, value: bytes, *, lease_seconds: float) -> bool:
        """Returns True if another holder's value stayed the same for the length of a lease. Call it whenever the value
        was read."""
        return b" " in value and self._standstill.seconds(key, value) >= lease_seconds


def is_held_by(token: str, value: bytes | None) -> bool:
    """Returns True if the holder of the value has this token, also if an older release wrote the value."""
    return value is not None and value.split(b" ", 1)[0] == token.encode()
