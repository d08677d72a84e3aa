"""Hand-over rows of one group in the ledger's tables. A replay worker claims, runs and finishes these rows.

Only rows whose scope is the group are claimed and changed here. The daemon inserts the rows and owns scope '*'. The
daemon also withdraws rows whose effect came another way, under a claim as a worker has it. All times are database time.
Every change after the claim is made under the token of the claim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from reconciler.contract.tables import HoldKind, Rung
from reconciler.errors import ConfigurationError, DatabaseAway
from reconciler.sql.driver_errors import shown
from reconciler.sql.engines import reading
from reconciler.sql.hold_rows import active_holds
from reconciler.sql.repair_claims import RepairClaims
from reconciler.sql.rights import lacks_right
from reconciler.sql.tables import hold, repair


class HandOverRows(RepairClaims):
    """The calls of ports.Repairs, ports.HandOvers and ports.Holds that a worker needs. Thread-safe. Every call can
    raise DatabaseAway."""

    def active(self, environment: str) -> Mapping[str, Sequence[HoldKind]]:
        """Returns each held topic with the kinds of its holds. Raises ConfigurationError if the login may not read
        holds. Can also raise DatabaseAway."""
        try:
            with reading(self._engine) as connection:
                return active_holds(connection, environment)
        except DatabaseAway as error:
            if not lacks_right(error):
                raise
            raise ConfigurationError(
                f"{shown(self._engine)}: the login of the replay worker may not read "
                f"{hold.name}, so it cannot know which topics are held, and runs no hand-over: GRANT SELECT ON "
                f"{hold.name}"
            ) from error

    def _may_be_claimed(self) -> sa.ColumnElement[bool]:
        return repair.c.rung == Rung.HAND_OVER.value
