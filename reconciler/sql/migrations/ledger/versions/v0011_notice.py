"""The ledger of 0.2.0, which every upgrade starts from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from reconciler.sql.migrations.column_types import BYTES, DIGEST, KEY, NAME, OPTIONS, SHORT, TEXT

revision = "0011_notice"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Creates the tables, then indexes in the order in which 0.2.0 got them."""
    _create_candidate()
    _create_repair()
    _create_round()
    _create_floor()
    _create_outage()
    _create_hold()
    _create_quarantine()
    _create_broker()
    _create_operator_action()
    _create_job()
    _create_idempotency_key()
    _create_environment()
    _create_notice()
    _index_pages()
    _index_counts()
    _index_by_time("ix_reconciler_repair_environment_done", "reconciler_repair", ["environment", "done_at_ms"])
    _index_by_time(
        "ix_reconciler_candidate_environment_topic_consumer_loss",
        "reconciler_candidate",
        ["environment", "topic", "consumer_group", "loss_at_ms"],
    )


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
        sa.Column(
            "ask_again_at_ms",
            sa.BigInteger(),
            nullable=True,
            comment="After this the databases are asked about a closed row again; NULL: they are not.",
        ),
        sa.Column(
            "loss_at_ms",
            sa.BigInteger(),
            nullable=True,
            comment="When the loss was proved; NULL: it was not, or by an older release.",
        ),
        sa.PrimaryKeyConstraint("environment", "topic", "consumer_group", "unique_key"),
        comment="One row a key that was due and verified: verdict and evidence.",
        **OPTIONS,
    )
    op.create_index(
        "ix_reconciler_candidate_environment_state_next", "reconciler_candidate", ["environment", "state", "next_at_ms"]
    )
    op.create_index("ix_reconciler_candidate_unique", "reconciler_candidate", ["unique_key"])
    _index_by_time(
        "ix_reconciler_candidate_environment_topic_consumer_ask",
        "reconciler_candidate",
        ["environment", "topic", "consumer_group", "ask_again_at_ms"],
    )


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
        sa.Column(
            "first_sent_at_ms",
            sa.BigInteger(),
            nullable=True,
            comment="First send; NULL also where an older release sent it.",
        ),
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


def _create_broker() -> None:
    op.create_table(
        "reconciler_broker",
        sa.Column("environment", NAME, nullable=False, comment="Environment."),
        sa.Column("topic", NAME, nullable=False, comment="Business topic."),
        sa.Column("broker", NAME, nullable=False, comment="Broker name."),
        sa.Column(
            "gone_since_ms",
            sa.BigInteger(),
            nullable=True,
            comment="First round that missed it in the route; NULL: it is there.",
        ),
        sa.PrimaryKeyConstraint("environment", "topic", "broker"),
        comment="One row a broker that was seen in a topic's route: while it is away, nothing of the topic is ABSENT.",
        **OPTIONS,
    )


def _create_operator_action() -> None:
    op.create_table(
        "reconciler_operator_action",
        sa.Column("action_id", KEY, nullable=False, comment="Random."),
        sa.Column("environment", NAME, nullable=False, comment="Environment."),
        sa.Column("by", NAME, nullable=False, comment="User."),
        sa.Column("command", SHORT, nullable=False, comment="hold, resume, repair, dismiss or rebuild."),
        sa.Column("topic", NAME, nullable=True, comment="Business topic; NULL: of all."),
        sa.Column("consumer_group", NAME, nullable=True, comment="The group; NULL: of all."),
        sa.Column("unique_key", KEY, nullable=True, comment="UNIQ_KEY, where it was done to one message."),
        sa.Column("detail", TEXT, nullable=False, comment="The reason or options that were given."),
        sa.Column("started_at_ms", sa.BigInteger(), nullable=False, comment="Just before it was done."),
        sa.Column("ended_at_ms", sa.BigInteger(), nullable=True, comment="NULL: under way, or the process died in it."),
        sa.Column("result", TEXT, nullable=True, comment="What was done, or the error."),
        sa.PrimaryKeyConstraint("action_id"),
        comment=(
            "One row an action that a person took by hand, written before it is done: by whom, what, and its result."
        ),
        **OPTIONS,
    )
    op.create_index(
        "ix_reconciler_operator_action_environment_started",
        "reconciler_operator_action",
        ["environment", "started_at_ms"],
    )
    op.create_index("ix_reconciler_operator_action_unique", "reconciler_operator_action", ["unique_key"])


def _create_job() -> None:
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


def _create_idempotency_key() -> None:
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


def _create_environment() -> None:
    op.create_table(
        "reconciler_environment",
        sa.Column("environment", NAME, nullable=False, comment="Environment."),
        sa.Column(
            "brokers", TEXT, nullable=False, comment='List of "cluster/broker at address": what that process knows.'
        ),
        sa.Column("by", NAME, nullable=False, comment="Process that wrote the row last."),
        sa.Column(
            "renewed_at_ms",
            sa.BigInteger(),
            nullable=False,
            comment="When it did; 30 s later the row says nothing any more.",
        ),
        sa.PrimaryKeyConstraint("environment"),
        comment=(
            "One row an environment: the cluster that its processes run with. Processes of another cluster are refused."
        ),
        **OPTIONS,
    )


def _create_notice() -> None:
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


def _index_by_time(name: str, table: str, columns: list[str]) -> None:
    """Of the rows that have the time, where a database has such indexes."""
    has_value = sa.text(f"{columns[-1]} IS NOT NULL")
    op.create_index(name, table, columns, postgresql_where=has_value, sqlite_where=has_value)


def _index_pages() -> None:
    """For pages of listings, the newest row first."""
    candidates = ["first_seen_ms", "topic", "consumer_group", "unique_key"]
    repairs = ["created_at_ms", "topic", "scope", "unique_key"]
    refused = ["seen_at_ms", "unique_key_topic", "broker", "queue_id", "queue_offset"]
    for name, table, columns in (
        ("ix_reconciler_candidate_page_first", "candidate", candidates),
        ("ix_reconciler_candidate_page_state_first", "candidate", ["state", *candidates]),
        ("ix_reconciler_repair_page_created", "repair", repairs),
        ("ix_reconciler_repair_page_state_created", "repair", ["state", *repairs]),
        ("ix_reconciler_quarantine_page_seen", "quarantine", refused),
    ):
        op.create_index(name, f"reconciler_{table}", ["environment", *columns])
    if op.get_context().dialect.name in ("postgresql", "sqlite"):
        is_loss = sa.text("loss_verdict IS NOT NULL")
        op.create_index(
            "ix_reconciler_candidate_page_loss_first",
            "reconciler_candidate",
            ["environment", *candidates],
            postgresql_where=is_loss,
            sqlite_where=is_loss,
        )


def _index_counts() -> None:
    """For counting.

    PostgreSQL's hold the rows for which something is true that is true of all: a planner that knows nothing of a table
    takes them for counts, which say so, and never to find a key.
    """
    for name, table, columns in (
        (
            "ix_reconciler_candidate_count",
            "reconciler_candidate",
            ["environment", "topic", "consumer_group", "state", "verdict", "loss_verdict", "first_seen_ms"],
        ),
        (
            "ix_reconciler_repair_count",
            "reconciler_repair",
            ["environment", "topic", "scope", "state", "rung", "attempts"],
        ),
    ):
        every = sa.text(f"{columns[-1]} >= '-9223372036854775808'::bigint")
        op.create_index(name, table, columns, postgresql_where=every)
