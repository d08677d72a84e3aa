"""Finds the messages of a business id: an index that is built beside running producers."""

from __future__ import annotations

from alembic import op

from reconciler.sql.migrations.index_building import build_index

revision = "0004_business_id"
down_revision = "0003_filter"
branch_labels = None
depends_on = None

TABLE = "reconciler_outbox"
INDEX = "ix_reconciler_outbox_business_created"


def upgrade() -> None:
    """Makes the index; older releases write it without knowing."""
    build_index(INDEX, TABLE, ["business_id", "created_at_ms"])


def downgrade() -> None:
    """Drops it."""
    op.drop_index(INDEX, TABLE)
