"""Tables as plain data: SQLAlchemy tables, DDL, migrations' tests and the docs are made from it (reconciler/sql).

The tables are the evidence: the *outbox* of a producer proves its commits, the *inbox* of a consumer its effects, and
the *ledger* keeps what the reconciler judged and did. Redis proves nothing.
All times are BIGINT milliseconds UTC of the database's own clock (SQLite: the host's).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from reconciler.contract.verdicts import Verdict

ColumnKind = Literal["key", "name", "short", "text", "json", "bytes", "digest", "integer", "bigint"]


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
    """A *rung* is a way to repair; these are all, in the default order."""

    END = "end"
    REPUBLISH = "republish"
    HAND_OVER = "hand-over"


REPAIR_ORDER_DEFAULT = tuple(Rung)


class HoldKind(StrEnum):
    """Who stopped the repairs of a topic."""

    HOLD = "HOLD"
    BREAKER = "BREAKER"


#: Scope of repairs that every group sees (END, republish); a hand-over has the group's name instead.
EVERY_GROUP = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column. Kinds: `key` text 64, `name` text 160, `short` text 32, `digest` 32 bytes, `json` and `text` text."""

    name: str
    kind: ColumnKind
    doc: str
    nullable: bool = False
    #: All that a `short` text may say; empty: anything.
    words: tuple[str, ...] = ()
    #: Of the object that a `json` text spells: the kind of its members. None: its own decoder reads the text.
    members: Literal["text", "number", "any"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    indexes: tuple[tuple[str, ...], ...] = ()
    #: Only of rows that have a value in the last column, where the database can (MySQL and MariaDB cannot): a planner
    #: that knows little of the table must not take it for one that finds a key.
    sparse_indexes: tuple[tuple[str, ...], ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()


def _c(
    name: str,
    kind: ColumnKind,
    doc: str,
    *,
    nullable: bool = False,
    words: type[StrEnum] | None = None,
    members: Literal["text", "number", "any"] | None = None,
) -> Column:
    return Column(name=name, kind=kind, doc=doc, nullable=nullable, words=tuple(words or ()), members=members)


OUTBOX = Table(
    name="reconciler_outbox",
    doc="One row a transactional message, written in the local transaction: the only evidence of the commit.",
    columns=(
        _c("unique_key", "key", "UNIQ_KEY, made before the half is sent."),
        _c("topic", "name", "Business topic."),
        _c("producer_group", "name", "PGROUP of the half."),
        _c("tag", "name", "Tag, or NULL.", nullable=True),
        _c("message_keys", "text", "KEYS as sent, without the unique key, or NULL.", nullable=True),
        _c("business_id", "name", "The business transaction's own id, also property BUSINESS_ID.", nullable=True),
        _c("half_broker", "name", "Broker that holds the half; NULL where the client does not tell.", nullable=True),
        _c("half_commit_log_offset", "bigint", "Commit-log offset of the first half copy.", nullable=True),
        _c("half_queue_offset", "bigint", "Queue offset of the first half copy.", nullable=True),
        _c("properties", "json", "User properties, if the body is kept.", nullable=True, members="text"),
        _c("body", "bytes", "Uncompressed body, if the producer keeps bodies.", nullable=True),
        _c("content_digest", "digest", "contract/content_digest.py; NULL: not checked.", nullable=True),
        _c("state", "short", "NEW, ANNOUNCED, SETTLED or ROLLED_BACK (a tombstone).", words=OutboxState),
        _c("created_at_ms", "bigint", "When the row was written."),
        _c("announced_at_ms", "bigint", "Last announcement.", nullable=True),
        _c("settled_at_ms", "bigint", "When every inbox had the key.", nullable=True),
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
    doc="Names this database, so that record() notices a connection to another one, and has its sign of life.",
    columns=(
        _c("id", "integer", "1: the name. 2: the sign of life, in a row of its own, which no record() locks."),
        _c("identity", "name", "Random text, made by the migration."),
        _c("swept_at_ms", "bigint", "Of row 2: when the last sweep ran; NULL: none did.", nullable=True),
    ),
    primary_key=("id",),
)

OUTBOX_FILTER = Table(
    name="reconciler_outbox_filter",
    doc="Tags whose rows were settled only with the group's effect: SETTLED says nothing of its other tags.",
    columns=(
        _c("producer_group", "name", "Whose rows."),
        _c("topic", "name", "Business topic."),
        _c("consumer_group", "name", "The group."),
        _c("tags", "json", 'Sorted list, or "*" for every message.'),
        _c("version", "integer", "Grows with every change: a sweeper replaces only what it has read."),
    ),
    primary_key=("producer_group", "topic", "consumer_group"),
)

INBOX = Table(
    name="reconciler_inbox",
    doc="One row an effect, written in the transaction of the effect: the evidence of the consumption.",
    columns=(
        _c("consumer_group", "name", "The group."),
        _c("unique_key", "key", "UNIQ_KEY."),
        _c("topic", "name", "Business topic."),
        _c("dedupe_key", "name", "Business id, where the handler dedupes by it.", nullable=True),
        _c("duplicate_of", "key", "Unique key whose effect stands for this one (same dedupe_key).", nullable=True),
        _c("content_digest", "digest", "Of the message as consumed; NULL: not checked.", nullable=True),
        _c("source", "short", "consumer, or hand-over."),
        _c("applied_at_ms", "bigint", "When the row was written."),
    ),
    primary_key=("consumer_group", "unique_key"),
    indexes=(("consumer_group", "applied_at_ms"),),
    unique=(("consumer_group", "dedupe_key"),),
)

CANDIDATE = Table(
    name="reconciler_candidate",
    doc="One row a key that was due and verified: verdict and evidence.",
    columns=(
        _c("environment", "name", "Environment."),
        _c("topic", "name", "Business topic."),
        _c("consumer_group", "name", "The group."),
        _c("unique_key", "key", "UNIQ_KEY."),
        _c("shard", "integer", "Shard."),
        _c("state", "short", "OPEN, SETTLED or QUARANTINED.", words=CandidateState),
        _c("verdict", "short", "The latest verdict.", words=Verdict),
        _c(
            "loss_verdict", "short", "The first verdict that meant a loss; never changed.", nullable=True, words=Verdict
        ),
        _c("evidence", "json", "What each witness answered.", members="any"),
        _c("attempts", "integer", "Verifications so far."),
        _c("first_seen_ms", "bigint", "Redis TIME of the round that first saw the key."),
        _c("next_at_ms", "bigint", "Not verified again before."),
        _c("updated_at_ms", "bigint", "Last change."),
        _c(
            "ask_again_at_ms",
            "bigint",
            "A closed row's databases are asked again after this; NULL: they are not.",
            nullable=True,
        ),
    ),
    primary_key=("environment", "topic", "consumer_group", "unique_key"),
    indexes=(("environment", "state", "next_at_ms"), ("unique_key",)),
    sparse_indexes=(("environment", "topic", "consumer_group", "ask_again_at_ms"),),
)

REPAIR = Table(
    name="reconciler_repair",
    doc="One row a repair: END and republish once a key (scope '*'), a hand-over once a key and group.",
    columns=(
        _c("environment", "name", "Environment."),
        _c("topic", "name", "Business topic."),
        _c("scope", "name", "'*', or the group of a hand-over."),
        _c("unique_key", "key", "UNIQ_KEY."),
        _c("state", "short", "OPEN, SENDING, SENT, DONE or FAILED.", words=RepairState),
        _c("rung", "short", "end, republish or hand-over.", words=Rung),
        _c("token", "name", "Owner of the claim.", nullable=True),
        _c("lease_until_ms", "bigint", "The claim is free after this.", nullable=True),
        _c("attempts", "integer", "Sends so far: written before a byte leaves."),
        _c("next_at_ms", "bigint", "Not tried again before."),
        _c("target", "json", "Broker and offsets that were aimed at.", nullable=True, members="any"),
        _c("answer", "text", "What the broker or the handler answered.", nullable=True),
        _c("message", "json", "Hand-over: topic, properties, body (base64); emptied at DONE.", nullable=True),
        _c("created_at_ms", "bigint", "When the loss was proved."),
        _c("first_sent_at_ms", "bigint", "First send; NULL also where an older release sent it.", nullable=True),
        _c("sent_at_ms", "bigint", "Last send.", nullable=True),
        _c("done_at_ms", "bigint", "When every group's inbox had the key.", nullable=True),
    ),
    primary_key=("environment", "topic", "scope", "unique_key"),
    indexes=(("environment", "state", "next_at_ms"), ("unique_key",)),
)

ROUND = Table(
    name="reconciler_round",
    doc="One row a round that ran: its counts and the announcement offsets it covered.",
    columns=(
        _c("environment", "name", "Environment."),
        _c("topic", "name", "Business topic."),
        _c("consumer_group", "name", "The group."),
        _c("shard", "integer", "Shard."),
        _c("epoch", "name", "Redis memory the round ran in."),
        _c("generation", "bigint", "The fence after the round."),
        _c("at_ms", "bigint", "Redis TIME of the round."),
        _c("offsets", "json", '{"broker/queue": next offset} when the round ran.', members="number"),
        _c("announced", "bigint", "Keys in the half set."),
        _c("matched", "bigint", "Of those, consumed already."),
        _c("pending_before", "bigint", "Pending before the round."),
        _c("pending_added", "bigint", "New in pending."),
        _c("pending_matched", "bigint", "Left pending because they were consumed."),
        _c("pending_after", "bigint", "Pending after the round."),
        _c("void", "integer", "1: Redis fell back behind this round; it never happened."),
        _c("stored_at_ms", "bigint", "When the row was written."),
    ),
    primary_key=("environment", "topic", "consumer_group", "shard", "epoch", "generation"),
    indexes=(("environment", "stored_at_ms"),),
)

FLOOR = Table(
    name="reconciler_floor",
    doc="Everything announced below this offset was matched or settled: where to start when Redis lost everything.",
    columns=(
        _c("environment", "name", "Environment."),
        _c("topic", "name", "Business topic."),
        _c("consumer_group", "name", "The group."),
        _c("broker", "name", "Broker of the unique-key topic's queue."),
        _c("queue_id", "integer", "Queue number."),
        _c("queue_offset", "bigint", "Lowest offset that may still matter."),
        _c("updated_at_ms", "bigint", "Last change."),
    ),
    primary_key=("environment", "topic", "consumer_group", "broker", "queue_id"),
)

OUTAGE = Table(
    name="reconciler_outage",
    doc="One row a time during which Redis was away or lost its memory; open while closed_at_ms is NULL.",
    columns=(
        _c("environment", "name", "Environment."),
        _c("started_at_ms", "bigint", "Start, or the last stored round before it."),
        _c("reason", "short", "AWAY, MEMORY_LOST or UNSAFE."),
        _c("noticed_by", "name", "Process that opened the row."),
        _c("scan_position", "json", "Progress of the inbox scan.", nullable=True, members="any"),
        _c("scanned", "bigint", "Inbox rows put back into commit sets."),
        _c("closed_at_ms", "bigint", "End of the outage.", nullable=True),
    ),
    primary_key=("environment", "started_at_ms"),
)

HOLD = Table(
    name="reconciler_hold",
    doc="Repairs of a topic are stopped: by a person (HOLD) or by the circuit breaker (BREAKER).",
    columns=(
        _c("environment", "name", "Environment."),
        _c("topic", "name", "Business topic."),
        _c("kind", "short", "HOLD or BREAKER.", words=HoldKind),
        _c("since_ms", "bigint", "When."),
        _c("by", "name", "User or process."),
        _c("reason", "text", "Why."),
    ),
    primary_key=("environment", "topic", "kind"),
)

BROKER = Table(
    name="reconciler_broker",
    doc="One row a broker that was seen in a topic's route: while it is away, nothing of the topic is ABSENT.",
    columns=(
        _c("environment", "name", "Environment."),
        _c("topic", "name", "Business topic."),
        _c("broker", "name", "Broker name."),
        _c("gone_since_ms", "bigint", "First round that missed it in the route; NULL: it is there.", nullable=True),
    ),
    primary_key=("environment", "topic", "broker"),
)

QUARANTINE = Table(
    name="reconciler_quarantine",
    doc="Announcements that were refused: counted and kept, the queue moved on.",
    columns=(
        _c("environment", "name", "Environment of the refusing process."),
        _c("unique_key_topic", "name", "Topic it came from."),
        _c("broker", "name", "Broker."),
        _c("queue_id", "integer", "Queue number."),
        _c("queue_offset", "bigint", "Offset."),
        _c("reason", "short", "MALFORMED, VERSION, ENVIRONMENT, TOPIC, SIGNATURE, SIZE or SHAPE."),
        _c("detail", "text", "The error's message."),
        _c("body", "bytes", "The first 4 KiB of the body."),
        _c("seen_at_ms", "bigint", "When."),
    ),
    primary_key=("environment", "unique_key_topic", "broker", "queue_id", "queue_offset"),
)

OPERATOR_ACTION = Table(
    name="reconciler_operator_action",
    doc="One row a thing that a person did by hand, written before it is done: who, what, and what came of it.",
    columns=(
        _c("action_id", "key", "Random."),
        _c("environment", "name", "Environment."),
        _c("by", "name", "User."),
        _c("command", "short", "hold, resume, repair, dismiss or rebuild."),
        _c("topic", "name", "Business topic; NULL: of all.", nullable=True),
        _c("consumer_group", "name", "The group; NULL: of all.", nullable=True),
        _c("unique_key", "key", "UNIQ_KEY, where it was done to one message.", nullable=True),
        _c("detail", "text", "The reason or options that were given."),
        _c("started_at_ms", "bigint", "Just before it was done."),
        _c("ended_at_ms", "bigint", "NULL: under way, or the process died in it.", nullable=True),
        _c("result", "text", "What was done, or the error.", nullable=True),
    ),
    primary_key=("action_id",),
    indexes=(("environment", "started_at_ms"), ("unique_key",)),
)

OUTBOX_TABLES = (OUTBOX, OUTBOX_IDENTITY, OUTBOX_FILTER)
INBOX_TABLES = (INBOX,)
LEDGER_TABLES = (CANDIDATE, REPAIR, ROUND, FLOOR, OUTAGE, HOLD, BROKER, QUARANTINE, OPERATOR_ACTION)
