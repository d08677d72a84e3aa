"""The producers' outbox of 0.2.0, which every upgrade starts from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from reconciler.sql.identity import identity_sql, sign_of_life_sql
from reconciler.sql.migrations.column_types import BYTES, DIGEST, KEY, NAME, OPTIONS, SHORT, TEXT

revision = "0004_business_id"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Creates the tables, with the rows of the identity and of the sign of life."""
    _create_outbox()
    _create_identity()
    _create_filter()
    for sql_of in (identity_sql, sign_of_life_sql):
        op.execute(sql_of(op.get_context().dialect.name))


def _create_outbox() -> None:
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
    op.create_index("ix_reconciler_outbox_business_created", "reconciler_outbox", ["business_id", "created_at_ms"])


def _create_identity() -> None:
    op.create_table(
        "reconciler_outbox_identity",
        sa.Column(
            "id",
            sa.Integer(),
            nullable=False,
            autoincrement=False,
            comment="1: the identity. 2: the sign of life, in a row of its own that no record() locks.",
        ),
        sa.Column("identity", NAME, nullable=False, comment="Random text, made by the migration."),
        sa.Column(
            "swept_at_ms",
            sa.BigInteger(),
            nullable=True,
            comment="Row 2: time of the last sweep; NULL before the first one.",
        ),
        sa.PrimaryKeyConstraint("id"),
        comment=(
            "Identity of this database, so that record() notices a connection to another one; and its sign of life."
        ),
        **OPTIONS,
    )


def _create_filter() -> None:
    op.create_table(
        "reconciler_outbox_filter",
        sa.Column("producer_group", NAME, nullable=False, comment="Producer group of the rows."),
        sa.Column("topic", NAME, nullable=False, comment="Business topic."),
        sa.Column("consumer_group", NAME, nullable=False, comment="The group."),
        sa.Column("tags", TEXT, nullable=False, comment='Sorted list, or "*" for every message.'),
        sa.Column(
            "version",
            sa.Integer(),
            nullable=False,
            autoincrement=False,
            comment="Grows with every change: a sweeper replaces only the version that it has read.",
        ),
        sa.PrimaryKeyConstraint("producer_group", "topic", "consumer_group"),
        comment=(
            "Tags whose rows were settled only after the group's effect: for its other tags SETTLED proves no effect."
        ),
        **OPTIONS,
    )
