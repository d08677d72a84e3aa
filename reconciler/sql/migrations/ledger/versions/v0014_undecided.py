"""The cause that keeps a key UNKNOWN, beside its evidence, and the index by which such keys are found and counted.

NULL for rows that an older release beside this one inserts; it does not change existing values.
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
    """Adds both columns and the index; an older release neither writes nor reads them."""
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
