"""What a lease in Redis holds: the token of its holder, a blank, and a number that each renewal changes.

Redis ends a lease by its own wall clock. Set back by an hour, it keeps the lease of a dead process for that hour. So
the others watch the value: unchanged for the length of a lease, by the monotonic clock of the one who watches, its
holder has not renewed it. Releases up to 0.2.0 write the token alone, which never changes: such a lease is waited for.
"""

from __future__ import annotations

import itertools

from reconciler.clock import Clock, Standstill


class LeaseValues:
    """The values of one process, and since when those of others have stood still. Shared by threads."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._numbers = itertools.count(1)
        self._standstill = Standstill(clock)

    def renewed(self, token: str) -> str:
        """A value that the token has never had."""
        return f"{token} {next(self._numbers)}"

    def is_over(self, key: str, value: bytes, *, lease_seconds: float) -> bool:
        """True if the lease of another holder was seen unchanged for its length; to be asked at each look."""
        return b" " in value and self._standstill.seconds(key, value) >= lease_seconds


def is_held_by(token: str, value: bytes | None) -> bool:
    """True if the value is one of the token's, of this release or an older one."""
    return value is not None and value.split(b" ", 1)[0] == token.encode()
