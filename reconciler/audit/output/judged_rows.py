"""Makes rows of findings, counts and runs of one judgement. Tasks write the rows of the keys that they judge."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from reconciler.audit.judge.facts import NEVER
from reconciler.audit.judge.judged_keys import timestamps
from reconciler.audit.judged_tables.key_files import KeyTarget, of_window
from reconciler.audit.judged_tables.schema import COLUMNS, COUNTS, FINDINGS, RUNS, SCHEMA_VERSION, SCHEMAS
from reconciler.audit.result.classes import VIOLATIONS
from reconciler.audit.result.values import JudgedSubscription, JudgedWindow
from reconciler.audit.statement.document import FOLDER, statement_name

#: Column of audit_findings -> another name that the column has in a finding's evidence.
_OTHER_NAMES = {"as_of": "as_of_ms", "repair_first_sent_at": "repair_first_sent_ms", "first_seen_at": "first_seen_ms"}


def findings_rows(judged: JudgedWindow, one: JudgedSubscription, target: KeyTarget) -> pa.Table:
    """Makes the rows of a subscription's listed findings."""
    asked = one.subscription
    rows: list[dict[str, Any]] = [
        {
            **finding.evidence,
            "key": finding.key,
            "class": finding.class_name,
            "violation": finding.class_name in VIOLATIONS,
            "rule": finding.rule,
        }
        for finding in judged.findings
        if (finding.topic, finding.group) == (asked.topic, asked.group)
    ]
    return _table(FINDINGS, rows, judged, one, target)


def counts_rows(judged: JudgedWindow, one: JudgedSubscription, target: KeyTarget) -> pa.Table:
    """Counts a subscription's keys by hour and class."""
    rows = [
        {"hour_ms": hour.hour_start_ms, "class": name, "violation": name in VIOLATIONS, "keys": keys}
        for hour in one.volume
        for name, keys in sorted(hour.classes.items())
        if keys
    ]
    return _table(COUNTS, rows, judged, one, target)


def runs_row(
    judged: JudgedWindow, one: JudgedSubscription, target: KeyTarget, out: Path, release: str, now_ms: int
) -> pa.Table:
    """Makes the row of a run about a subscription. `out` is the folder with the subscription's statement.

    Raises OSError.
    """
    asked = one.subscription
    statement = (out / FOLDER / f"{statement_name(asked.topic, asked.group)}.json").read_bytes()
    said = json.loads(statement)
    head = said["inputs"]["manifest_head"]
    listed = sum((finding.topic, finding.group) == (asked.topic, asked.group) for finding in judged.findings)
    row = {
        "verdict": judged.verdict,
        "reason": None if judged.no_answer is None else judged.no_answer.reason,
        "message": None if judged.no_answer is None else judged.no_answer.message,
        "closed": one.closed,
        "keys": one.keys,
        "violations": sum(keys for name, keys in one.classes.items() if name in VIOLATIONS),
        "findings": listed,
        "as_of_ms": one.as_of_ms,
        "collected_at_ms": judged.collected_at_ms,
        "engine": said["engine"],
        "rules_sha256": said["rules"]["sha256"],
        "evidence_sha256": said["inputs"]["evidence_sha256"] or "",
        "history_sha256": None if head is None else head["sha256"],
        "statement_sha256": hashlib.sha256(statement).hexdigest(),
        "signed_by": said["signed_by"],
        "release": release,
        "schema_version": SCHEMA_VERSION,
        "started_at_ms": now_ms,
        "input_versions": json.dumps(said["input_versions"], ensure_ascii=False) if "input_versions" in said else None,
    }
    return _table(RUNS, [row], judged, one, target)


def _table(
    table: str, rows: list[dict[str, Any]], judged: JudgedWindow, one: JudgedSubscription, target: KeyTarget
) -> pa.Table:
    """Makes a table from rows. In a row, the name of a time ends with _ms."""
    asked = one.subscription
    constant = of_window(target.run, judged.environment, judged.window, asked.topic, asked.group, len(rows))
    arrays = []
    for column in COLUMNS[table]:
        if column.name in constant:
            arrays.append(constant[column.name].cast(column.type))
        elif pa.types.is_timestamp(column.type):
            name = _OTHER_NAMES.get(column.name, f"{column.name}_ms")
            times = [row.get(name) for row in rows]
            arrays.append(timestamps(np.array([NEVER if at is None else at for at in times], np.int64)))
        else:
            arrays.append(pa.array([row.get(column.name) for row in rows], column.type))
    return pa.table(arrays, schema=SCHEMAS[table])
