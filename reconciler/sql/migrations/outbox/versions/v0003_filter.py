"""The tags that rows were settled by: a group that takes more of them has rows judged again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from reconciler.sql.migrations.column_types import NAME, OPTIONS, TEXT

revision = "0003_filter"
down_revision = "0002_sign_of_life"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes the table; the next sweep fills it, and older releases do not know it."""
    op.create_table(
        "reconciler_outbox_filter",
        sa.Column("producer_group", NAME, nullable=False, comment="Producer group of the rows."),
        sa.Column("topic", NAME, nullable=False, comment="Business topic."),
        sa.Column("consumer_group", NAME, nullable=False, comment="The group."),
        sa.Column("tags", TEXT, nullable=False, comment='Sorted list, or "*" for every message.'),
        sa.Column(
            "version",
            sa.Integer(),
            nullable=False,
            autoincrement=False,
            comment="Grows with every change: a sweeper replaces only the version that it has read.",
        ),
        sa.PrimaryKeyConstraint("producer_group", "topic", "consumer_group"),
        comment=(
            "Tags whose rows were settled only after the group's effect: for its other tags SETTLED proves no effect."
        ),
        **OPTIONS,
    )


def downgrade() -> None:
    """Drops it."""
    op.drop_table("reconciler_outbox_filter")
