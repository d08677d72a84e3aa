"""Leases that end later than any present lease could: they were dated before the database's clock was set back.

Such a lease counts as ended once a process has seen it unchanged for the length of a lease, by its own monotonic clock,
because a living owner would have renewed it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import sqlalchemy as sa

from reconciler.clock import Clock, Standstill
from reconciler.contract.row_rules import wait_ms


class StrandedLeases:
    """Such leases of one table with the columns token and lease_until_ms. Shared by threads."""

    def __init__(self, table: sa.Table, clock: Clock | None = None) -> None:
        """`clock` is the host's."""
        self._token, self._until_ms = table.c.token, table.c.lease_until_ms
        self._standstill = Standstill(clock)

    def among(self, now: sa.ColumnElement[int], *, lease_seconds: float) -> sa.ColumnElement[bool]:
        """Returns a condition for rows with such a lease; it is NULL for rows without a time."""
        return self._until_ms > now + wait_ms(lease_seconds)

    def is_over(self, thing: Hashable, row: sa.Row[*tuple[Any, ...]], *, lease_seconds: float) -> bool:
        """Returns True if the lease of that thing has looked as in the row for the length of a lease; call it at each
        look."""
        return self._standstill.seconds(thing, (row.token, row.lease_until_ms)) >= lease_seconds

    def as_seen(self, row: sa.Row[*tuple[Any, ...]]) -> sa.ColumnElement[bool]:
        """Returns a condition: the lease is still the one in the row."""
        return sa.and_(self._token == row.token, self._until_ms == row.lease_until_ms)
