"""First tables of the reconciler's ledger."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from reconciler.sql.migrations.column_types import BYTES, KEY, NAME, OPTIONS, SHORT, TEXT

revision = "0001_ledger"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Creates them."""
    _create_candidate()
    _create_repair()
    _create_round()
    _create_floor()
    _create_outage()
    _create_hold()
    _create_quarantine()


def downgrade() -> None:
    """Drops them, and the evidence in them."""
    op.drop_table("reconciler_quarantine")
    op.drop_table("reconciler_hold")
    op.drop_table("reconciler_outage")
    op.drop_table("reconciler_floor")
    op.drop_table("reconciler_round")
    op.drop_table("reconciler_repair")
    op.drop_table("reconciler_candidate")


def _create_candidate() -> None:
    op.create_table(
        "reconciler_candidate",
        sa.Column("environment", NAME, nullable=False, comment="Environment."),
        sa.Column("topic", NAME, nullable=False, comment="Business topic."),
        sa.Column("consumer_group", NAME, nullable=False, comment="The group."),
        sa.Column("unique_key", KEY, nullable=False, comment="UNIQ_KEY."),
        sa.Column("shard", sa.Integer(), nullable=False, comment="Shard."),
        sa.Column("state", SHORT, nullable=False, comment="OPEN, SETTLED or QUARANTINED."),
        sa.Column("verdict", SHORT, nullable=False, comment="The latest verdict."),
        sa.Column("loss_verdict", SHORT, nullable=True, comment="The first verdict that meant a loss; never changed."),
        sa.Column("evidence", TEXT, nullable=False, comment="What each witness answered."),
        sa.Column("attempts", sa.Integer(), nullable=False, comment="Verifications so far."),
        sa.Column(
            "first_seen_ms", sa.BigInteger(), nullable=False, comment="Redis TIME of the round that first saw the key."
        ),
        sa.Column("next_at_ms", sa.BigInteger(), nullable=False, comment="Not verified again before this time."),
        sa.Column("updated_at_ms", sa.BigInteger(), nullable=False, comment="Last change."),
        sa.PrimaryKeyConstraint("environment", "topic", "consumer_group", "unique_key"),
        comment="One row a key that was due and verified: verdict and evidence.",
        **OPTIONS,
    )
    op.create_index(
        "ix_reconciler_candidate_environment_state_next", "reconciler_candidate", ["environment", "state", "next_at_ms"]
    )
    op.create_index("ix_reconciler_candidate_unique", "reconciler_candidate", ["unique_key"])


def _create_repair() -> None:
    op.create_table(
        "reconciler_repair",
        sa.Column("environment", NAME, nullable=False, comment="Environment."),
        sa.Column("topic", NAME, nullable=False, comment="Business topic."),
        sa.Column("scope", NAME, nullable=False, comment="'*', or the group of a hand-over."),
        sa.Column("unique_key", KEY, nullable=False, comment="UNIQ_KEY."),
        sa.Column("state", SHORT, nullable=False, comment="OPEN, SENDING, SENT, DONE or FAILED."),
        sa.Column("rung", SHORT, nullable=False, comment="end, republish or hand-over."),
        sa.Column("token", NAME, nullable=True, comment="Owner of the claim."),
        sa.Column(
            "lease_until_ms", sa.BigInteger(), nullable=True, comment="End of the claim; after it the row is free."
        ),
        sa.Column("attempts", sa.Integer(), nullable=False, comment="Sends so far: written before a byte leaves."),
        sa.Column("next_at_ms", sa.BigInteger(), nullable=False, comment="Not tried again before this time."),
        sa.Column("target", TEXT, nullable=True, comment="Broker and offsets that were aimed at."),
        sa.Column("answer", TEXT, nullable=True, comment="What the broker or the handler answered."),
        sa.Column(
            "message", TEXT, nullable=True, comment="Hand-over: topic, properties, body (base64); emptied at DONE."
        ),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False, comment="When the loss was proved."),
        sa.Column("sent_at_ms", sa.BigInteger(), nullable=True, comment="Last send."),
        sa.Column("done_at_ms", sa.BigInteger(), nullable=True, comment="When every group's inbox had the key."),
        sa.PrimaryKeyConstraint("environment", "topic", "scope", "unique_key"),
        comment="One row a repair: END and republish once a key (scope '*'), a hand-over once a key and group.",
        **OPTIONS,
    )
    op.create_index(
        "ix_reconciler_repair_environment_state_next", "reconciler_repair", ["environment", "state", "next_at_ms"]
    )
    op.create_index("ix_reconciler_repair_unique", "reconciler_repair", ["unique_key"])


def _create_round() -> None:
    op.create_table(
        "reconciler_round",
        sa.Column("environment", NAME, nullable=False, comment="Environment."),
        sa.Column("topic", NAME, nullable=False, comment="Business topic."),
        sa.Column("consumer_group", NAME, nullable=False, comment="The group."),
        sa.Column("shard", sa.Integer(), nullable=False, autoincrement=False, comment="Shard."),
        sa.Column("epoch", NAME, nullable=False, comment="Redis memory the round ran in."),
        sa.Column(
            "generation", sa.BigInteger(), nullable=False, autoincrement=False, comment="The fence after the round."
        ),
        sa.Column("at_ms", sa.BigInteger(), nullable=False, comment="Redis TIME of the round."),
        sa.Column("offsets", TEXT, nullable=False, comment='{"broker/queue": next offset} when the round ran.'),
        sa.Column("announced", sa.BigInteger(), nullable=False, comment="Keys in the half set."),
        sa.Column("matched", sa.BigInteger(), nullable=False, comment="Of those, consumed already."),
        sa.Column("pending_before", sa.BigInteger(), nullable=False, comment="Pending before the round."),
        sa.Column("pending_added", sa.BigInteger(), nullable=False, comment="New in pending."),
        sa.Column(
            "pending_matched", sa.BigInteger(), nullable=False, comment="Left pending because they were consumed."
        ),
        sa.Column("pending_after", sa.BigInteger(), nullable=False, comment="Pending after the round."),
        sa.Column(
            "void",
            sa.Integer(),
            nullable=False,
            comment="1: Redis fell back to a memory before this round, which counts as never run.",
        ),
        sa.Column("stored_at_ms", sa.BigInteger(), nullable=False, comment="When the row was written."),
        sa.PrimaryKeyConstraint("environment", "topic", "consumer_group", "shard", "epoch", "generation"),
        comment="One row a round that ran: its counts and the announcement offsets it covered.",
        **OPTIONS,
    )
    op.create_index("ix_reconciler_round_environment_stored", "reconciler_round", ["environment", "stored_at_ms"])


def _create_floor() -> None:
    op.create_table(
        "reconciler_floor",
        sa.Column("environment", NAME, nullable=False, comment="Environment."),
        sa.Column("topic", NAME, nullable=False, comment="Business topic."),
        sa.Column("consumer_group", NAME, nullable=False, comment="The group."),
        sa.Column("broker", NAME, nullable=False, comment="Broker of the unique-key topic's queue."),
        sa.Column("queue_id", sa.Integer(), nullable=False, autoincrement=False, comment="Queue number."),
        sa.Column(
            "queue_offset",
            sa.BigInteger(),
            nullable=False,
            comment="Lowest offset with a key that may be neither matched nor settled.",
        ),
        sa.Column("updated_at_ms", sa.BigInteger(), nullable=False, comment="Last change."),
        sa.PrimaryKeyConstraint("environment", "topic", "consumer_group", "broker", "queue_id"),
        comment="Everything announced below this offset was matched or settled: "
        "where to start when Redis lost everything.",
        **OPTIONS,
    )


def _create_outage() -> None:
    op.create_table(
        "reconciler_outage",
        sa.Column("environment", NAME, nullable=False, comment="Environment."),
        sa.Column(
            "started_at_ms",
            sa.BigInteger(),
            nullable=False,
            autoincrement=False,
            comment="Start, or the last stored round before it.",
        ),
        sa.Column("reason", SHORT, nullable=False, comment="AWAY, MEMORY_LOST or UNSAFE."),
        sa.Column("noticed_by", NAME, nullable=False, comment="Process that opened the row."),
        sa.Column("scan_position", TEXT, nullable=True, comment="Progress of the inbox scan."),
        sa.Column("scanned", sa.BigInteger(), nullable=False, comment="Inbox rows put back into commit sets."),
        sa.Column("closed_at_ms", sa.BigInteger(), nullable=True, comment="End of the outage."),
        sa.PrimaryKeyConstraint("environment", "started_at_ms"),
        comment="One row an outage: Redis was away or lost its memory. Open while closed_at_ms is NULL.",
        **OPTIONS,
    )


def _create_hold() -> None:
    op.create_table(
        "reconciler_hold",
        sa.Column("environment", NAME, nullable=False, comment="Environment."),
        sa.Column("topic", NAME, nullable=False, comment="Business topic."),
        sa.Column("kind", SHORT, nullable=False, comment="HOLD or BREAKER."),
        sa.Column("since_ms", sa.BigInteger(), nullable=False, comment="Time of the event."),
        sa.Column("by", NAME, nullable=False, comment="User or process."),
        sa.Column("reason", TEXT, nullable=False, comment="Reason."),
        sa.PrimaryKeyConstraint("environment", "topic", "kind"),
        comment="Repairs of a topic are stopped: by a person (HOLD) or by the circuit breaker (BREAKER).",
        **OPTIONS,
    )


def _create_quarantine() -> None:
    op.create_table(
        "reconciler_quarantine",
        sa.Column("environment", NAME, nullable=False, comment="Environment of the refusing process."),
        sa.Column("unique_key_topic", NAME, nullable=False, comment="Topic it came from."),
        sa.Column("broker", NAME, nullable=False, comment="Broker."),
        sa.Column("queue_id", sa.Integer(), nullable=False, autoincrement=False, comment="Queue number."),
        sa.Column("queue_offset", sa.BigInteger(), nullable=False, autoincrement=False, comment="Offset."),
        sa.Column(
            "reason", SHORT, nullable=False, comment="MALFORMED, VERSION, ENVIRONMENT, TOPIC, SIGNATURE, SIZE or SHAPE."
        ),
        sa.Column("detail", TEXT, nullable=False, comment="The error's message."),
        sa.Column("body", BYTES, nullable=False, comment="The first 4 KiB of the body."),
        sa.Column("seen_at_ms", sa.BigInteger(), nullable=False, comment="Time of the event."),
        sa.PrimaryKeyConstraint("environment", "unique_key_topic", "broker", "queue_id", "queue_offset"),
        comment="Announcements that were refused: counted and kept, the queue moved on.",
        **OPTIONS,
    )
