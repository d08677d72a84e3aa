"""The value of a lease in Redis: the token of its holder, a blank, and a number that each renewal changes.

Redis ends a lease by its own wall clock. If that clock is set back by an hour, Redis keeps the lease of a dead process
for that hour. So other processes watch the value: if it stays unchanged for the length of a lease, by their own
monotonic clock, its holder has not renewed it. Releases up to 0.2.0 write only the token, which never changes: their
leases are awaited until Redis ends them.
"""

from __future__ import annotations

import itertools

from reconciler.clock import Clock, Standstill


class LeaseValues:
    """Makes the values of one process, and knows for how long those of others have not changed. Shared by threads."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._numbers = itertools.count(1)
        self._standstill = Standstill(clock)

    def renewed(self, token: str) -> str:
        """Returns a value that the token has never had."""
        return f"{token} {next(self._numbers)}"

    def is_over(self, key: str, value: bytes, *, lease_seconds: float) -> bool:
        """Returns True if another holder's lease was seen unchanged for its length; call it at each look."""
        return b" " in value and self._standstill.seconds(key, value) >= lease_seconds


def is_held_by(token: str, value: bytes | None) -> bool:
    """Returns True if the value is of this token, written by this release or an older one."""
    return value is not None and value.split(b" ", 1)[0] == token.encode()
