"""A table of the halves of topics with a commit query, in which siblings are found: halves with the same business key.

Older releases do not know the table. Without the table, a business row proves no loss.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from reconciler.sql.migrations.column_types import BIGINT, DIGEST, KEY, NAME, OPTIONS
from reconciler.sql.migrations.steps import build_index, column, nullable

revision = "0018_half"
down_revision = "0017_rest"
branch_labels = None
depends_on = None

TABLE = "reconciler_half"


def upgrade() -> None:
    """Creates the table with its indexes. Look-ups write its rows."""
    op.create_table(
        TABLE,
        column("environment", NAME, "Environment."),
        column("topic", NAME, "Business topic."),
        column("unique_key", KEY, "Unique key."),
        column("broker", NAME, "Broker that stored it."),
        nullable("key_digest", DIGEST, "SHA-256 of the business's key; NULL: the half does not give it."),
        nullable("tag_digest", DIGEST, "SHA-256 of its tag; NULL: it has none."),
        column("stored_at_ms", BIGINT, "When it was stored first, by the broker's clock."),
        sa.PrimaryKeyConstraint("environment", "topic", "unique_key", "broker"),
        comment="Halves of topics whose commits a query proves, as they were seen: which share a business key.",
        if_not_exists=True,  # MySQL and MariaDB commit it before the revision
        **OPTIONS,
    )
    build_index("ix_reconciler_half_environment_topic_key", TABLE, ["environment", "topic", "key_digest"])
    build_index("ix_reconciler_half_environment_stored", TABLE, ["environment", "stored_at_ms"])
