"""When a repair was sent first: the audit asks whether that was before the effect.

NULL for repairs that were sent before: a row that was opened again no longer shows its first send.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002_first_send"
down_revision = "0001_ledger"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the column; rows stay as they are."""
    op.add_column(
        "reconciler_repair",
        sa.Column(
            "first_sent_at_ms",
            sa.BigInteger(),
            nullable=True,
            comment="First send; NULL also where an older release sent it.",
        ),
    )


def downgrade() -> None:
    """Drops it."""
    op.drop_column("reconciler_repair", "first_sent_at_ms")
