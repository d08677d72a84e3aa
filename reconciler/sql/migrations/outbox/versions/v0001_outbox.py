"""First tables of the producers' outbox and the identity of its database."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from reconciler.sql.identity import identity_sql
from reconciler.sql.migrations.column_types import BYTES, DIGEST, KEY, NAME, OPTIONS, SHORT, TEXT

revision = "0001_outbox"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Creates them."""
    op.create_table(
        "reconciler_outbox",
        sa.Column("unique_key", KEY, nullable=False, comment="UNIQ_KEY, made before the half is sent."),
        sa.Column("topic", NAME, nullable=False, comment="Business topic."),
        sa.Column("producer_group", NAME, nullable=False, comment="PGROUP of the half."),
        sa.Column("tag", NAME, nullable=True, comment="Tag, or NULL."),
        sa.Column("message_keys", TEXT, nullable=True, comment="KEYS as sent, without the unique key, or NULL."),
        sa.Column(
            "business_id", NAME, nullable=True, comment="The business transaction's own id, also property BUSINESS_ID."
        ),
        sa.Column(
            "half_broker",
            NAME,
            nullable=True,
            comment="Broker of the half; NULL where the client does not report it.",
        ),
        sa.Column(
            "half_commit_log_offset",
            sa.BigInteger(),
            nullable=True,
            comment="Commit-log offset of the first half copy.",
        ),
        sa.Column("half_queue_offset", sa.BigInteger(), nullable=True, comment="Queue offset of the first half copy."),
        sa.Column("properties", TEXT, nullable=True, comment="User properties, if the body is kept."),
        sa.Column("body", BYTES, nullable=True, comment="Uncompressed body, if the producer keeps bodies."),
        sa.Column("content_digest", DIGEST, nullable=True, comment="contract/content_digest.py; NULL: not checked."),
        sa.Column("state", SHORT, nullable=False, comment="NEW, ANNOUNCED, SETTLED or ROLLED_BACK (a tombstone)."),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False, comment="When the row was written."),
        sa.Column("announced_at_ms", sa.BigInteger(), nullable=True, comment="Last announcement."),
        sa.Column("settled_at_ms", sa.BigInteger(), nullable=True, comment="When every inbox had the key."),
        sa.PrimaryKeyConstraint("unique_key"),
        comment="One row a transactional message, written in the local transaction: the only evidence of the commit.",
        **OPTIONS,
    )
    op.create_index("ix_reconciler_outbox_state_created", "reconciler_outbox", ["state", "created_at_ms"])
    op.create_index("ix_reconciler_outbox_state_announced", "reconciler_outbox", ["state", "announced_at_ms"])
    op.create_index("ix_reconciler_outbox_created", "reconciler_outbox", ["created_at_ms"])
    op.create_table(
        "reconciler_outbox_identity",
        sa.Column(
            "id",
            sa.Integer(),
            nullable=False,
            autoincrement=False,
            comment="Always 1.",
        ),
        sa.Column("identity", NAME, nullable=False, comment="Random text, made by the migration."),
        sa.PrimaryKeyConstraint("id"),
        comment="Identity of this database, so that record() notices a connection to another one.",
        **OPTIONS,
    )
    op.execute(identity_sql(op.get_context().dialect.name))


def downgrade() -> None:
    """Drops them, and the evidence in them."""
    op.drop_table("reconciler_outbox_identity")
    op.drop_table("reconciler_outbox")
