"""Tables that the judgement reads. The contract gives the columns of the tables, with kinds and values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from reconciler.contract.evidence_layout import (
    CANDIDATE_EVIDENCE,
    EFFECTS_EVIDENCE,
    EVIDENCE_TABLES,
    INBOX_EVIDENCE,
    LEDGER_ROUND_EVIDENCE,
    OUTBOX_EVIDENCE,
    REPAIR_EVIDENCE,
)
from reconciler.contract.history_row import (
    ANNOUNCED,
    CONSUMED,
    HISTORY_STREAMS,
    LEFT,
    PENDING,
    Leaving,
)
from reconciler.contract.schema import Column
from reconciler.contract.tables import CandidateState, OutboxState, RepairState


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTable:
    """Table as the judgement reads it."""

    name: str
    #: Columns of the contract. Each must exist with its type, unless it is one of LATER_COLUMNS.
    columns: tuple[Column, ...]
    #: Columns that are read besides `key`. Digests are read only where digests are compared.
    used: tuple[str, ...]
    #: Column with a closed list of values.
    states: tuple[str, type[StrEnum]] | None = None


_CONTRACT: dict[str, tuple[Column, ...]] = {
    **{table.name: table.columns for table in EVIDENCE_TABLES},
    **{f"history.{stream.name}": stream.columns for stream in HISTORY_STREAMS if stream.has_key},
}


def _t(name: str, *used: str, states: tuple[str, type[StrEnum]] | None = None) -> ReadTable:
    return ReadTable(name=name.removeprefix("history."), columns=_CONTRACT[name], used=used, states=states)


_TABLES = (
    _t(
        OUTBOX_EVIDENCE.name,
        "topic",
        "producer_group",
        "tag",
        "state",
        "created_at_ms",
        states=("state", OutboxState),
    ),
    _t(INBOX_EVIDENCE.name, "topic", "consumer_group", "source", "applied_at_ms", "incomplete"),
    _t(EFFECTS_EVIDENCE.name, "topic", "consumer_group", "effects"),
    _t(
        CANDIDATE_EVIDENCE.name,
        "topic",
        "consumer_group",
        "state",
        "verdict",
        "loss_verdict",
        "first_seen_ms",
        "updated_at_ms",
        states=("state", CandidateState),
    ),
    _t(
        REPAIR_EVIDENCE.name,
        "topic",
        "scope",
        "state",
        "rung",
        "attempts",
        "created_at_ms",
        "sent_at_ms",
        "first_sent_at_ms",
        states=("state", RepairState),
    ),
    _t(f"history.{ANNOUNCED.name}", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms"),
    _t(f"history.{CONSUMED.name}", "topic", "consumer_group", "at_ms"),
    _t(f"history.{LEFT.name}", "topic", "consumer_group", "at_ms", "reason", states=("reason", Leaving)),
    _t(f"history.{PENDING.name}", "topic", "consumer_group", "shard", "at_ms"),
)

#: Table of the ledger's rounds. The table is not judged. The history must hold these rounds (history/check.py).
LEDGER_ROUND_TABLE = ReadTable(
    name=LEDGER_ROUND_EVIDENCE.name,
    columns=LEDGER_ROUND_EVIDENCE.columns,
    used=tuple(column.name for column in LEDGER_ROUND_EVIDENCE.columns),
)
#: Judged tables of the evidence and judged streams of the history, by name.
READ_TABLES: dict[str, ReadTable] = {table.name: table for table in _TABLES}
#: Tables below the evidence folder itself.
EVIDENCE_NAMES: tuple[str, ...] = tuple(table.name for table in EVIDENCE_TABLES)
#: Streams of history that tasks read.
STREAM_NAMES: tuple[str, ...] = tuple(name for name in READ_TABLES if name not in EVIDENCE_NAMES)
