"""The consumers' inbox of 0.2.0, which every upgrade starts from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from reconciler.sql.migrations.column_types import DIGEST, KEY, NAME, OPTIONS, SHORT

revision = "0001_inbox"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Creates the table."""
    op.create_table(
        "reconciler_inbox",
        sa.Column("consumer_group", NAME, nullable=False, comment="The group."),
        sa.Column("unique_key", KEY, nullable=False, comment="UNIQ_KEY."),
        sa.Column("topic", NAME, nullable=False, comment="Business topic."),
        sa.Column("dedupe_key", NAME, nullable=True, comment="Business id, where the handler dedupes by it."),
        sa.Column(
            "duplicate_of", KEY, nullable=True, comment="Unique key with the same dedupe_key that has the effect."
        ),
        sa.Column("content_digest", DIGEST, nullable=True, comment="Of the message as consumed; NULL: not checked."),
        sa.Column("source", SHORT, nullable=False, comment="consumer, or hand-over."),
        sa.Column("applied_at_ms", sa.BigInteger(), nullable=False, comment="When the row was written."),
        sa.PrimaryKeyConstraint("consumer_group", "unique_key"),
        comment="One row an effect, written in the transaction of the effect: the evidence of the consumption.",
        **OPTIONS,
    )
    op.create_index("ix_reconciler_inbox_consumer_applied", "reconciler_inbox", ["consumer_group", "applied_at_ms"])
    op.create_index(
        "uq_reconciler_inbox_consumer_dedupe", "reconciler_inbox", ["consumer_group", "dedupe_key"], unique=True
    )
