"""Hand-over rows of one group, on the ledger's table: what a replay worker claims, runs and finishes.

Only rows whose scope is the group and only claims are touched here; the daemon inserts the rows, withdraws those whose
effect came another way (under a claim, like a worker), and owns scope '*'.
All times are database time; every change after the claim is made under its token.
"""

from __future__ import annotations

import sqlalchemy as sa

from reconciler.contract.tables import Rung
from reconciler.sql.repair_rows import RepairRows
from reconciler.sql.tables import repair


class HandOverRows(RepairRows):
    """The worker's part of ports.Repairs and ports.HandOvers. Shared by threads. Raises DatabaseAway."""

    def _is_due_and_free(self, now: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
        return super()._is_due_and_free(now) & (repair.c.rung == Rung.HAND_OVER.value)
