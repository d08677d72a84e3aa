"""The ledger of 0.2.0, from which every upgrade starts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from reconciler.sql.migrations.column_types import BIGINT, BYTES, DIGEST, INTEGER, KEY, NAME, SHORT, TEXT
from reconciler.sql.migrations.steps import column, create_table, nullable

revision = "0011_notice"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Creates the tables, then the indexes in the order of the migrations up to 0.2.0."""
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
    create_table(
        "reconciler_candidate",
        column("environment", NAME, "Environment."),
        column("topic", NAME, "Business topic."),
        column("consumer_group", NAME, "The group."),
        column("unique_key", KEY, "UNIQ_KEY."),
        column("shard", INTEGER, "Shard."),
        column("state", SHORT, "OPEN, SETTLED or QUARANTINED."),
        column("verdict", SHORT, "The latest verdict."),
        nullable("loss_verdict", SHORT, "The first verdict that meant a loss; never changed."),
        column("evidence", TEXT, "What each witness answered."),
        column("attempts", INTEGER, "Verifications so far."),
        column("first_seen_ms", BIGINT, "Redis TIME of the round that first saw the key."),
        column("next_at_ms", BIGINT, "Not verified again before this time."),
        column("updated_at_ms", BIGINT, "Last change."),
        nullable(
            "ask_again_at_ms",
            BIGINT,
            "After this the databases are asked about a closed row again; NULL: they are not.",
        ),
        nullable("loss_at_ms", BIGINT, "When the loss was proved; NULL: it was not, or by an older release."),
        key=("environment", "topic", "consumer_group", "unique_key"),
        comment="One row a key that was due and verified: verdict and evidence.",
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
    create_table(
        "reconciler_repair",
        column("environment", NAME, "Environment."),
        column("topic", NAME, "Business topic."),
        column("scope", NAME, "'*', or the group of a hand-over."),
        column("unique_key", KEY, "UNIQ_KEY."),
        column("state", SHORT, "OPEN, SENDING, SENT, DONE or FAILED."),
        column("rung", SHORT, "end, republish or hand-over."),
        nullable("token", NAME, "Owner of the claim."),
        nullable("lease_until_ms", BIGINT, "End of the claim; after it the row is free."),
        column("attempts", INTEGER, "Sends so far: written before a byte leaves."),
        column("next_at_ms", BIGINT, "Not tried again before this time."),
        nullable("target", TEXT, "Broker and offsets that were aimed at."),
        nullable("answer", TEXT, "What the broker or the handler answered."),
        nullable("message", TEXT, "Hand-over: topic, properties, body (base64); emptied at DONE."),
        column("created_at_ms", BIGINT, "When the loss was proved."),
        nullable("sent_at_ms", BIGINT, "Last send."),
        nullable("done_at_ms", BIGINT, "When every group's inbox had the key."),
        nullable("first_sent_at_ms", BIGINT, "First send; NULL also where an older release sent it."),
        key=("environment", "topic", "scope", "unique_key"),
        comment="One row a repair: END and republish once a key (scope '*'), a hand-over once a key and group.",
    )
    op.create_index(
        "ix_reconciler_repair_environment_state_next", "reconciler_repair", ["environment", "state", "next_at_ms"]
    )
    op.create_index("ix_reconciler_repair_unique", "reconciler_repair", ["unique_key"])


def _create_round() -> None:
    create_table(
        "reconciler_round",
        column("environment", NAME, "Environment."),
        column("topic", NAME, "Business topic."),
        column("consumer_group", NAME, "The group."),
        sa.Column("shard", INTEGER, nullable=False, autoincrement=False, comment="Shard."),
        column("epoch", NAME, "Redis memory the round ran in."),
        sa.Column(
            "generation", sa.BigInteger(), nullable=False, autoincrement=False, comment="The fence after the round."
        ),
        column("at_ms", BIGINT, "Redis TIME of the round."),
        column("offsets", TEXT, '{"broker/queue": next offset} when the round ran.'),
        column("announced", BIGINT, "Keys in the half set."),
        column("matched", BIGINT, "Of those, consumed already."),
        column("pending_before", BIGINT, "Pending before the round."),
        column("pending_added", BIGINT, "New in pending."),
        column("pending_matched", BIGINT, "Left pending because they were consumed."),
        column("pending_after", BIGINT, "Pending after the round."),
        column("void", INTEGER, "1: Redis fell back to a memory before this round, which counts as never run."),
        column("stored_at_ms", BIGINT, "When the row was written."),
        key=("environment", "topic", "consumer_group", "shard", "epoch", "generation"),
        comment="One row a round that ran: its counts and the announcement offsets it covered.",
    )
    op.create_index("ix_reconciler_round_environment_stored", "reconciler_round", ["environment", "stored_at_ms"])


def _create_floor() -> None:
    create_table(
        "reconciler_floor",
        column("environment", NAME, "Environment."),
        column("topic", NAME, "Business topic."),
        column("consumer_group", NAME, "The group."),
        column("broker", NAME, "Broker of the unique-key topic's queue."),
        sa.Column("queue_id", INTEGER, nullable=False, autoincrement=False, comment="Queue number."),
        column("queue_offset", BIGINT, "Lowest offset with a key that may be neither matched nor settled."),
        column("updated_at_ms", BIGINT, "Last change."),
        key=("environment", "topic", "consumer_group", "broker", "queue_id"),
        comment="Everything announced below this offset was matched or settled: "
        "where to start when Redis lost everything.",
    )


def _create_outage() -> None:
    create_table(
        "reconciler_outage",
        column("environment", NAME, "Environment."),
        sa.Column(
            "started_at_ms",
            sa.BigInteger(),
            nullable=False,
            autoincrement=False,
            comment="Start, or the last stored round before it.",
        ),
        column("reason", SHORT, "AWAY, MEMORY_LOST or UNSAFE."),
        column("noticed_by", NAME, "Process that opened the row."),
        nullable("scan_position", TEXT, "Progress of the inbox scan."),
        column("scanned", BIGINT, "Inbox rows put back into commit sets."),
        nullable("closed_at_ms", BIGINT, "End of the outage."),
        key=("environment", "started_at_ms"),
        comment="One row an outage: Redis was away or lost its memory. Open while closed_at_ms is NULL.",
    )


def _create_hold() -> None:
    create_table(
        "reconciler_hold",
        column("environment", NAME, "Environment."),
        column("topic", NAME, "Business topic."),
        column("kind", SHORT, "HOLD or BREAKER."),
        column("since_ms", BIGINT, "Time of the event."),
        column("by", NAME, "User or process."),
        column("reason", TEXT, "Reason."),
        key=("environment", "topic", "kind"),
        comment="Repairs of a topic are stopped: by a person (HOLD) or by the circuit breaker (BREAKER).",
    )


def _create_quarantine() -> None:
    create_table(
        "reconciler_quarantine",
        column("environment", NAME, "Environment of the refusing process."),
        column("unique_key_topic", NAME, "Topic it came from."),
        column("broker", NAME, "Broker."),
        sa.Column("queue_id", INTEGER, nullable=False, autoincrement=False, comment="Queue number."),
        sa.Column("queue_offset", sa.BigInteger(), nullable=False, autoincrement=False, comment="Offset."),
        column("reason", SHORT, "MALFORMED, VERSION, ENVIRONMENT, TOPIC, SIGNATURE, SIZE or SHAPE."),
        column("detail", TEXT, "The error's message."),
        column("body", BYTES, "The first 4 KiB of the body."),
        column("seen_at_ms", BIGINT, "Time of the event."),
        key=("environment", "unique_key_topic", "broker", "queue_id", "queue_offset"),
        comment="Announcements that were refused: counted and kept, the queue moved on.",
    )


def _create_broker() -> None:
    create_table(
        "reconciler_broker",
        column("environment", NAME, "Environment."),
        column("topic", NAME, "Business topic."),
        column("broker", NAME, "Broker name."),
        nullable("gone_since_ms", BIGINT, "First round that missed it in the route; NULL: it is there."),
        key=("environment", "topic", "broker"),
        comment="One row a broker that was seen in a topic's route: while it is away, nothing of the topic is ABSENT.",
    )


def _create_operator_action() -> None:
    create_table(
        "reconciler_operator_action",
        column("action_id", KEY, "Random."),
        column("environment", NAME, "Environment."),
        column("by", NAME, "User."),
        column("command", SHORT, "hold, resume, repair, dismiss or rebuild."),
        nullable("topic", NAME, "Business topic; NULL: of all."),
        nullable("consumer_group", NAME, "The group; NULL: of all."),
        nullable("unique_key", KEY, "UNIQ_KEY, where it was done to one message."),
        column("detail", TEXT, "The reason or options that were given."),
        column("started_at_ms", BIGINT, "Just before it was done."),
        nullable("ended_at_ms", BIGINT, "NULL: under way, or the process died in it."),
        nullable("result", TEXT, "What was done, or the error."),
        key=("action_id",),
        comment=(
            "One row an action that a person took by hand, written before it is done: by whom, what, and its result."
        ),
    )
    op.create_index(
        "ix_reconciler_operator_action_environment_started",
        "reconciler_operator_action",
        ["environment", "started_at_ms"],
    )
    op.create_index("ix_reconciler_operator_action_unique", "reconciler_operator_action", ["unique_key"])


def _create_job() -> None:
    create_table(
        "reconciler_job",
        column("job_id", KEY, "Random, or made of the idempotency key of the request."),
        column("environment", NAME, "Environment."),
        column("kind", SHORT, "REPAIR or REBUILD."),
        column("request", TEXT, "What was asked for: keys, topic and group or a time, and the reason."),
        column("by", NAME, "User."),
        column("state", SHORT, "QUEUED, RUNNING, DONE, FAILED or CANCELLED."),
        nullable("token", NAME, "Owner of the claim."),
        nullable("lease_until_ms", BIGINT, "End of the claim; before it no other process takes the job."),
        column("attempts", INTEGER, "Claims since the job last came forward: an owner that dies gives none back."),
        nullable("work", TEXT, "Repair: topic, group and key of each message, in order."),
        column("done", BIGINT, "Repair: keys that are finished, from the first on. Rebuild: inbox rows."),
        nullable("total", BIGINT, "Repair: keys. NULL: not known."),
        nullable("counts", TEXT, "Repair: finished keys by outcome."),
        nullable("lines", TEXT, "Repair: the first keys that did not end well, and why."),
        nullable("error", TEXT, "Why it failed, or what it waits for."),
        nullable("cancelled_by", NAME, "Who wished that it ends before its time."),
        column("created_at_ms", BIGINT, "When it was asked for."),
        nullable("started_at_ms", BIGINT, "First claim."),
        nullable("ended_at_ms", BIGINT, "When it was DONE, FAILED or CANCELLED."),
        key=("job_id",),
        comment="One row a job: a long action that a person asked for, done by one process at a time, by any that can.",
    )
    op.create_index("ix_reconciler_job_environment_created", "reconciler_job", ["environment", "created_at_ms"])
    op.create_index(
        "ix_reconciler_job_environment_state_created", "reconciler_job", ["environment", "state", "created_at_ms"]
    )


def _create_idempotency_key() -> None:
    create_table(
        "reconciler_idempotency_key",
        column("environment", NAME, "Environment."),
        column("by", NAME, "User: the keys of two users are not the same key."),
        column("idempotency_key", NAME, "The act, and a digest of the client's key."),
        column("digest", DIGEST, "SHA-256 of the request: another request with the same key is refused."),
        column("state", SHORT, "UNDER_WAY or ANSWERED."),
        nullable("token", NAME, "Who works on it."),
        nullable("lease_until_ms", BIGINT, "After it a request that is UNDER_WAY counts as dead."),
        nullable("status", INTEGER, "Status of the answer."),
        nullable("answer", TEXT, "The answer."),
        column("created_at_ms", BIGINT, "First request."),
        key=("environment", "by", "idempotency_key"),
        comment=(
            "One row a request with an idempotency key: the same request again is answered from here. Kept for a day."
        ),
    )
    op.create_index(
        "ix_reconciler_idempotency_key_environment_created",
        "reconciler_idempotency_key",
        ["environment", "created_at_ms"],
    )


def _create_environment() -> None:
    create_table(
        "reconciler_environment",
        column("environment", NAME, "Environment."),
        column("brokers", TEXT, 'List of "cluster/broker at address": what that process knows.'),
        column("by", NAME, "Process that wrote the row last."),
        column("renewed_at_ms", BIGINT, "When it did; 30 s later the row says nothing any more."),
        key=("environment",),
        comment=(
            "One row an environment: the cluster that its processes run with. Processes of another cluster are refused."
        ),
    )


def _create_notice() -> None:
    create_table(
        "reconciler_notice",
        column("environment", NAME, "Environment."),
        column("notifier", NAME, "Name of the notifier."),
        column("kind", SHORT, "What it is about: a word of [[notifiers]] notices."),
        column("topic", NAME, "Business topic; empty: of no single one."),
        column("consumer_group", NAME, "The group; empty: of no single one."),
        column("version", INTEGER, "Grows with every change: a process replaces only the version that it has read."),
        column("is_open", INTEGER, "1: the receiver knows of the trouble, and not of its end."),
        column("mark_ms", BIGINT, "Losses, outages: all until then were told. Others: time of the newest told."),
        column("mark_count", BIGINT, "How many of those after mark_ms, or of those that stood, were told."),
        nullable("since_ms", BIGINT, "When the trouble began that was told last."),
        nullable("told_at_ms", BIGINT, "When a message was sent last."),
        nullable("trouble_at_ms", BIGINT, "When one was sent last that not only told an end."),
        nullable("notice", TEXT, "The message that waits, and what is told with it."),
        column("next_at_ms", BIGINT, "It is not sent before this time."),
        nullable("token", NAME, "Owner of the claim."),
        nullable("lease_until_ms", BIGINT, "End of the claim; after it another process sends it."),
        column("attempts", INTEGER, "Tries since a message was sent: written before a byte leaves."),
        nullable("error", TEXT, "Why the last try failed."),
        column("is_refused", INTEGER, "1: the receiver refused it; a person has to mend something."),
        column("created_at_ms", BIGINT, "When the row was made; of the oldest row: when the notifier began."),
        key=("environment", "notifier", "kind", "topic", "consumer_group"),
        comment="One row a conversation: what one notifier told of one kind of trouble, and the message that waits.",
    )


def _index_by_time(name: str, table: str, columns: list[str]) -> None:
    """Builds an index of the rows that have the time. MySQL and MariaDB index all rows."""
    has_value = sa.text(f"{columns[-1]} IS NOT NULL")
    op.create_index(name, table, columns, postgresql_where=has_value, sqlite_where=has_value)


def _index_pages() -> None:
    """Builds the indexes for pages of listings, which show the newest row first."""
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
    """Builds the indexes for counting.

    PostgreSQL's indexes have a condition that is true for all rows. Only counts state this condition. So a planner
    without statistics uses the indexes for counts, and never to find a key.
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
