"""When a closed candidate's databases are asked once more: what they say now may take its verdict back.

NULL for rows that were closed before: they stay as they are, until their keys are announced again.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005_ask_again"
down_revision = "0004_operator_action"
branch_labels = None
depends_on = None

TABLE = "reconciler_candidate"
INDEX = "ix_reconciler_candidate_environment_topic_consumer_ask"


def upgrade() -> None:
    """Adds the column and its index; an older release neither writes nor reads it."""
    op.add_column(
        TABLE,
        sa.Column(
            "ask_again_at_ms",
            sa.BigInteger(),
            nullable=True,
            comment="After this the databases are asked about a closed row again; NULL: they are not.",
        ),
    )
    has_value = sa.text("ask_again_at_ms IS NOT NULL")
    columns = ["environment", "topic", "consumer_group", "ask_again_at_ms"]
    op.create_index(INDEX, TABLE, columns, postgresql_where=has_value, sqlite_where=has_value)


def downgrade() -> None:
    """Drops both."""
    op.drop_index(INDEX, TABLE)
    op.drop_column(TABLE, "ask_again_at_ms")
