"""What people did by hand: who, what, and what came of it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from reconciler.sql.migrations.column_types import KEY, NAME, OPTIONS, SHORT, TEXT

revision = "0004_operator_action"
down_revision = "0003_broker"
branch_labels = None
depends_on = None

TABLE = "reconciler_operator_action"


def upgrade() -> None:
    """Makes the table; what was done before is not in it."""
    op.create_table(
        TABLE,
        sa.Column("action_id", KEY, nullable=False, comment="Random."),
        sa.Column("environment", NAME, nullable=False, comment="Environment."),
        sa.Column("by", NAME, nullable=False, comment="User."),
        sa.Column("command", SHORT, nullable=False, comment="hold, resume, repair, dismiss or rebuild."),
        sa.Column("topic", NAME, nullable=True, comment="Business topic; NULL: of all."),
        sa.Column("consumer_group", NAME, nullable=True, comment="The group; NULL: of all."),
        sa.Column("unique_key", KEY, nullable=True, comment="UNIQ_KEY, where it was done to one message."),
        sa.Column("detail", TEXT, nullable=False, comment="The reason or options that were given."),
        sa.Column("started_at_ms", sa.BigInteger(), nullable=False, comment="Just before it was done."),
        sa.Column("ended_at_ms", sa.BigInteger(), nullable=True, comment="NULL: under way, or the process died in it."),
        sa.Column("result", TEXT, nullable=True, comment="What was done, or the error."),
        sa.PrimaryKeyConstraint("action_id"),
        comment=(
            "One row an action that a person took by hand, written before it is done: by whom, what, and its result."
        ),
        **OPTIONS,
    )
    op.create_index("ix_reconciler_operator_action_environment_started", TABLE, ["environment", "started_at_ms"])
    op.create_index("ix_reconciler_operator_action_unique", TABLE, ["unique_key"])


def downgrade() -> None:
    """Drops it."""
    op.drop_table(TABLE)
