"""Whether the handler of a row has returned: until then its row is incomplete.

NULL for the rows of older releases and of other languages: they are complete.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from reconciler.sql.migrations.column_types import SHORT

revision = "0002_incomplete"
down_revision = "0001_inbox"
branch_labels = None
depends_on = None

_TABLE = "reconciler_inbox"


def upgrade() -> None:
    """Adds the column; an older release neither writes nor reads it."""
    op.add_column(
        _TABLE,
        sa.Column(
            "incomplete",
            SHORT,
            nullable=True,
            comment="NULL: the effect is whole. Else the mark of the transaction whose handler has not returned.",
        ),
    )


def downgrade() -> None:
    """Drops it: incomplete rows count as complete then."""
    op.drop_column(_TABLE, "incomplete")
