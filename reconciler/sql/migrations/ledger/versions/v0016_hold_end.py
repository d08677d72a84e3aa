"""A column for the end of a person's hold, or for code and fields of why the circuit breaker opened.

0.2.0 ignores the column, so for 0.2.0 a hold continues until a person lifts it.
"""

from __future__ import annotations

from reconciler.sql.migrations.column_types import TEXT
from reconciler.sql.migrations.steps import add_columns, nullable

revision = "0016_hold_end"
down_revision = "0015_facts"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the column."""
    add_columns(
        "reconciler_hold",
        nullable(
            "fact", TEXT, "Code and fields of a HOLD's end, or of why the breaker opened, with a digest of the reason."
        ),
    )
