"""History as plain data: its streams, their columns, and where a row lies (written by the service, read by the audit).

A stream is a folder of Parquet files,
``<history>/<stream>/environment=<env>/date=<YYYY-MM-DD>/[prefix=<NN>/]*.parquet``:
`date` is the UTC day of `at_ms`; `prefix` is CRC-32 of the key's bytes modulo 64, two digits, for streams whose rows
have a key. Only files named by the manifest count (contract/manifest.py). Rows may be there twice (a round
that was captured by two daemons, a batch written again after a crash): readers take streams as sets of rows.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

#: Grows when a reader of the old version would misread the new rows.
HISTORY_VERSION = 1

#: Partitions of every stream whose rows have a key.
PREFIXES = 64

HistoryKind = Literal["key", "name", "text", "bool", "i32", "i64"]


class Leaving(StrEnum):
    """Why an id left pending: a match, the state of its ledger row, or a tag in the outbox that the group does not
    take. `detail` holds the verdict."""

    MATCHED = "MATCHED"
    SETTLED = "SETTLED"
    QUARANTINED = "QUARANTINED"
    NOT_TAKEN = "NOT_TAKEN"


class SnapshotKind(StrEnum):
    """Why pending was written down."""

    DAY_END = "DAY_END"
    SHUTDOWN = "SHUTDOWN"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryColumn:
    """One column. `key` is the unique key's bytes (16, 17 or 28 of them, 32 at most), never its hex form."""

    name: str
    kind: HistoryKind
    doc: str
    nullable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryStream:
    """One stream."""

    name: str
    doc: str
    columns: tuple[HistoryColumn, ...]

    @property
    def has_key(self) -> bool:
        """True: partitioned by prefix too."""
        return any(column.kind == "key" for column in self.columns)


def prefix_of(member: bytes) -> int:
    """The partition of a key's bytes."""
    return zlib.crc32(member) % PREFIXES


def _c(name: str, kind: HistoryKind, doc: str, *, nullable: bool = False) -> HistoryColumn:
    return HistoryColumn(name=name, kind=kind, doc=doc, nullable=nullable)


_SUBSCRIPTION = (
    _c("topic", "name", "Business topic."),
    _c("consumer_group", "name", "The group."),
)
_ROUND = (
    *_SUBSCRIPTION,
    _c("shard", "i32", "Shard."),
    _c("epoch", "name", "Redis memory the round ran in."),
    _c("generation", "i64", "The fence after the round."),
    _c("at_ms", "i64", "Redis TIME of the round."),
)
_KEY = _c("key", "key", "The unique key's bytes.")

ANNOUNCED = HistoryStream(
    name="announced", doc="Every id that a round took from the half set.", columns=(*_ROUND, _KEY)
)
CONSUMED = HistoryStream(
    name="consumed", doc="Every id that a round took from the commit set.", columns=(*_ROUND, _KEY)
)
LEFT = HistoryStream(
    name="left",
    doc="Every id that left pending, with the reason.",
    columns=(
        *_SUBSCRIPTION,
        _c("shard", "i32", "Shard."),
        _c("at_ms", "i64", "When: Redis TIME of the round for MATCHED, else the service's clock."),
        _KEY,
        _c("reason", "name", "MATCHED, SETTLED, QUARANTINED or NOT_TAKEN."),
        _c("detail", "name", "The verdict; NULL for MATCHED and NOT_TAKEN.", nullable=True),
    ),
)
PENDING = HistoryStream(
    name="pending",
    doc="Every id that was pending when a snapshot was taken.",
    columns=(
        *_SUBSCRIPTION,
        _c("shard", "i32", "Shard."),
        _c("at_ms", "i64", "Redis TIME before the snapshot was read; the same as its row in `snapshot`."),
        _KEY,
        _c("first_seen_ms", "i64", "Redis TIME of the round that first saw the id."),
    ),
)
SNAPSHOT = HistoryStream(
    name="snapshot",
    doc="One row a snapshot of a shard's pending, also of an empty one.",
    columns=(
        *_SUBSCRIPTION,
        _c("shard", "i32", "Shard."),
        _c("epoch", "name", "Redis memory."),
        _c("generation", "i64", "The fence when it was read."),
        _c("at_ms", "i64", "Redis TIME before it was read."),
        _c("kind", "name", "DAY_END or SHUTDOWN."),
        _c("rows", "i64", "Ids in it."),
    ),
)
ROUND = HistoryStream(
    name="round",
    doc="One row a round that was captured: its counts, and how many ids lie in the id streams.",
    columns=(
        *_ROUND,
        _c("announced", "i64", "Ids taken from the half set = its rows in `announced`."),
        _c("consumed", "i64", "Ids taken from the commit set = its rows in `consumed`."),
        _c("left_matched", "i64", "Ids that left pending by a match = its rows in `left`."),
        _c(
            "matched",
            "i64",
            "Of the announced, consumed already; NULL where the reply was lost.",
            nullable=True,
        ),
        _c("pending_before", "i64", "Pending before the round; NULL likewise.", nullable=True),
        _c("pending_added", "i64", "New in pending; NULL likewise.", nullable=True),
        _c("pending_after", "i64", "Pending after the round; NULL likewise.", nullable=True),
    ),
)
GATE = HistoryStream(
    name="gate",
    doc="One row a subscription's round over all its shards: the gate, and what was judged and settled.",
    columns=(
        *_SUBSCRIPTION,
        _c("at_ms", "i64", "Redis TIME of the newest shard round."),
        _c("shards_run", "i32", "Shards whose round ran here."),
        _c("gate", "name", "open, shut, or not asked."),
        _c("watermark_ms", "i64", "The group's consumption watermark, broker store time.", nullable=True),
        _c("pending", "i64", "Pending over the shards that ran here."),
        _c("became_due", "i64", "Ids that became due."),
        _c("verified", "i64", "Ids that were verified."),
        _c("settled", "i64", "Ids that left pending with a verdict."),
    ),
)
VERDICT = HistoryStream(
    name="verdict",
    doc="Every verdict, with its evidence, as it was written into the ledger.",
    columns=(
        *_SUBSCRIPTION,
        _c("shard", "i32", "Shard."),
        _c("at_ms", "i64", "When, by the service's clock."),
        _KEY,
        _c("verdict", "name", "contract/verdicts.py."),
        _c("state", "name", "OPEN, SETTLED or QUARANTINED."),
        _c("first_seen_ms", "i64", "Redis TIME of the round that first saw the id."),
        _c("evidence", "text", "JSON: what each witness answered."),
    ),
)
REPAIR = HistoryStream(
    name="repair",
    doc="Every change of a repair's state.",
    columns=(
        _c("topic", "name", "Business topic."),
        _c("scope", "name", "'*', or the group of a hand-over."),
        _c("at_ms", "i64", "When, by the service's clock."),
        _KEY,
        _c("rung", "name", "end, republish or hand-over."),
        _c("before", "name", "State before."),
        _c("after", "name", "State after."),
        _c("attempts", "i32", "Sends so far."),
        _c("answer", "text", "What the broker or the handler answered.", nullable=True),
    ),
)
GAP = HistoryStream(
    name="gap",
    doc="What history knows that it lacks: rounds that its writer ran and could not capture, rows that found no room "
    "or were damaged (topic and group '*'). A hole between generations is a gap, too, told or not.",
    columns=(
        *_SUBSCRIPTION,
        _c("shard", "i32", "Shard; -1: rows of many shards.", nullable=False),
        _c("epoch", "name", "Redis memory, where known.", nullable=True),
        _c("first_generation", "i64", "First round that is missing.", nullable=True),
        _c("last_generation", "i64", "Last round that is missing.", nullable=True),
        _c("from_ms", "i64", "Nothing is missing before."),
        _c("at_ms", "i64", "Nothing is missing after."),
        _c("stream", "name", "Stream whose rows are missing."),
        _c("rows", "i64", "How many, where known.", nullable=True),
        _c("reason", "text", "Why."),
    ),
)

#: Every stream; docs and schemas are made from it.
HISTORY_STREAMS = (ANNOUNCED, CONSUMED, LEFT, PENDING, SNAPSHOT, ROUND, GATE, VERDICT, REPAIR, GAP)
