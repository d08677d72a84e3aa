"""Brokers that were seen in the routes of topics: one that is away may hold a copy, also after a restart."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from reconciler.sql.migrations.column_types import NAME, OPTIONS

revision = "0003_broker"
down_revision = "0002_first_send"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes the table; the next round of each topic fills it."""
    op.create_table(
        "reconciler_broker",
        sa.Column("environment", NAME, nullable=False, comment="Environment."),
        sa.Column("topic", NAME, nullable=False, comment="Business topic."),
        sa.Column("broker", NAME, nullable=False, comment="Broker name."),
        sa.Column(
            "gone_since_ms",
            sa.BigInteger(),
            nullable=True,
            comment="First round that missed it in the route; NULL: it is there.",
        ),
        sa.PrimaryKeyConstraint("environment", "topic", "broker"),
        comment="One row a broker that was seen in a topic's route: while it is away, nothing of the topic is ABSENT.",
        **OPTIONS,
    )


def downgrade() -> None:
    """Drops it."""
    op.drop_table("reconciler_broker")
