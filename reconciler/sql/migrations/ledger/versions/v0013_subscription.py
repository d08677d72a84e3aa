"""A table for the time since which a subscription answers for messages. A new group does not get older messages."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from reconciler.sql.migrations.column_types import NAME, OPTIONS

revision = "0013_subscription"
down_revision = "0012_floor_proof"
branch_labels = None
depends_on = None

TABLE = "reconciler_subscription"


def upgrade() -> None:
    """Creates the table. The next round writes a row for each subscription. Older releases do not know the table."""
    op.create_table(
        TABLE,
        sa.Column("environment", NAME, nullable=False, comment="Environment."),
        sa.Column("topic", NAME, nullable=False, comment="Business topic."),
        sa.Column("consumer_group", NAME, nullable=False, comment="The group."),
        sa.Column(
            "since_ms",
            sa.BigInteger(),
            nullable=True,
            comment="Its first round, by the clock that was behind the others; NULL: it had rounds before this was "
            "kept, and answers for every message.",
        ),
        sa.PrimaryKeyConstraint("environment", "topic", "consumer_group"),
        comment=(
            "One row a subscription: since when it answers for messages. Written before its first round, never changed."
        ),
        if_not_exists=True,  # MySQL and MariaDB commit it before the revision
        **OPTIONS,
    )
