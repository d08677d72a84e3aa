"""Conversations of notifiers, and the time at which a loss was proved, by which losses are told.

The time is NULL of losses that were proved before, and by an older release beside this one: nobody is told of them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from reconciler.sql.migrations.column_types import NAME, OPTIONS, SHORT, TEXT
from reconciler.sql.migrations.index_building import build_index

revision = "0011_notice"
down_revision = "0010_verified_repairs"
branch_labels = None
depends_on = None

_CANDIDATE = "reconciler_candidate"
_INDEX = "ix_reconciler_candidate_environment_topic_consumer_loss"


def upgrade() -> None:
    """Adds both; an older release neither writes nor reads them."""
    _make_notices()
    loss_at_ms = sa.Column(
        "loss_at_ms",
        sa.BigInteger(),
        nullable=True,
        comment="When the loss was proved; NULL: it was not, or by an older release.",
    )
    op.add_column(_CANDIDATE, loss_at_ms)
    has_value = sa.text("loss_at_ms IS NOT NULL")
    build_index(_INDEX, _CANDIDATE, ["environment", "topic", "consumer_group", "loss_at_ms"], where=has_value)


def _make_notices() -> None:
    op.create_table(
        "reconciler_notice",
        sa.Column("environment", NAME, nullable=False, comment="Environment."),
        sa.Column("notifier", NAME, nullable=False, comment="Name of the notifier."),
        sa.Column("kind", SHORT, nullable=False, comment="What it is about: a word of [[notifiers]] notices."),
        sa.Column("topic", NAME, nullable=False, comment="Business topic; empty: of no single one."),
        sa.Column("consumer_group", NAME, nullable=False, comment="The group; empty: of no single one."),
        sa.Column(
            "version",
            sa.Integer(),
            nullable=False,
            comment="Grows with every change: a process replaces only the version that it has read.",
        ),
        sa.Column(
            "is_open", sa.Integer(), nullable=False, comment="1: the receiver knows of the trouble, and not of its end."
        ),
        sa.Column(
            "mark_ms",
            sa.BigInteger(),
            nullable=False,
            comment="Losses, outages: all until then were told. Others: time of the newest told.",
        ),
        sa.Column(
            "mark_count",
            sa.BigInteger(),
            nullable=False,
            comment="How many of those after mark_ms, or of those that stood, were told.",
        ),
        sa.Column("since_ms", sa.BigInteger(), nullable=True, comment="When the trouble began that was told last."),
        sa.Column("told_at_ms", sa.BigInteger(), nullable=True, comment="When a message was sent last."),
        sa.Column(
            "trouble_at_ms",
            sa.BigInteger(),
            nullable=True,
            comment="When one was sent last that not only told an end.",
        ),
        sa.Column("notice", TEXT, nullable=True, comment="The message that waits, and what is told with it."),
        sa.Column("next_at_ms", sa.BigInteger(), nullable=False, comment="It is not sent before this time."),
        sa.Column("token", NAME, nullable=True, comment="Owner of the claim."),
        sa.Column(
            "lease_until_ms",
            sa.BigInteger(),
            nullable=True,
            comment="End of the claim; after it another process sends it.",
        ),
        sa.Column(
            "attempts",
            sa.Integer(),
            nullable=False,
            comment="Tries since a message was sent: written before a byte leaves.",
        ),
        sa.Column("error", TEXT, nullable=True, comment="Why the last try failed."),
        sa.Column(
            "is_refused",
            sa.Integer(),
            nullable=False,
            comment="1: the receiver refused it; a person has to mend something.",
        ),
        sa.Column(
            "created_at_ms",
            sa.BigInteger(),
            nullable=False,
            comment="When the row was made; of the oldest row: when the notifier began.",
        ),
        sa.PrimaryKeyConstraint("environment", "notifier", "kind", "topic", "consumer_group"),
        comment="One row a conversation: what one notifier told of one kind of trouble, and the message that waits.",
        **OPTIONS,
    )


def downgrade() -> None:
    """Drops both."""
    op.drop_index(_INDEX, _CANDIDATE)
    op.drop_column(_CANDIDATE, "loss_at_ms")
    op.drop_table("reconciler_notice")
