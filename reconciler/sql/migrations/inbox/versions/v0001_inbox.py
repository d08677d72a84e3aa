"""The consumers' inbox of 0.2.0, from which every upgrade starts."""

from __future__ import annotations

from alembic import op

from reconciler.sql.migrations.column_types import BIGINT, DIGEST, KEY, NAME, SHORT
from reconciler.sql.migrations.steps import column, create_table, nullable

revision = "0001_inbox"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Creates the table."""
    create_table(
        "reconciler_inbox",
        column("consumer_group", NAME, "The group."),
        column("unique_key", KEY, "UNIQ_KEY."),
        column("topic", NAME, "Business topic."),
        nullable("dedupe_key", NAME, "Business id, where the handler dedupes by it."),
        nullable("duplicate_of", KEY, "Unique key with the same dedupe_key that has the effect."),
        nullable("content_digest", DIGEST, "Of the message as consumed; NULL: not checked."),
        column("source", SHORT, "consumer, or hand-over."),
        column("applied_at_ms", BIGINT, "When the row was written."),
        key=("consumer_group", "unique_key"),
        comment="One row an effect, written in the transaction of the effect: the evidence of the consumption.",
    )
    op.create_index("ix_reconciler_inbox_consumer_applied", "reconciler_inbox", ["consumer_group", "applied_at_ms"])
    op.create_index(
        "uq_reconciler_inbox_consumer_dedupe", "reconciler_inbox", ["consumer_group", "dedupe_key"], unique=True
    )
