"""Hand-over rows of one group, on the ledger's tables: what a replay worker claims, runs and finishes.

Only rows whose scope is the group and only claims are touched here; the daemon inserts the rows, withdraws those whose
effect came another way (under a claim, like a worker), and owns scope '*'.
All times are database time; every change after the claim is made under its token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from reconciler.contract.tables import HoldKind, Rung
from reconciler.errors import ConfigurationError, DatabaseAway
from reconciler.sql.engines import reading, shown
from reconciler.sql.hold_rows import active_holds
from reconciler.sql.repair_claims import RepairClaims
from reconciler.sql.rights import is_refused
from reconciler.sql.tables import hold, repair


class HandOverRows(RepairClaims):
    """The worker's part of ports.Repairs, ports.HandOvers and ports.Holds. Shared by threads. Raises DatabaseAway."""

    def active(self, environment: str) -> Mapping[str, Sequence[HoldKind]]:
        """Topic -> kinds that hold it. Raises ConfigurationError where the login may not read them, DatabaseAway."""
        try:
            with reading(self._engine) as connection:
                return active_holds(connection, environment)
        except DatabaseAway as error:
            if not is_refused(error.__cause__):
                raise
            raise ConfigurationError(
                f"{shown(self._engine)}: the login of the replay worker may not read "
                f"{hold.name}, so it cannot know which topics are held, and runs no hand-over: GRANT SELECT ON "
                f"{hold.name}"
            ) from error

    def _may_be_claimed(self) -> sa.ColumnElement[bool]:
        return repair.c.rung == Rung.HAND_OVER.value
