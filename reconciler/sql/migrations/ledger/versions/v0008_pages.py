"""Indexes for pages of listings, the newest row first. They are built beside a daemon that goes on writing."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from reconciler.sql.migrations.index_building import build_index

revision = "0008_pages"
down_revision = "0007_environment"
branch_labels = None
depends_on = None

_REST = {
    "candidate": ("first_seen_ms", "topic", "consumer_group", "unique_key"),
    "repair": ("created_at_ms", "topic", "scope", "unique_key"),
    "quarantine": ("seen_at_ms", "unique_key_topic", "broker", "queue_id", "queue_offset"),
}
#: Name, table without its prefix, and the columns before the rest.
_INDEXES = (
    ("ix_reconciler_candidate_page_first", "candidate", ("environment",)),
    ("ix_reconciler_candidate_page_state_first", "candidate", ("environment", "state")),
    ("ix_reconciler_repair_page_created", "repair", ("environment",)),
    ("ix_reconciler_repair_page_state_created", "repair", ("environment", "state")),
    ("ix_reconciler_quarantine_page_seen", "quarantine", ("environment",)),
)
_LOSSES = "ix_reconciler_candidate_page_loss_first"


def upgrade() -> None:
    """Makes the indexes; older releases write them without knowing."""
    for name, table, first in _INDEXES:
        build_index(name, f"reconciler_{table}", [*first, *_REST[table]])
    if _has_partial_indexes():
        is_loss = sa.text("loss_verdict IS NOT NULL")
        build_index(_LOSSES, "reconciler_candidate", ["environment", *_REST["candidate"]], where=is_loss)


def downgrade() -> None:
    """Drops them."""
    if _has_partial_indexes():
        op.drop_index(_LOSSES, "reconciler_candidate")
    for name, table, _ in _INDEXES:
        op.drop_index(name, f"reconciler_{table}")


def _has_partial_indexes() -> bool:
    return op.get_context().dialect.name in ("postgresql", "sqlite")
