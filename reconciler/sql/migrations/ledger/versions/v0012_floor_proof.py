"""A column for the proof of a floor: the last record of its queue before the floor's offset.

The column is NULL for floors of older releases, and if an announcement consumer may not store proofs.
"""

from __future__ import annotations

from reconciler.sql.migrations.column_types import TEXT
from reconciler.sql.migrations.steps import add_columns, nullable

revision = "0012_floor_proof"
down_revision = "0011_notice"
branch_labels = None
depends_on = None

TABLE = "reconciler_floor"


def upgrade() -> None:
    """Adds the column, which older releases ignore."""
    add_columns(
        TABLE,
        nullable(
            "proof",
            TEXT,
            "Next offset, then queue offset, store time, commit-log offset and unique key of the last record "
            "before it: what the queue must still have for the floor to count.",
        ),
    )
