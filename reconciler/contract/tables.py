"""Tables as plain data. SQLAlchemy tables and DDL (reconciler/sql), tests of migrations and docs are made from these
values.

The tables are the evidence. The *outbox* of a producer proves its commits, and the *inbox* of a consumer its effects.
The *ledger* keeps what the reconciler judged and did. Redis proves nothing. All times are milliseconds UTC, as BIGINT,
of the database's own clock (SQLite: the host's).
"""

from __future__ import annotations

from enum import StrEnum

from reconciler.contract.schema import Column, PageIndex, Table
from reconciler.contract.verdicts import Undecided, Verdict
from reconciler.errors import warn_of_former_paths


class OutboxState(StrEnum):
    """State of an outbox row. Committed <=> the row is visible and not ROLLED_BACK."""

    NEW = "NEW"
    ANNOUNCED = "ANNOUNCED"
    SETTLED = "SETTLED"
    ROLLED_BACK = "ROLLED_BACK"


class CandidateState(StrEnum):
    """State of a candidate row."""

    OPEN = "OPEN"
    SETTLED = "SETTLED"
    QUARANTINED = "QUARANTINED"


class RepairState(StrEnum):
    """State of a repair row (its transitions: reconciler/policy/repairing)."""

    OPEN = "OPEN"
    SENDING = "SENDING"
    SENT = "SENT"
    DONE = "DONE"
    FAILED = "FAILED"


class Rung(StrEnum):
    """A *rung* is a way to repair. The members are all rungs in the default order."""

    END = "end"
    REPUBLISH = "republish"
    HAND_OVER = "hand-over"


REPAIR_ORDER_DEFAULT = tuple(Rung)


class HoldKind(StrEnum):
    """What stopped the repairs of a topic: a person, or the circuit breaker."""

    HOLD = "HOLD"
    BREAKER = "BREAKER"


class JobKind(StrEnum):
    """What a job does."""

    REPAIR = "REPAIR"
    REBUILD = "REBUILD"


class JobState(StrEnum):
    """State of a job row. The last three are final."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    DONE = "DONE"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class PostState(StrEnum):
    """State of a request that changes something and came with an idempotency key."""

    UNDER_WAY = "UNDER_WAY"
    ANSWERED = "ANSWERED"


class NoticeKind(StrEnum):
    """The kinds of events that the channels of `[[notifiers]]` report to people."""

    LOSS_PROVED = "LOSS_PROVED"
    QUARANTINED = "QUARANTINED"
    REPAIR_FAILED = "REPAIR_FAILED"
    BREAKER_OPEN = "BREAKER_OPEN"
    OUTAGE = "OUTAGE"
    AUDIT_VIOLATION = "AUDIT_VIOLATION"
    ROUNDS_STALE = "ROUNDS_STALE"
    ACCOUNTED_UNTIL_STALE = "ACCOUNTED_UNTIL_STALE"
    LEDGER_AWAY = "LEDGER_AWAY"
    BROKER_AWAY = "BROKER_AWAY"
    DATABASE_AWAY = "DATABASE_AWAY"


#: The scope of repairs that every group sees (END, republish). The scope of a hand-over is the group's name.
EVERY_GROUP = "*"

#: Prefixes of the name of a person who acted: a login on the command line, a user of the console, and a person whom a
#: proxy named.
LOGIN_PREFIX, WEB_USER_PREFIX, PROXY_USER_PREFIX = "operator ", "web:", "proxy:"
BY_PREFIXES = (LOGIN_PREFIX, WEB_USER_PREFIX, f"{WEB_USER_PREFIX}{PROXY_USER_PREFIX}")


OUTBOX = Table(
    name="reconciler_outbox",
    doc="One row a transactional message, written in the local transaction: the only evidence of the commit.",
    columns=(
        Column("unique_key", "key", "UNIQ_KEY, made before the half is sent."),
        Column("topic", "name", "Business topic."),
        Column("producer_group", "name", "PGROUP of the half."),
        Column("tag", "name", "Tag, or NULL.", nullable=True),
        Column("message_keys", "text", "KEYS as sent, without the unique key, or NULL.", nullable=True),
        Column("business_id", "name", "The business transaction's own id, also property BUSINESS_ID.", nullable=True),
        Column("half_broker", "name", "Broker of the half; NULL where the client does not report it.", nullable=True),
        Column("half_commit_log_offset", "bigint", "Commit-log offset of the first half copy.", nullable=True),
        Column("half_queue_offset", "bigint", "Queue offset of the first half copy.", nullable=True),
        Column("properties", "json", "User properties, if the body is kept.", nullable=True, members="text"),
        Column("body", "bytes", "Uncompressed body, if the producer keeps bodies.", nullable=True),
        Column("content_digest", "digest", "contract/content_digest.py; NULL: not checked.", nullable=True),
        Column("state", "short", "NEW, ANNOUNCED, SETTLED or ROLLED_BACK (a tombstone).", words=tuple(OutboxState)),
        Column("created_at_ms", "bigint", "When the row was written."),
        Column("announced_at_ms", "bigint", "Last announcement.", nullable=True),
        Column("settled_at_ms", "bigint", "When every inbox had the key.", nullable=True),
    ),
    primary_key=("unique_key",),
    indexes=(
        ("state", "created_at_ms"),
        ("state", "announced_at_ms"),
        ("created_at_ms",),
        ("business_id", "created_at_ms"),
    ),
)

OUTBOX_IDENTITY = Table(
    name="reconciler_outbox_identity",
    doc="Identity of this database, so that record() notices a connection to another one; and its sign of life.",
    columns=(
        Column("id", "integer", "1: the identity. 2: the sign of life, in a row of its own that no record() locks."),
        Column("identity", "name", "Random text, made by the migration."),
        Column("swept_at_ms", "bigint", "Row 2: time of the last sweep; NULL before the first one.", nullable=True),
    ),
    primary_key=("id",),
)

OUTBOX_FILTER = Table(
    name="reconciler_outbox_filter",
    doc="Tags whose rows were settled only after the group's effect: for its other tags SETTLED proves no effect.",
    columns=(
        Column("producer_group", "name", "Producer group of the rows."),
        Column("topic", "name", "Business topic."),
        Column("consumer_group", "name", "The group."),
        Column("tags", "json", 'Sorted list, or "*" for every message.'),
        Column("version", "integer", "Grows with every change: a sweeper replaces only the version that it has read."),
    ),
    primary_key=("producer_group", "topic", "consumer_group"),
)

#: The topic of inbox rows that repeat an effect under its former name, the offset message id. Releases up to 0.2.0 find
#: messages with other keys by this name. Scans and audits read rows of one topic, and no topic has this name. Only one
#: more release writes such rows.
FORMER_NAMES_TOPIC = "(offset message ids)"


def is_former_name_of_another(unique_key: str, *, topic: str, duplicate_of: str | None) -> bool:
    """Returns True if a row under a former name of the key belongs to another message. Such rows name their message: a
    broker whose store was replaced assigns offsets again, and so the same names."""
    return topic == FORMER_NAMES_TOPIC and duplicate_of != unique_key


class RepairAct(StrEnum):
    """The ways in which messages are repaired by hand."""

    #: The rungs of `repair_order`, for every group that lacks the effect.
    LADDER = "ladder"
    #: The replay worker of one group.
    HAND_OVER = "hand-over"
    #: Takes back a hand-over that waits for a replay worker.
    CANCEL = "cancel"


class Ending(StrEnum):
    """How a person ends an inbox row whose effect may be incomplete."""

    #: The effect is complete, or a person completed it: the row becomes complete.
    ACCEPT = "accept"
    #: A person undid the incomplete effect: the row is deleted, and the next delivery runs the handler.
    DELETE = "delete"


#: The inbox column that marks rows whose effect may be incomplete.
INCOMPLETE = "incomplete"

INBOX = Table(
    name="reconciler_inbox",
    doc="One row an effect, written in the transaction of the effect: the evidence of the consumption.",
    columns=(
        Column("consumer_group", "name", "The group."),
        Column("unique_key", "key", "UNIQ_KEY."),
        Column("topic", "name", "Business topic."),
        Column("dedupe_key", "name", "Business id, where the handler dedupes by it.", nullable=True),
        Column("duplicate_of", "key", "Unique key with the same dedupe_key that has the effect.", nullable=True),
        Column("content_digest", "digest", "Of the message as consumed; NULL: not checked.", nullable=True),
        Column("source", "short", "consumer, or hand-over."),
        Column("applied_at_ms", "bigint", "When the row was written."),
        Column(
            INCOMPLETE,
            "short",
            "NULL: the effect is whole. Else the mark of the transaction whose handler has not returned.",
            nullable=True,
        ),
    ),
    primary_key=("consumer_group", "unique_key"),
    indexes=(("consumer_group", "applied_at_ms"),),
    unique=(("consumer_group", "dedupe_key"),),
)

CANDIDATE = Table(
    name="reconciler_candidate",
    doc="One row a key that was due and verified: verdict and evidence.",
    columns=(
        Column("environment", "name", "Environment."),
        Column("topic", "name", "Business topic."),
        Column("consumer_group", "name", "The group."),
        Column("unique_key", "key", "UNIQ_KEY."),
        Column("shard", "integer", "Shard."),
        Column("state", "short", "OPEN, SETTLED or QUARANTINED.", words=tuple(CandidateState)),
        Column("verdict", "short", "The latest verdict.", words=tuple(Verdict)),
        Column(
            "loss_verdict",
            "short",
            "The first verdict that meant a loss; never changed.",
            nullable=True,
            words=tuple(Verdict),
        ),
        Column("evidence", "json", "What each witness answered.", members="any"),
        Column("attempts", "integer", "Verifications so far."),
        Column("first_seen_ms", "bigint", "Redis TIME of the round that first saw the key."),
        Column("next_at_ms", "bigint", "Not verified again before this time."),
        Column("updated_at_ms", "bigint", "Last change."),
        Column(
            "ask_again_at_ms",
            "bigint",
            "After this the databases are asked about a closed row again; NULL: they are not.",
            nullable=True,
        ),
        Column(
            "loss_at_ms", "bigint", "When the loss was proved; NULL: it was not, or by an older release.", nullable=True
        ),
        Column(
            "undecided_by",
            "short",
            "What keeps an UNKNOWN key from a verdict; NULL: nothing but time, or an older release wrote the row.",
            nullable=True,
            words=tuple(Undecided),
        ),
        Column(
            "undecided_since_ms", "bigint", "Redis TIME of the first look that it kept from a verdict.", nullable=True
        ),
    ),
    primary_key=("environment", "topic", "consumer_group", "unique_key"),
    indexes=(("environment", "state", "next_at_ms"), ("unique_key",)),
    sparse_indexes=(
        ("environment", "topic", "consumer_group", "ask_again_at_ms"),
        ("environment", "topic", "consumer_group", "loss_at_ms"),
    ),
    page_indexes=(
        PageIndex(time="first_seen_ms"),
        PageIndex(time="first_seen_ms", within="state"),
        PageIndex(time="first_seen_ms", only_with="loss_verdict"),
    ),
    count_index=("environment", "topic", "consumer_group", "state", "verdict", "loss_verdict", "first_seen_ms"),
    undecided_index=("environment", "topic", "consumer_group", "undecided_by", "first_seen_ms", "undecided_since_ms"),
)

REPAIR = Table(
    name="reconciler_repair",
    doc="One row a repair: END and republish once a key (scope '*'), a hand-over once a key and group.",
    columns=(
        Column("environment", "name", "Environment."),
        Column("topic", "name", "Business topic."),
        Column("scope", "name", "'*', or the group of a hand-over."),
        Column("unique_key", "key", "UNIQ_KEY."),
        Column("state", "short", "OPEN, SENDING, SENT, DONE or FAILED.", words=tuple(RepairState)),
        Column("rung", "short", "end, republish or hand-over.", words=tuple(Rung)),
        Column("token", "name", "Owner of the claim.", nullable=True),
        Column("lease_until_ms", "bigint", "End of the claim; after it the row is free.", nullable=True),
        Column("attempts", "integer", "Sends so far: written before a byte leaves."),
        Column("next_at_ms", "bigint", "Not tried again before this time."),
        Column("target", "json", "Broker and offsets that were aimed at.", nullable=True, members="any"),
        Column("answer", "text", "What the broker or the handler answered.", nullable=True),
        Column("message", "json", "Hand-over: topic, properties, body (base64); emptied at DONE.", nullable=True),
        Column("created_at_ms", "bigint", "When the loss was proved."),
        Column("first_sent_at_ms", "bigint", "First send; NULL also where an older release sent it.", nullable=True),
        Column("sent_at_ms", "bigint", "Last send.", nullable=True),
        Column("done_at_ms", "bigint", "When every group's inbox had the key.", nullable=True),
        Column(
            "answer_fact",
            "text",
            "Code and fields of the answer, with a digest of its text; NULL: a handler's, or an older release's.",
            nullable=True,
        ),
    ),
    primary_key=("environment", "topic", "scope", "unique_key"),
    indexes=(("environment", "state", "next_at_ms"), ("unique_key",)),
    sparse_indexes=(("environment", "done_at_ms"),),
    page_indexes=(PageIndex(time="created_at_ms"), PageIndex(time="created_at_ms", within="state")),
    count_index=("environment", "topic", "scope", "state", "rung", "attempts"),
)

ROUND = Table(
    name="reconciler_round",
    doc="One row a round that ran: its counts and the announcement offsets it covered.",
    columns=(
        Column("environment", "name", "Environment."),
        Column("topic", "name", "Business topic."),
        Column("consumer_group", "name", "The group."),
        Column("shard", "integer", "Shard."),
        Column("epoch", "name", "Redis memory the round ran in."),
        Column("generation", "bigint", "The fence after the round."),
        Column("at_ms", "bigint", "Redis TIME of the round."),
        Column("offsets", "json", '{"broker/queue": next offset} when the round ran.', members="number"),
        Column("announced", "bigint", "Keys in the half set."),
        Column("matched", "bigint", "Of those, consumed already."),
        Column("pending_before", "bigint", "Pending before the round."),
        Column("pending_added", "bigint", "New in pending."),
        Column("pending_matched", "bigint", "Left pending because they were consumed."),
        Column("pending_after", "bigint", "Pending after the round."),
        Column("void", "integer", "1: Redis fell back to a memory before this round, which counts as never run."),
        Column("stored_at_ms", "bigint", "When the row was written."),
    ),
    primary_key=("environment", "topic", "consumer_group", "shard", "epoch", "generation"),
    indexes=(("environment", "stored_at_ms"),),
)

SUBSCRIPTION = Table(
    name="reconciler_subscription",
    doc="One row a subscription: since when it answers for messages, and when it was seen at rest last.",
    columns=(
        Column("environment", "name", "Environment."),
        Column("topic", "name", "Business topic."),
        Column("consumer_group", "name", "The group."),
        Column(
            "since_ms",
            "bigint",
            "Its first round, by the clock that was behind the others; NULL: it had rounds before this was kept, and "
            "answers for every message.",
            nullable=True,
        ),
        Column(
            "rest",
            "text",
            "When all its shards were seen at rest last, and of each the time of its last round and the offsets then; "
            "NULL: never.",
            nullable=True,
        ),
    ),
    primary_key=("environment", "topic", "consumer_group"),
)

HALF = Table(
    name="reconciler_half",
    doc="Halves of topics whose commits a query proves, as they were seen: which share a business key.",
    columns=(
        Column("environment", "name", "Environment."),
        Column("topic", "name", "Business topic."),
        Column("unique_key", "key", "Unique key."),
        Column("broker", "name", "Broker that stored it."),
        Column(
            "key_digest", "digest", "SHA-256 of the business's key; NULL: the half does not give it.", nullable=True
        ),
        Column("tag_digest", "digest", "SHA-256 of its tag; NULL: it has none.", nullable=True),
        Column("stored_at_ms", "bigint", "When it was stored first, by the broker's clock."),
    ),
    primary_key=("environment", "topic", "unique_key", "broker"),
    indexes=(("environment", "topic", "key_digest"), ("environment", "stored_at_ms")),
)

FLOOR = Table(
    name="reconciler_floor",
    doc="Everything announced below this offset was matched or settled: where to start when Redis lost everything.",
    columns=(
        Column("environment", "name", "Environment."),
        Column("topic", "name", "Business topic."),
        Column("consumer_group", "name", "The group."),
        Column("broker", "name", "Broker of the unique-key topic's queue."),
        Column("queue_id", "integer", "Queue number."),
        Column("queue_offset", "bigint", "Lowest offset with a key that may be neither matched nor settled."),
        Column("updated_at_ms", "bigint", "Last change."),
        Column(
            "proof",
            "text",
            "Next offset, then queue offset, store time, commit-log offset and unique key of the last record before "
            "it: what the queue must still have for the floor to count.",
            nullable=True,
        ),
    ),
    primary_key=("environment", "topic", "consumer_group", "broker", "queue_id"),
)

OUTAGE = Table(
    name="reconciler_outage",
    doc="One row an outage: Redis was away or lost its memory. Open while closed_at_ms is NULL.",
    columns=(
        Column("environment", "name", "Environment."),
        Column("started_at_ms", "bigint", "Start, or the last stored round before it."),
        Column("reason", "short", "AWAY, MEMORY_LOST or UNSAFE."),
        Column("noticed_by", "name", "Process that opened the row."),
        Column("scan_position", "json", "Progress of the inbox scan.", nullable=True, members="any"),
        Column("scanned", "bigint", "Inbox rows put back into commit sets."),
        Column("closed_at_ms", "bigint", "End of the outage.", nullable=True),
    ),
    primary_key=("environment", "started_at_ms"),
)

HOLD = Table(
    name="reconciler_hold",
    doc="Repairs of a topic are stopped: by a person (HOLD) or by the circuit breaker (BREAKER).",
    columns=(
        Column("environment", "name", "Environment."),
        Column("topic", "name", "Business topic."),
        Column("kind", "short", "HOLD or BREAKER.", words=tuple(HoldKind)),
        Column("since_ms", "bigint", "Time of the event."),
        Column("by", "name", "User or process."),
        Column("reason", "text", "Reason."),
        Column(
            "fact",
            "text",
            "Code and fields of a HOLD's end, or of why the breaker opened, with a digest of the reason.",
            nullable=True,
        ),
    ),
    primary_key=("environment", "topic", "kind"),
)

BROKER = Table(
    name="reconciler_broker",
    doc="One row a broker that was seen in a topic's route: while it is away, nothing of the topic is ABSENT.",
    columns=(
        Column("environment", "name", "Environment."),
        Column("topic", "name", "Business topic."),
        Column("broker", "name", "Broker name."),
        Column("gone_since_ms", "bigint", "First round that missed it in the route; NULL: it is there.", nullable=True),
    ),
    primary_key=("environment", "topic", "broker"),
)

ENVIRONMENT = Table(
    name="reconciler_environment",
    doc="One row an environment: the cluster that its processes run with. Processes of another cluster are refused.",
    columns=(
        Column("environment", "name", "Environment."),
        Column("brokers", "json", 'List of "cluster/broker at address": what that process knows.'),
        Column("by", "name", "Process that wrote the row last."),
        Column("renewed_at_ms", "bigint", "When it did; 30 s later the row says nothing any more."),
    ),
    primary_key=("environment",),
)

QUARANTINE = Table(
    name="reconciler_quarantine",
    doc="Announcements that were refused: counted and kept, the queue moved on.",
    columns=(
        Column("environment", "name", "Environment of the refusing process."),
        Column("unique_key_topic", "name", "Topic it came from."),
        Column("broker", "name", "Broker."),
        Column("queue_id", "integer", "Queue number."),
        Column("queue_offset", "bigint", "Offset."),
        Column("reason", "short", "MALFORMED, VERSION, ENVIRONMENT, TOPIC, SIGNATURE, SIZE or SHAPE."),
        Column("detail", "text", "The error's message."),
        Column("body", "bytes", "The first 4 KiB of the body."),
        Column("seen_at_ms", "bigint", "Time of the event."),
    ),
    primary_key=("environment", "unique_key_topic", "broker", "queue_id", "queue_offset"),
    page_indexes=(PageIndex(time="seen_at_ms"),),
)

OPERATOR_ACTION = Table(
    name="reconciler_operator_action",
    doc="One row an action that a person took by hand, written before it is done: by whom, what, and its result.",
    columns=(
        Column("action_id", "key", "Random."),
        Column("environment", "name", "Environment."),
        Column("by", "name", "User."),
        Column("command", "short", "hold, resume, repair, dismiss or rebuild."),
        Column("topic", "name", "Business topic; NULL: of all.", nullable=True),
        Column("consumer_group", "name", "The group; NULL: of all.", nullable=True),
        Column("unique_key", "key", "UNIQ_KEY, where it was done to one message.", nullable=True),
        Column("detail", "text", "The reason or options that were given."),
        Column("started_at_ms", "bigint", "Just before it was done."),
        Column("ended_at_ms", "bigint", "NULL: under way, or the process died in it.", nullable=True),
        Column("result", "text", "What was done, or the error.", nullable=True),
        Column("fact", "text", "Code and fields of what later commands decide by.", nullable=True),
    ),
    primary_key=("action_id",),
    indexes=(("environment", "started_at_ms"), ("unique_key",)),
)

JOB = Table(
    name="reconciler_job",
    doc="One row a job: a long action that a person asked for, done by one process at a time, by any that can.",
    columns=(
        Column("job_id", "key", "Random, or made of the idempotency key of the request."),
        Column("environment", "name", "Environment."),
        Column("kind", "short", "REPAIR or REBUILD.", words=tuple(JobKind)),
        Column(
            "request", "json", "What was asked for: keys, topic and group or a time, and the reason.", members="any"
        ),
        Column("by", "name", "User."),
        Column("state", "short", "QUEUED, RUNNING, DONE, FAILED or CANCELLED.", words=tuple(JobState)),
        Column("token", "name", "Owner of the claim.", nullable=True),
        Column(
            "lease_until_ms", "bigint", "End of the claim; before it no other process takes the job.", nullable=True
        ),
        Column("attempts", "integer", "Claims since the job last came forward: an owner that dies gives none back."),
        Column("work", "json", "Repair: topic, group and key of each message, in order.", nullable=True, members="any"),
        Column("done", "bigint", "Repair: keys that are finished, from the first on. Rebuild: inbox rows."),
        Column("total", "bigint", "Repair: keys. NULL: not known.", nullable=True),
        Column("counts", "json", "Repair: finished keys by outcome.", nullable=True, members="number"),
        Column("lines", "json", "Repair: the first keys that did not end well, and why.", nullable=True, members="any"),
        Column("error", "text", "Why it failed, or what it waits for.", nullable=True),
        Column("cancelled_by", "name", "Who wished that it ends before its time.", nullable=True),
        Column("created_at_ms", "bigint", "When it was asked for."),
        Column("started_at_ms", "bigint", "First claim.", nullable=True),
        Column("ended_at_ms", "bigint", "When it was DONE, FAILED or CANCELLED.", nullable=True),
    ),
    primary_key=("job_id",),
    indexes=(("environment", "created_at_ms"), ("environment", "state", "created_at_ms")),
)

IDEMPOTENCY_KEY = Table(
    name="reconciler_idempotency_key",
    doc="One row a request with an idempotency key: the same request again is answered from here. Kept for a day.",
    columns=(
        Column("environment", "name", "Environment."),
        Column("by", "name", "User: the keys of two users are not the same key."),
        Column("idempotency_key", "name", "The act, and a digest of the client's key."),
        Column("digest", "digest", "SHA-256 of the request: another request with the same key is refused."),
        Column("state", "short", "UNDER_WAY or ANSWERED.", words=tuple(PostState)),
        Column("token", "name", "Who works on it.", nullable=True),
        Column("lease_until_ms", "bigint", "After it a request that is UNDER_WAY counts as dead.", nullable=True),
        Column("status", "integer", "Status of the answer.", nullable=True),
        Column("answer", "text", "The answer.", nullable=True),
        Column("created_at_ms", "bigint", "First request."),
    ),
    primary_key=("environment", "by", "idempotency_key"),
    indexes=(("environment", "created_at_ms"),),
)

NOTICE = Table(
    name="reconciler_notice",
    doc="One row a conversation: what one notifier told of one kind of trouble, and the message that waits.",
    columns=(
        Column("environment", "name", "Environment."),
        Column("notifier", "name", "Name of the notifier."),
        Column("kind", "short", "What it is about: a word of [[notifiers]] notices.", words=tuple(NoticeKind)),
        Column("topic", "name", "Business topic; empty: of no single one."),
        Column("consumer_group", "name", "The group; empty: of no single one."),
        Column("version", "integer", "Grows with every change: a process replaces only the version that it has read."),
        Column("is_open", "integer", "1: the receiver knows of the trouble, and not of its end."),
        Column("mark_ms", "bigint", "Losses, outages: all until then were told. Others: time of the newest told."),
        Column("mark_count", "bigint", "How many of those after mark_ms, or of those that stood, were told."),
        Column("since_ms", "bigint", "When the trouble began that was told last.", nullable=True),
        Column("told_at_ms", "bigint", "When a message was sent last.", nullable=True),
        Column("trouble_at_ms", "bigint", "When one was sent last that not only told an end.", nullable=True),
        Column("notice", "json", "The message that waits, and what is told with it.", nullable=True, members="any"),
        Column("next_at_ms", "bigint", "It is not sent before this time."),
        Column("token", "name", "Owner of the claim.", nullable=True),
        Column("lease_until_ms", "bigint", "End of the claim; after it another process sends it.", nullable=True),
        Column("attempts", "integer", "Tries since a message was sent: written before a byte leaves."),
        Column("error", "text", "Why the last try failed.", nullable=True),
        Column("is_refused", "integer", "1: the receiver refused it; a person has to mend something."),
        Column("created_at_ms", "bigint", "When the row was made; of the oldest row: when the notifier began."),
    ),
    primary_key=("environment", "notifier", "kind", "topic", "consumer_group"),
)

OUTBOX_TABLES = (OUTBOX, OUTBOX_IDENTITY, OUTBOX_FILTER)
INBOX_TABLES = (INBOX,)
LEDGER_TABLES = (
    *(CANDIDATE, REPAIR, ROUND, SUBSCRIPTION, HALF, FLOOR, OUTAGE),
    *(HOLD, BROKER, ENVIRONMENT, QUARANTINE, OPERATOR_ACTION, JOB, IDEMPOTENCY_KEY, NOTICE),
)

#: Tables that 0.2.0 lacks. If such a table is missing, its writers work without it and say so.
LATER_TABLES = frozenset({SUBSCRIPTION.name, HALF.name})

#: The tables in which migrations store the revision. Each tree has one.
VERSION_TABLES = {tree: f"reconciler_alembic_version_{tree}" for tree in ("outbox", "inbox", "ledger")}


warn_of_former_paths(__name__, {"HoldKind": "reconciler.testing"})
