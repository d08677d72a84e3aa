"""Stranded leases: they end later than any present lease could, because the database's clock was set back since.

Such a lease counts as ended once a process has seen it unchanged for the length of a lease, measured by its own
monotonic clock. A living owner would have renewed the lease in that time.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import sqlalchemy as sa

from reconciler.clock import Clock, Standstill
from reconciler.contract.row_rules import wait_ms


class StrandedLeases:
    """The stranded leases of one table, which has the columns token and lease_until_ms. Shared by threads."""

    def __init__(self, table: sa.Table, clock: Clock | None = None) -> None:
        """`clock`: the host's clock."""
        self._token, self._until_ms = table.c.token, table.c.lease_until_ms
        self._standstill = Standstill(clock)

    def among(self, now: sa.ColumnElement[int], *, lease_seconds: float) -> sa.ColumnElement[bool]:
        """Returns a condition for rows with a stranded lease. The condition is NULL for rows without lease_until_ms."""
        return self._until_ms > now + wait_ms(lease_seconds)

    def is_over(self, thing: Hashable, row: sa.Row[*tuple[Any, ...]], *, lease_seconds: float) -> bool:
        """Returns True if the thing's lease has not changed for the length of a lease. Call it whenever the row was
        read."""
        return self._standstill.seconds(thing, (row.token, row.lease_until_ms)) >= lease_seconds

    def as_seen(self, row: sa.Row[*tuple[Any, ...]]) -> sa.ColumnElement[bool]:
        """Returns a condition that is true while the table still has the row's lease."""
        return sa.and_(self._token == row.token, self._until_ms == row.lease_until_ms)
