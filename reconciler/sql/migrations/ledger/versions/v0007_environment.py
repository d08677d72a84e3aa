"""Which cluster an environment is used for: two clusters with one environment would mix their rows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from reconciler.sql.migrations.column_types import NAME, OPTIONS, TEXT

revision = "0007_environment"
down_revision = "0006_job"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes the table; each `run` keeps the row of its environment."""
    op.create_table(
        "reconciler_environment",
        sa.Column("environment", NAME, nullable=False, comment="Environment."),
        sa.Column(
            "brokers", TEXT, nullable=False, comment='List of "cluster/broker at address": what that process knows.'
        ),
        sa.Column("by", NAME, nullable=False, comment="Process that wrote the row last."),
        sa.Column(
            "renewed_at_ms",
            sa.BigInteger(),
            nullable=False,
            comment="When it did; 30 s later the row says nothing any more.",
        ),
        sa.PrimaryKeyConstraint("environment"),
        comment=(
            "One row an environment: the cluster that its processes run with. Processes of another cluster are refused."
        ),
        **OPTIONS,
    )


def downgrade() -> None:
    """Drops it."""
    op.drop_table("reconciler_environment")
