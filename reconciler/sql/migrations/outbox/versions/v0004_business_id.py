"""The producers' outbox of 0.2.0, from which every upgrade starts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from reconciler.sql.identity import identity_sql, sign_of_life_sql
from reconciler.sql.migrations.column_types import BIGINT, BYTES, DIGEST, INTEGER, KEY, NAME, SHORT, TEXT
from reconciler.sql.migrations.steps import column, create_table, nullable

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
    create_table(
        "reconciler_outbox",
        column("unique_key", KEY, "UNIQ_KEY, made before the half is sent."),
        column("topic", NAME, "Business topic."),
        column("producer_group", NAME, "PGROUP of the half."),
        nullable("tag", NAME, "Tag, or NULL."),
        nullable("message_keys", TEXT, "KEYS as sent, without the unique key, or NULL."),
        nullable("business_id", NAME, "The business transaction's own id, also property BUSINESS_ID."),
        nullable("half_broker", NAME, "Broker of the half; NULL where the client does not report it."),
        nullable("half_commit_log_offset", BIGINT, "Commit-log offset of the first half copy."),
        nullable("half_queue_offset", BIGINT, "Queue offset of the first half copy."),
        nullable("properties", TEXT, "User properties, if the body is kept."),
        nullable("body", BYTES, "Uncompressed body, if the producer keeps bodies."),
        nullable("content_digest", DIGEST, "contract/content_digest.py; NULL: not checked."),
        column("state", SHORT, "NEW, ANNOUNCED, SETTLED or ROLLED_BACK (a tombstone)."),
        column("created_at_ms", BIGINT, "When the row was written."),
        nullable("announced_at_ms", BIGINT, "Last announcement."),
        nullable("settled_at_ms", BIGINT, "When every inbox had the key."),
        key=("unique_key",),
        comment="One row a transactional message, written in the local transaction: the only evidence of the commit.",
    )
    op.create_index("ix_reconciler_outbox_state_created", "reconciler_outbox", ["state", "created_at_ms"])
    op.create_index("ix_reconciler_outbox_state_announced", "reconciler_outbox", ["state", "announced_at_ms"])
    op.create_index("ix_reconciler_outbox_created", "reconciler_outbox", ["created_at_ms"])
    op.create_index("ix_reconciler_outbox_business_created", "reconciler_outbox", ["business_id", "created_at_ms"])


def _create_identity() -> None:
    create_table(
        "reconciler_outbox_identity",
        sa.Column(
            "id",
            INTEGER,
            nullable=False,
            autoincrement=False,
            comment="1: the identity. 2: the sign of life, in a row of its own that no record() locks.",
        ),
        column("identity", NAME, "Random text, made by the migration."),
        nullable("swept_at_ms", BIGINT, "Row 2: time of the last sweep; NULL before the first one."),
        key=("id",),
        comment=(
            "Identity of this database, so that record() notices a connection to another one; and its sign of life."
        ),
    )


def _create_filter() -> None:
    create_table(
        "reconciler_outbox_filter",
        column("producer_group", NAME, "Producer group of the rows."),
        column("topic", NAME, "Business topic."),
        column("consumer_group", NAME, "The group."),
        column("tags", TEXT, 'Sorted list, or "*" for every message.'),
        sa.Column(
            "version",
            INTEGER,
            nullable=False,
            autoincrement=False,
            comment="Grows with every change: a sweeper replaces only the version that it has read.",
        ),
        key=("producer_group", "topic", "consumer_group"),
        comment=(
            "Tags whose rows were settled only after the group's effect: for its other tags SETTLED proves no effect."
        ),
    )
