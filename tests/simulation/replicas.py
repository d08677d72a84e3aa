"""From where a database is read as evidence: from the primary, or from a replica that is behind or has stopped."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.sql.witness_database import DatabaseRole
from tests.simulation.kernel import Kernel

PRIMARY = DatabaseRole(is_primary=True)
NEVER_STOOD_STILL = float("inf")


class Reading:
    """What readers see of one database; its own service always sees the primary."""

    def __init__(self, kernel: Kernel, kind: str) -> None:
        self._kernel = kernel
        self._kind = kind
        #: When the row of a key was committed.
        self._committed: dict[str, float] = {}
        #: When sweeps showed life, and the time that they wrote.
        self._lives: list[tuple[float, int]] = []
        self.is_from_replica = False
        self.lag_seconds = 0.0
        #: Since when the replica stands still.
        self.stands_since = NEVER_STOOD_STILL
        #: Since when a replica that looks like a primary has stopped replicating.
        self._believed_since = NEVER_STOOD_STILL
        #: Readers look into another environment's outbox, which has none of the rows.
        self.leads_elsewhere = False
        #: Keys that it has not shown.
        self.withheld: set[str] = set()

    def committed(self, keys: Iterable[str]) -> None:
        """Rows of keys have been committed on the primary."""
        self._committed.update(dict.fromkeys(keys, self._kernel.now))

    def swept(self, at_ms: int) -> None:
        """A sweep has shown life on the primary."""
        self._lives.append((self._kernel.now, at_ms))

    def believe_replica(self, *, for_seconds: float) -> None:
        """A replica that has stopped is taken for the primary, for a while."""
        self._believed_since = min(self._believed_since, self._kernel.now)
        self._kernel.after(for_seconds, self.believe_nobody)

    def believe_nobody(self) -> None:
        """Nothing but the primary passes for it."""
        self._believed_since = NEVER_STOOD_STILL

    def has(self, key: str) -> bool:
        """True if the row of a key, which the primary has, is shown."""
        committed_at = self._committed[key]
        if self.leads_elsewhere:
            self._kernel.saw("outbox without the row was read", key[-4:])
            self.withheld.add(key)
            return False
        if committed_at > self._believed_since:
            self._kernel.saw(f"{self._kind} row not shown yet", key[-4:])
            self.withheld.add(key)
            return False
        if not self.is_from_replica or committed_at <= self._seen_until():
            return True
        self._kernel.saw(f"{self._kind} replica behind a read", key[-4:])
        return False

    def role(self) -> DatabaseRole:
        """What the server that is read says of itself."""
        if not self.is_from_replica or self._believed_since < NEVER_STOOD_STILL:
            return PRIMARY
        until = self._seen_until()
        return DatabaseRole(
            is_primary=False, swept_at_ms=next((at_ms for at, at_ms in reversed(self._lives) if at <= until), None)
        )

    def _seen_until(self) -> float:
        return min(self._kernel.now - self.lag_seconds, self.stands_since)
