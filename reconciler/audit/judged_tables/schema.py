"""Columns of the four tables, with the meaning of each column.

Files and the reference page are made from these columns. A new column is nullable and comes at the end. No column
changes its type or meaning. SCHEMA_VERSION grows with each new column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from reconciler.audit.judge.judged_keys import TIMESTAMP

SCHEMA_VERSION = 2
KEYS, FINDINGS, COUNTS, RUNS = "audit_keys", "audit_findings", "audit_counts", "audit_runs"

_TEXT, _WHOLE, _YES_NO = pa.string(), pa.int64(), pa.bool_()


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column; `meaning` is a sentence for readers."""

    name: str
    type: pa.DataType
    meaning: str
    nullable: bool = False


_OF_WINDOW = (
    TableColumn("run", _TEXT, "The audit that wrote the row; the rows of `audit_runs` say which are valid."),
    TableColumn("environment", _TEXT, "The setting `environment`."),
    TableColumn("window_start", TIMESTAMP, "The window's first instant."),
    TableColumn("window_end", TIMESTAMP, "The first instant behind the window."),
    TableColumn("topic", _TEXT, "The topic."),
    TableColumn("consumer_group", _TEXT, "The consumer group."),
)
_CLASS = (
    TableColumn("class", _TEXT, "What became of it (audit-classes.md)."),
    TableColumn("violation", _YES_NO, "Whether the class is a violation."),
)


def _time(name: str, meaning: str) -> TableColumn:
    return TableColumn(name, TIMESTAMP, meaning, nullable=True)


def _name(name: str, meaning: str) -> TableColumn:
    return TableColumn(name, _TEXT, meaning, nullable=True)


def _number(name: str, meaning: str) -> TableColumn:
    return TableColumn(name, _WHOLE, meaning, nullable=True)


COLUMNS: Mapping[str, tuple[TableColumn, ...]] = {
    KEYS: (
        *_OF_WINDOW,
        TableColumn("key", _TEXT, "The unique key, as `reconciler explain` takes it."),
        *_CLASS,
        TableColumn("counted_at", TIMESTAMP, "The time that puts the key into this window."),
        _time("committed_at", "The outbox row's time, if the transaction was committed."),
        _time("announced_at", "The first round that took the announcement."),
        _time("consumed_at", "The first round that took the consumption."),
        _time("applied_at", "The first inbox row."),
        _time("detected_at", "The proof of the loss: the first repair that reaches the group."),
        _number("commit_to_effect_ms", "From `committed_at` to `applied_at`; below 0 where clocks differ."),
        _number("commit_to_detected_ms", "From `committed_at` to `detected_at`."),
        _number("effects", "Business effects, where they were counted."),
        _name(
            "cause",
            "The verdict that first meant a loss (verdicts.md). NULL also where a repair for all groups reaches one "
            "that had no verdict.",
        ),
        TableColumn(
            "repaired",
            _YES_NO,
            "Whether a repair was sent that reaches the group. Always false if the audit had no ledger.",
        ),
    ),
    FINDINGS: (
        *_OF_WINDOW,
        TableColumn("key", _TEXT, "The unique key."),
        *_CLASS,
        TableColumn("rule", _TEXT, "The rule that matched, in words."),
        _name("business_id", "What the business calls the message, if its outbox says so."),
        _time("counted_at", "The time that puts the key into this window, if it is not the outbox row's."),
        _time("committed_at", "The outbox row's time, if the transaction was committed."),
        _time("rolled_back_at", "The outbox row's time, if it is a tombstone."),
        _name("outbox_state", "State of the outbox row."),
        _name("producer_group", "Producer group of the outbox row."),
        _name("tag", "Tag of the outbox row."),
        _time("applied_at", "The first inbox row."),
        _name("source", "How the inbox row came to be."),
        _number("effects", "Business effects, where they were counted."),
        _time("announced_at", "The first round that took the announcement."),
        _time("consumed_at", "The first round that took the consumption."),
        _time("snapshot_at", "The snapshot of pending that lacks the key."),
        _time("left_at", "When the key left pending."),
        _name("left_reason", "Why it left."),
        _time("first_seen_at", "When the ledger first judged the key."),
        _name("candidate_state", "State of the ledger's newest row of the key."),
        _name("verdict", "Its verdict."),
        _name("loss_verdict", "The verdict that first meant a loss."),
        _time("repair_created_at", "When the repair was opened that was sent most often."),
        _time("repair_first_sent_at", "When it was first sent."),
        _number("repair_attempts", "How often it was sent."),
        _name("repair_scope", "Which groups it reaches."),
        _name("repair_rung", "How it was sent."),
        _name("repair_state", "Its state."),
        _name("outbox_digest", "SHA-256 of what was committed, where the digests differ."),
        _name("inbox_digest", "SHA-256 of what was consumed, where the digests differ."),
        _time("as_of", "The time by which ages were measured."),
    ),
    COUNTS: (
        *_OF_WINDOW,
        TableColumn("hour", TIMESTAMP, "Start of the UTC hour of `counted_at`."),
        *_CLASS,
        TableColumn("keys", _WHOLE, "Keys of this class and hour; classes without keys have no row."),
    ),
    RUNS: (
        *_OF_WINDOW,
        TableColumn("verdict", _TEXT, "`clean`, `violations` or `no answer`, of the whole run."),
        _name("reason", "Why there is no answer (how-to/audit.md)."),
        _name("message", "The same in a sentence."),
        TableColumn("closed", _YES_NO, "Whether everything that counts in the window had arrived."),
        TableColumn("keys", _WHOLE, "Keys of the subscription: its rows in `audit_keys`."),
        TableColumn("violations", _WHOLE, "Its keys in classes that are violations."),
        TableColumn("findings", _WHOLE, "Its rows in `audit_findings`, which has 100 000 of a run at most."),
        TableColumn("as_of", TIMESTAMP, "The time by which ages were measured."),
        TableColumn("collected_at", TIMESTAMP, "When the evidence was collected."),
        TableColumn("engine", _TEXT, "`spark` or `here`."),
        TableColumn("rules_sha256", _TEXT, "Digest of the list of classes that was applied."),
        TableColumn(
            "evidence_sha256",
            _TEXT,
            "SHA-256 of `evidence.json`, which has the digests of all files; empty if none was judged.",
        ),
        _name("history_sha256", "SHA-256 of the newest entry of the history's manifest."),
        TableColumn("statement_sha256", _TEXT, "SHA-256 of the subscription's statement in the folder of `--out`."),
        _name("signed_by", "Fingerprint of the key that signed it."),
        TableColumn("release", _TEXT, "The release that judged."),
        TableColumn("schema_version", pa.int32(), "Grows when a column is added."),
        TableColumn("started_at", TIMESTAMP, "When the audit began."),
        _name(
            "input_versions",
            "A JSON list of the inputs of an audit on a platform: `input`, `table`, `format`, and `version`, the "
            "snapshot (Iceberg) or version (Delta) that was copied.",
        ),
    ),
}

SCHEMAS: Mapping[str, pa.Schema] = {
    table: pa.schema([pa.field(column.name, column.type, nullable=column.nullable) for column in columns])
    for table, columns in COLUMNS.items()
}
