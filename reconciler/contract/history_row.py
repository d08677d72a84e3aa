"""History as plain data: its streams, their columns, and the folder of each row. The reconciler writes the history, and
the audit reads it.

A stream is a folder of Parquet files,
``<history>/<stream>/environment=<env>/date=<YYYY-MM-DD>/[prefix=<NN>/]*.parquet``: `date` is the UTC day of `at_ms`.
`prefix` is CRC-32 of the key's bytes modulo 64, as two digits, for streams whose rows have a key. Only files that the
manifest names count (contract/manifest.py). A row may be stored twice, if two daemons captured its round, or a batch
was written again after a crash. So readers take a stream as a set of rows.
"""

from __future__ import annotations

import zlib
from enum import StrEnum

from reconciler.contract.schema import Column, Table

#: Grows when a reader of the old version would misread the new rows. Version 2 has keys that are text
#: (contract/unique_key.py).
HISTORY_VERSION = 2

#: Number of partitions of each stream whose rows have a key.
PREFIXES = 64


class Leaving(StrEnum):
    """Why a key left pending: a match, the state of its ledger row, or a tag in the outbox that the group does not
    take. `detail` holds the verdict."""

    MATCHED = "MATCHED"
    SETTLED = "SETTLED"
    QUARANTINED = "QUARANTINED"
    NOT_TAKEN = "NOT_TAKEN"


class SnapshotKind(StrEnum):
    """Why a snapshot of pending was written. AT_REST: the shard was at rest, and its pending set was empty. Until the
    time of this row, no round later than `generation` ran."""

    DAY_END = "DAY_END"
    SHUTDOWN = "SHUTDOWN"
    AT_REST = "AT_REST"


def prefix_of(member: bytes) -> int:
    """Returns the partition of a key's bytes."""
    return zlib.crc32(member) % PREFIXES


_SUBSCRIPTION = (
    Column("topic", "name", "Business topic."),
    Column("consumer_group", "name", "The group."),
)
_ROUND = (
    *_SUBSCRIPTION,
    Column("shard", "integer", "Shard."),
    Column("epoch", "name", "Redis memory the round ran in."),
    Column("generation", "bigint", "The fence after the round."),
    Column("at_ms", "bigint", "Redis TIME of the round."),
)
_KEY = Column("key", "key", "The unique key's bytes.")

ANNOUNCED = Table(name="announced", doc="Every id that a round took from the half set.", columns=(*_ROUND, _KEY))
CONSUMED = Table(name="consumed", doc="Every id that a round took from the commit set.", columns=(*_ROUND, _KEY))
LEFT = Table(
    name="left",
    doc="Every id that left pending, with the reason.",
    columns=(
        *_SUBSCRIPTION,
        Column("shard", "integer", "Shard."),
        Column("at_ms", "bigint", "When: Redis TIME of the round for MATCHED, else the reconciler's clock."),
        _KEY,
        Column("reason", "name", "MATCHED, SETTLED, QUARANTINED or NOT_TAKEN."),
        Column("detail", "name", "The verdict; NULL for MATCHED and NOT_TAKEN.", nullable=True),
    ),
)
PENDING = Table(
    name="pending",
    doc="Every id that was pending when a snapshot was taken.",
    columns=(
        *_SUBSCRIPTION,
        Column("shard", "integer", "Shard."),
        Column("at_ms", "bigint", "Redis TIME before the snapshot was read; the same as its row in `snapshot`."),
        _KEY,
        Column("first_seen_ms", "bigint", "Redis TIME of the round that first saw the id."),
    ),
)
SNAPSHOT = Table(
    name="snapshot",
    doc="One row a snapshot of a shard's pending, also of an empty one.",
    columns=(
        *_SUBSCRIPTION,
        Column("shard", "integer", "Shard."),
        Column("epoch", "name", "Redis memory."),
        Column("generation", "bigint", "The fence when it was read."),
        Column("at_ms", "bigint", "Redis TIME before it was read."),
        Column("kind", "name", "DAY_END, SHUTDOWN or AT_REST (half, commit and pending set empty)."),
        Column("rows", "bigint", "Ids in it."),
    ),
)
ROUND = Table(
    name="round",
    doc="One row a round that was captured: its counts, and how many ids lie in the id streams.",
    columns=(
        *_ROUND,
        Column("announced", "bigint", "Ids taken from the half set = its rows in `announced`."),
        Column("consumed", "bigint", "Ids taken from the commit set = its rows in `consumed`."),
        Column("left_matched", "bigint", "Ids that left pending by a match = its rows in `left`."),
        Column(
            "matched",
            "bigint",
            "Of the announced, consumed already; NULL where the reply was lost.",
            nullable=True,
        ),
        Column("pending_before", "bigint", "Pending before the round; NULL likewise.", nullable=True),
        Column("pending_added", "bigint", "New in pending; NULL likewise.", nullable=True),
        Column("pending_after", "bigint", "Pending after the round; NULL likewise.", nullable=True),
    ),
)
GATE = Table(
    name="gate",
    doc="One row a subscription's round over all its shards: the gate, and what was judged and settled.",
    columns=(
        *_SUBSCRIPTION,
        Column("at_ms", "bigint", "Redis TIME of the newest shard round, or look at a shard at rest."),
        Column("shards_run", "integer", "Shards that rested or whose round ran here."),
        Column("gate", "name", "open, shut, or not asked."),
        Column("watermark_ms", "bigint", "The group's consumption watermark, broker store time.", nullable=True),
        Column("pending", "bigint", "Pending over the shards that ran here."),
        Column("became_due", "bigint", "Ids that became due."),
        Column("verified", "bigint", "Ids that were verified."),
        Column("settled", "bigint", "Ids that left pending with a verdict."),
    ),
)
VERDICT = Table(
    name="verdict",
    doc="Every verdict, with its evidence, as it was written into the ledger.",
    columns=(
        *_SUBSCRIPTION,
        Column("shard", "integer", "Shard."),
        Column("at_ms", "bigint", "When, by the reconciler's clock."),
        _KEY,
        Column("verdict", "name", "contract/verdicts.py."),
        Column("state", "name", "OPEN, SETTLED or QUARANTINED."),
        Column("first_seen_ms", "bigint", "Redis TIME of the round that first saw the id."),
        Column("evidence", "text", "JSON: what each witness answered."),
    ),
)
REPAIR = Table(
    name="repair",
    doc="Every change of a repair's state.",
    columns=(
        Column("topic", "name", "Business topic."),
        Column("scope", "name", "'*', or the group of a hand-over."),
        Column("at_ms", "bigint", "When, by the reconciler's clock."),
        _KEY,
        Column("rung", "name", "end, republish or hand-over."),
        Column("before", "name", "State before."),
        Column("after", "name", "State after."),
        Column("attempts", "integer", "Sends so far."),
        Column("answer", "text", "What the broker or the handler answered.", nullable=True),
    ),
)
GAP = Table(
    name="gap",
    doc="What history knows that it lacks: rounds that its writer ran and could not capture, rows that found no room "
    "or were damaged (topic and group '*'). A hole between generations is a gap, too, with or without a row here.",
    columns=(
        *_SUBSCRIPTION,
        Column("shard", "integer", "Shard; -1: rows of many shards."),
        Column("epoch", "name", "Redis memory, where known.", nullable=True),
        Column("first_generation", "bigint", "First round that is missing.", nullable=True),
        Column("last_generation", "bigint", "Last round that is missing.", nullable=True),
        Column("from_ms", "bigint", "Nothing is missing before."),
        Column("at_ms", "bigint", "Nothing is missing after."),
        Column("stream", "name", "Stream whose rows are missing."),
        Column("rows", "bigint", "How many, where known.", nullable=True),
        Column("reason", "text", "Why."),
    ),
)

REREAD = Table(
    name="reread",
    doc="Rounds that went with Redis' memory before they were captured, where announcements are read again from at or "
    "below the last round that was. What that round had not accounted for, rounds of the new memory take once more, "
    "as their own. An audit that does not know this stream refuses the history.",
    columns=(
        *_SUBSCRIPTION,
        Column("shard", "integer", "Shard."),
        Column("epoch", "name", "Redis memory that was lost."),
        Column("first_generation", "bigint", "First round that is missing."),
        Column("last_generation", "bigint", "Last round that is missing."),
        Column("from_ms", "bigint", "Redis TIME of the last round that was captured."),
        Column("at_ms", "bigint", "Redis TIME of the first round of the new memory."),
        Column("sources", "text", "JSON: the offset of each queue from which announcements are read again."),
    ),
)

#: Every stream. Docs and schemas are made from this list.
HISTORY_STREAMS = (ANNOUNCED, CONSUMED, LEFT, PENDING, SNAPSHOT, ROUND, GATE, VERDICT, REPAIR, GAP, REREAD)
