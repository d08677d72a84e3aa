"""A column that marks a row as incomplete until the row's handler has returned.

The column is NULL in rows of older releases and of other languages, which are complete.
"""

from __future__ import annotations

from reconciler.sql.migrations.column_types import SHORT
from reconciler.sql.migrations.steps import add_columns, nullable

revision = "0002_incomplete"
down_revision = "0001_inbox"
branch_labels = None
depends_on = None

_TABLE = "reconciler_inbox"


def upgrade() -> None:
    """Adds the column, which older releases ignore."""
    add_columns(
        _TABLE,
        nullable(
            "incomplete",
            SHORT,
            "NULL: the effect is whole. Else the mark of the transaction whose handler has not returned.",
        ),
    )
