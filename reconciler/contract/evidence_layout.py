"""Evidence as the audit reads it, as plain data: one folder that says everything about a window.

::

    DIR/evidence.json                         what was asked, of whom, and the SHA-256 of every file below; `not_asked`,
                                              where sources were counted: rows that nobody asked for, by topic and group
    DIR/outbox/prefix=<NN>/*.parquet          reconciler_outbox, without bodies
    DIR/inbox/prefix=<NN>/*.parquet           reconciler_inbox
    DIR/effects/prefix=<NN>/*.parquet         business effects, counted by the user's own query
    DIR/candidate/prefix=<NN>/*.parquet       reconciler_candidate
    DIR/repair/prefix=<NN>/*.parquet          reconciler_repair
    DIR/history/...                           a history (contract/history_row.py), or evidence.json names its path

`prefix` is that of contract/history_row.py. The audit collects databases into this layout, or is given it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

EVIDENCE_VERSION = 1

EvidenceKind = Literal["key", "name", "digest", "i64", "i32"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceColumn:
    """One column; `key` is the unique key's bytes, `digest` 32 bytes."""

    name: str
    kind: EvidenceKind
    doc: str
    nullable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceTable:
    """One table of the layout."""

    name: str
    doc: str
    columns: tuple[EvidenceColumn, ...]


def _c(name: str, kind: EvidenceKind, doc: str, *, nullable: bool = False) -> EvidenceColumn:
    return EvidenceColumn(name=name, kind=kind, doc=doc, nullable=nullable)


_KEY = _c("key", "key", "The unique key's bytes.")

OUTBOX_EVIDENCE = EvidenceTable(
    name="outbox",
    doc="One row an outbox row of the window, and of every key that has an effect, a verdict or a repair in it.",
    columns=(
        _KEY,
        _c("topic", "name", "Business topic."),
        _c("producer_group", "name", "Producer group."),
        _c("tag", "name", "Tag.", nullable=True),
        _c("content_digest", "digest", "contract/content_digest.py; NULL: not checked.", nullable=True),
        _c("state", "name", "NEW, ANNOUNCED, SETTLED or ROLLED_BACK."),
        _c(
            "created_at_ms",
            "i64",
            "Database time at `record`: the time of the commit for latencies, and for windows unless it was seen late.",
        ),
        _c("announced_at_ms", "i64", "Last announcement.", nullable=True),
        _c(
            "business_id",
            "name",
            "The business transaction's own id: shown beside keys, judged by no rule; older evidence lacks it.",
            nullable=True,
        ),
    ),
)
INBOX_EVIDENCE = EvidenceTable(
    name="inbox",
    doc="One row an inbox row of the groups in question.",
    columns=(
        _KEY,
        _c("topic", "name", "Business topic."),
        _c("consumer_group", "name", "The group."),
        _c("content_digest", "digest", "Of the message as consumed; NULL: not checked.", nullable=True),
        _c("source", "name", "consumer, or hand-over."),
        _c("applied_at_ms", "i64", "Database time of the effect."),
    ),
)
EFFECTS_EVIDENCE = EvidenceTable(
    name="effects",
    doc="Effects counted in the business tables: one row a key and group, of keys that belong to the window. A key "
    "that several inboxes of the group have has a row with their number, also where nothing else was counted.",
    columns=(
        _KEY,
        _c("topic", "name", "Business topic."),
        _c("consumer_group", "name", "The group."),
        _c("effects", "i64", "How many effects the key had."),
    ),
)
CANDIDATE_EVIDENCE = EvidenceTable(
    name="candidate",
    doc="Verdicts of the ledger.",
    columns=(
        _KEY,
        _c("topic", "name", "Business topic."),
        _c("consumer_group", "name", "The group."),
        _c("state", "name", "OPEN, SETTLED or QUARANTINED."),
        _c("verdict", "name", "The latest verdict."),
        _c("loss_verdict", "name", "The first verdict that meant a loss.", nullable=True),
        _c("first_seen_ms", "i64", "Redis TIME of the round that first saw the key."),
        _c("updated_at_ms", "i64", "Last change, ledger time."),
    ),
)
REPAIR_EVIDENCE = EvidenceTable(
    name="repair",
    doc="Repairs of the ledger.",
    columns=(
        _KEY,
        _c("topic", "name", "Business topic."),
        _c("scope", "name", "'*', or the group of a hand-over."),
        _c("state", "name", "OPEN, SENDING, SENT, DONE or FAILED."),
        _c("rung", "name", "end, republish or hand-over."),
        _c("attempts", "i32", "Sends."),
        _c("created_at_ms", "i64", "When the loss was proved, ledger time."),
        _c("sent_at_ms", "i64", "Last send; the first one where the row was sent once.", nullable=True),
        _c("first_sent_at_ms", "i64", "First send, where it is known.", nullable=True),
        _c("done_at_ms", "i64", "When every group's inbox had the key.", nullable=True),
    ),
)

EVIDENCE_TABLES = (OUTBOX_EVIDENCE, INBOX_EVIDENCE, EFFECTS_EVIDENCE, CANDIDATE_EVIDENCE, REPAIR_EVIDENCE)

#: Not partitioned: DIR/ledger_round/*.parquet. Rounds that the ledger stored and did not void, from the window's start
#: to its close: history has to hold every one of them. Without the ledger it is not there.
LEDGER_ROUND_EVIDENCE = EvidenceTable(
    name="ledger_round",
    doc="Stored rounds of the ledger.",
    columns=(
        _c("topic", "name", "Business topic."),
        _c("consumer_group", "name", "The group."),
        _c("shard", "i32", "Shard."),
        _c("epoch", "name", "Redis memory the round ran in."),
        _c("generation", "i64", "The fence after the round."),
        _c("at_ms", "i64", "Redis TIME of the round."),
        _c("announced", "i64", "Keys in the half set."),
    ),
)
