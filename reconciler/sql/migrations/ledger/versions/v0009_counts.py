"""Indexes that candidates and repairs are counted by. They are built beside a daemon that goes on writing."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from reconciler.sql.migrations.index_building import build_index

revision = "0009_counts"
down_revision = "0008_pages"
branch_labels = None
depends_on = None

#: Name, table and columns.
_INDEXES = (
    (
        "ix_reconciler_candidate_count",
        "reconciler_candidate",
        ("environment", "topic", "consumer_group", "state", "verdict", "loss_verdict", "first_seen_ms"),
    ),
    (
        "ix_reconciler_repair_count",
        "reconciler_repair",
        ("environment", "topic", "scope", "state", "rung", "attempts"),
    ),
)


def upgrade() -> None:
    """Makes the indexes; older releases write them without knowing.

    PostgreSQL's hold the rows for which something is true that is true of all: a planner that knows nothing of a table
    takes them for counts, which say so, and never to find a key.
    """
    for name, table, columns in _INDEXES:
        every = sa.text(f"{columns[-1]} >= '-9223372036854775808'::bigint")
        build_index(name, table, columns, where=every if op.get_context().dialect.name == "postgresql" else None)


def downgrade() -> None:
    """Drops them."""
    for name, table, _ in _INDEXES:
        op.drop_index(name, table)
