"""Long actions as jobs, and the answers of requests that came with an idempotency key."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from reconciler.sql.migrations.column_types import DIGEST, KEY, NAME, OPTIONS, SHORT, TEXT

revision = "0006_job"
down_revision = "0005_ask_again"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes both tables; an older release neither writes nor reads them."""
    _make_jobs()
    _make_idempotency_keys()


def _make_jobs() -> None:
    op.create_table(
        "reconciler_job",
        sa.Column("job_id", KEY, nullable=False, comment="Random, or made of the idempotency key of the request."),
        sa.Column("environment", NAME, nullable=False, comment="Environment."),
        sa.Column("kind", SHORT, nullable=False, comment="REPAIR or REBUILD."),
        sa.Column(
            "request",
            TEXT,
            nullable=False,
            comment="What was asked for: keys, topic and group or a time, and the reason.",
        ),
        sa.Column("by", NAME, nullable=False, comment="User."),
        sa.Column("state", SHORT, nullable=False, comment="QUEUED, RUNNING, DONE, FAILED or CANCELLED."),
        sa.Column("token", NAME, nullable=True, comment="Owner of the claim."),
        sa.Column(
            "lease_until_ms",
            sa.BigInteger(),
            nullable=True,
            comment="End of the claim; before it no other process takes the job.",
        ),
        sa.Column(
            "attempts",
            sa.Integer(),
            nullable=False,
            comment="Claims since the job last came forward: an owner that dies gives none back.",
        ),
        sa.Column("work", TEXT, nullable=True, comment="Repair: topic, group and key of each message, in order."),
        sa.Column(
            "done",
            sa.BigInteger(),
            nullable=False,
            comment="Repair: keys that are finished, from the first on. Rebuild: inbox rows.",
        ),
        sa.Column("total", sa.BigInteger(), nullable=True, comment="Repair: keys. NULL: not known."),
        sa.Column("counts", TEXT, nullable=True, comment="Repair: finished keys by outcome."),
        sa.Column("lines", TEXT, nullable=True, comment="Repair: the first keys that did not end well, and why."),
        sa.Column("error", TEXT, nullable=True, comment="Why it failed, or what it waits for."),
        sa.Column("cancelled_by", NAME, nullable=True, comment="Who wished that it ends before its time."),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False, comment="When it was asked for."),
        sa.Column("started_at_ms", sa.BigInteger(), nullable=True, comment="First claim."),
        sa.Column("ended_at_ms", sa.BigInteger(), nullable=True, comment="When it was DONE, FAILED or CANCELLED."),
        sa.PrimaryKeyConstraint("job_id"),
        comment="One row a job: a long action that a person asked for, done by one process at a time, by any that can.",
        **OPTIONS,
    )
    op.create_index("ix_reconciler_job_environment_created", "reconciler_job", ["environment", "created_at_ms"])
    op.create_index(
        "ix_reconciler_job_environment_state_created", "reconciler_job", ["environment", "state", "created_at_ms"]
    )


def _make_idempotency_keys() -> None:
    op.create_table(
        "reconciler_idempotency_key",
        sa.Column("environment", NAME, nullable=False, comment="Environment."),
        sa.Column("by", NAME, nullable=False, comment="User: the keys of two users are not the same key."),
        sa.Column("idempotency_key", NAME, nullable=False, comment="The act, and a digest of the client's key."),
        sa.Column(
            "digest",
            DIGEST,
            nullable=False,
            comment="SHA-256 of the request: another request with the same key is refused.",
        ),
        sa.Column("state", SHORT, nullable=False, comment="UNDER_WAY or ANSWERED."),
        sa.Column("token", NAME, nullable=True, comment="Who works on it."),
        sa.Column(
            "lease_until_ms",
            sa.BigInteger(),
            nullable=True,
            comment="After it a request that is UNDER_WAY counts as dead.",
        ),
        sa.Column("status", sa.Integer(), nullable=True, comment="Status of the answer."),
        sa.Column("answer", TEXT, nullable=True, comment="The answer."),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False, comment="First request."),
        sa.PrimaryKeyConstraint("environment", "by", "idempotency_key"),
        comment=(
            "One row a request with an idempotency key: the same request again is answered from here. Kept for a day."
        ),
        **OPTIONS,
    )
    op.create_index(
        "ix_reconciler_idempotency_key_environment_created",
        "reconciler_idempotency_key",
        ["environment", "created_at_ms"],
    )


def downgrade() -> None:
    """Drops both."""
    op.drop_table("reconciler_idempotency_key")
    op.drop_table("reconciler_job")
