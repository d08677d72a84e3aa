"""The evidence of a window in the form that the audit reads: one folder.

::

    DIR/evidence.json                         the request, the sources, and the SHA-256 of every file below;
                                              `not_asked`, if the sources were counted: the number of rows outside of
                                              the request, by topic and group; `lacking_columns`: by subscription, the
                                              columns of LATER_COLUMNS that a source lacked
    DIR/outbox/*.parquet                      reconciler_outbox, without bodies
    DIR/inbox/*.parquet                       reconciler_inbox
    DIR/effects/*.parquet                     business effects, counted by the user's own query
    DIR/candidate/*.parquet                   reconciler_candidate
    DIR/repair/*.parquet                      reconciler_repair
    DIR/history/...                           a history (contract/history_row.py), or evidence.json names its path

A row group has keys of one prefix (contract/history_row.py). For each row group, evidence.json names the prefix, the
number of rows, and the SHA-256 of the bytes. evidence.json also names the SHA-256 of each file's footer. So a task
reads and checks only its own row groups. A file with keys of only one prefix may instead lie in
DIR/<table>/prefix=<NN>/, as all files of versions 1 and 2 do. The audit collects databases into this layout, or reads a
folder with this layout.
"""

from __future__ import annotations

from reconciler.contract.schema import Column, Table

#: Grows when a reader of the old version would misread the new rows. Version 2 has keys that are text
#: (contract/unique_key.py). Version 3 has files with keys of all prefixes.
EVIDENCE_VERSION = 3
#: Columns that ledgers, inboxes, evidence and exports of earlier releases may lack. A missing column is read as NULL,
#: which proves nothing. The result says "not checked" for a rule that needs such a column
#: (audit/evidence/unchecked.py).
LATER_COLUMNS = frozenset({"business_id", "first_sent_at_ms", "incomplete"})

_KEY = Column("key", "key", "The unique key's bytes.")

OUTBOX_EVIDENCE = Table(
    name="outbox",
    doc="One row an outbox row of the window, and of every key that has an effect, a verdict or a repair in it.",
    columns=(
        _KEY,
        Column("topic", "name", "Business topic."),
        Column("producer_group", "name", "Producer group."),
        Column("tag", "name", "Tag.", nullable=True),
        Column("content_digest", "digest", "contract/content_digest.py; NULL: not checked.", nullable=True),
        Column("state", "name", "NEW, ANNOUNCED, SETTLED or ROLLED_BACK."),
        Column(
            "created_at_ms",
            "bigint",
            "Database time at `record`: the time of the commit for latencies, and for windows unless it was seen late.",
        ),
        Column("announced_at_ms", "bigint", "Last announcement.", nullable=True),
        Column(
            "business_id",
            "name",
            "The business transaction's own id: shown beside keys, judged by no rule; older evidence lacks it.",
            nullable=True,
        ),
    ),
)
INBOX_EVIDENCE = Table(
    name="inbox",
    doc="One row an inbox row of the groups in question.",
    columns=(
        _KEY,
        Column("topic", "name", "Business topic."),
        Column("consumer_group", "name", "The group."),
        Column("content_digest", "digest", "Of the message as consumed; NULL: not checked.", nullable=True),
        Column("source", "name", "consumer, or hand-over."),
        Column("applied_at_ms", "bigint", "Database time of the effect."),
        Column(
            "incomplete",
            "name",
            "NULL: the effect is whole. Else its handler ended the transaction before it returned; older evidence and "
            "inboxes lack it.",
            nullable=True,
        ),
    ),
)
EFFECTS_EVIDENCE = Table(
    name="effects",
    doc="Effects counted in the business tables: one row a key and group, of keys that belong to the window. A key "
    "that several inboxes of the group have has a row with their number, also where nothing else was counted.",
    columns=(
        _KEY,
        Column("topic", "name", "Business topic."),
        Column("consumer_group", "name", "The group."),
        Column("effects", "bigint", "How many effects the key had."),
    ),
)
CANDIDATE_EVIDENCE = Table(
    name="candidate",
    doc="Verdicts of the ledger.",
    columns=(
        _KEY,
        Column("topic", "name", "Business topic."),
        Column("consumer_group", "name", "The group."),
        Column("state", "name", "OPEN, SETTLED or QUARANTINED."),
        Column("verdict", "name", "The latest verdict."),
        Column("loss_verdict", "name", "The first verdict that meant a loss.", nullable=True),
        Column("first_seen_ms", "bigint", "Redis TIME of the round that first saw the key."),
        Column("updated_at_ms", "bigint", "Last change, ledger time."),
    ),
)
REPAIR_EVIDENCE = Table(
    name="repair",
    doc="Repairs of the ledger.",
    columns=(
        _KEY,
        Column("topic", "name", "Business topic."),
        Column("scope", "name", "'*', or the group of a hand-over."),
        Column("state", "name", "OPEN, SENDING, SENT, DONE or FAILED."),
        Column("rung", "name", "end, republish or hand-over."),
        Column("attempts", "integer", "Sends."),
        Column("created_at_ms", "bigint", "When the loss was proved, ledger time."),
        Column("sent_at_ms", "bigint", "Last send; the first one where the row was sent once.", nullable=True),
        Column("first_sent_at_ms", "bigint", "First send, where it is known.", nullable=True),
        Column("done_at_ms", "bigint", "When every group's inbox had the key.", nullable=True),
    ),
)

EVIDENCE_TABLES = (OUTBOX_EVIDENCE, INBOX_EVIDENCE, EFFECTS_EVIDENCE, CANDIDATE_EVIDENCE, REPAIR_EVIDENCE)

#: DIR/ledger_round/*.parquet, without prefixes. The rounds that the ledger stored and did not void, from the window's
#: start to its close. The history must contain each of these rounds. The table is absent if no ledger was collected.
LEDGER_ROUND_EVIDENCE = Table(
    name="ledger_round",
    doc="Stored rounds of the ledger.",
    columns=(
        Column("topic", "name", "Business topic."),
        Column("consumer_group", "name", "The group."),
        Column("shard", "integer", "Shard."),
        Column("epoch", "name", "Redis memory the round ran in."),
        Column("generation", "bigint", "The fence after the round."),
        Column("at_ms", "bigint", "Redis TIME of the round."),
        Column("announced", "bigint", "Keys in the half set."),
    ),
)
