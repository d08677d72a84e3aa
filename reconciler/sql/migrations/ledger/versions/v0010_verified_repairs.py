"""An index of repairs by the time that they were verified. It is built beside a daemon that goes on writing."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from reconciler.sql.migrations.index_building import build_index

revision = "0010_verified_repairs"
down_revision = "0009_counts"
branch_labels = None
depends_on = None

_INDEX = "ix_reconciler_repair_environment_done"


def upgrade() -> None:
    """Makes the index; older releases write it without knowing."""
    is_done = sa.text("done_at_ms IS NOT NULL")
    build_index(_INDEX, "reconciler_repair", ("environment", "done_at_ms"), where=is_done)


def downgrade() -> None:
    """Drops it."""
    op.drop_index(_INDEX, "reconciler_repair")
