"""The time of the last sweep: a replica that has it has everything that was committed before it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from reconciler.sql.identity import sign_of_life_sql

revision = "0002_sign_of_life"
down_revision = "0001_outbox"
branch_labels = None
depends_on = None

_TABLE = "reconciler_outbox_identity"


def upgrade() -> None:
    """Adds the column and the row that sweeps write; older releases read neither."""
    op.add_column(
        _TABLE,
        sa.Column(
            "swept_at_ms",
            sa.BigInteger(),
            nullable=True,
            comment="Row 2: time of the last sweep; NULL before the first one.",
        ),
    )
    op.execute(sign_of_life_sql(op.get_context().dialect.name))
    _comment(
        "1: the identity. 2: the sign of life, in a row of its own that no record() locks.",
        "Identity of this database, so that record() notices a connection to another one; and its sign of life.",
    )


def downgrade() -> None:
    """Takes both away."""
    op.execute(f"DELETE FROM {_TABLE} WHERE id = 2")  # noqa: S608  # our constant
    op.drop_column(_TABLE, "swept_at_ms")
    _comment("Always 1.", "Identity of this database, so that record() notices a connection to another one.")


def _comment(of_id: str, of_table: str) -> None:
    if op.get_context().dialect.name == "sqlite":
        return  # it has none
    op.alter_column(_TABLE, "id", comment=of_id, existing_type=sa.Integer(), existing_nullable=False)
    op.create_table_comment(_TABLE, of_table)
