"""A column for the last time at which all shards of a subscription were seen at rest. Until that time its commits are
accounted for without rounds.

0.2.0 ignores the column, because its `status` only knows rounds.
"""

from __future__ import annotations

from alembic import op

from reconciler.sql.migrations.column_types import TEXT
from reconciler.sql.migrations.steps import add_columns, nullable

revision = "0017_rest"
down_revision = "0016_hold_end"
branch_labels = None
depends_on = None

TABLE = "reconciler_subscription"


def upgrade() -> None:
    """Adds the column, and corrects the table's comment, which said that rows never change."""
    add_columns(
        TABLE,
        nullable(
            "rest",
            TEXT,
            "When all its shards were seen at rest last, and of each the time of its last round and the offsets then; "
            "NULL: never.",
        ),
    )
    if op.get_context().dialect.name != "sqlite":
        doc = "One row a subscription: since when it answers for messages, and when it was seen at rest last."
        op.create_table_comment(TABLE, doc)
