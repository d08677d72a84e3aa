"""Columns for the cause that keeps a key UNKNOWN, and the index by which such keys are found and counted.

The columns are NULL in rows that an older release inserts. Older releases do not change values that exist.
"""

from __future__ import annotations

import sqlalchemy as sa

from reconciler.sql.migrations.column_types import BIGINT, SHORT
from reconciler.sql.migrations.steps import add_columns, build_index, nullable

revision = "0014_undecided"
down_revision = "0013_subscription"
branch_labels = None
depends_on = None

_TABLE = "reconciler_candidate"
_INDEX = "ix_reconciler_candidate_undecided"
_COLUMNS = ("environment", "topic", "consumer_group", "undecided_by", "first_seen_ms", "undecided_since_ms")


def upgrade() -> None:
    """Adds both columns and the index, which older releases ignore."""
    add_columns(
        _TABLE,
        nullable(
            "undecided_by",
            SHORT,
            "What keeps an UNKNOWN key from a verdict; NULL: nothing but time, or an older release wrote the row.",
        ),
        nullable("undecided_since_ms", BIGINT, "Redis TIME of the first look that it kept from a verdict."),
    )
    build_index(_INDEX, _TABLE, _COLUMNS, where=sa.text("undecided_since_ms IS NOT NULL"))
