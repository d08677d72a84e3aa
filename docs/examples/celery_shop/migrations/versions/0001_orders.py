"""The service's tables, and those of both plug-ins."""

from pathlib import Path

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """`checkback.sql` is what `reconciler db sql outbox` and `inbox` print, for PostgreSQL."""
    op.create_table(
        "orders",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("number", sa.String, unique=True, nullable=False),
        sa.Column("customer", sa.String, nullable=False),
    )
    op.create_table("bills", sa.Column("number", sa.String, primary_key=True))
    plug_ins = Path(__file__).parents[1] / "checkback.sql"
    op.get_bind().exec_driver_sql(plug_ins.read_text(encoding="utf-8"))
