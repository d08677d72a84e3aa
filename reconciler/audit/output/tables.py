"""findings.parquet and counts.parquet. The two files have the facts of the JSON files in a form for queries.

The writer's settings are constant and no library's schema is embedded, so that equal tables are equal bytes.
"""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from reconciler.audit.result.classes import BY_NAME, NAMES, NUMBERS, VIOLATIONS
from reconciler.audit.result.documents import sorted_findings
from reconciler.audit.result.values import JudgedWindow

_TEXT = pa.string()
FINDINGS_SCHEMA = pa.schema(
    [
        pa.field("environment", _TEXT, nullable=False),
        pa.field("topic", _TEXT, nullable=False),
        pa.field("consumer_group", _TEXT, nullable=False),
        pa.field("key", _TEXT, nullable=False),
        pa.field("class", _TEXT, nullable=False),
        pa.field("violation", pa.bool_(), nullable=False),
        pa.field("rule", _TEXT, nullable=False),
        pa.field("evidence", _TEXT, nullable=False),
    ]
)
COUNTS_SCHEMA = pa.schema(
    [
        pa.field("environment", _TEXT, nullable=False),
        pa.field("topic", _TEXT, nullable=False),
        pa.field("consumer_group", _TEXT, nullable=False),
        pa.field("class_number", pa.int32(), nullable=False),
        pa.field("class", _TEXT, nullable=False),
        pa.field("violation", pa.bool_(), nullable=False),
        pa.field("keys", pa.int64(), nullable=False),
    ]
)
ROWS_A_GROUP = 65_536


def findings_parquet(judged: JudgedWindow) -> bytes:
    """Makes one row per finding. `evidence` is canonical JSON."""
    rows = [
        {
            "environment": judged.environment,
            "topic": finding.topic,
            "consumer_group": finding.group,
            "key": finding.key,
            "class": finding.class_name,
            "violation": finding.class_name in VIOLATIONS,
            "rule": finding.rule,
            "evidence": json.dumps(dict(finding.evidence), sort_keys=True, separators=(",", ":"), ensure_ascii=False),
        }
        for finding in sorted_findings(judged)
    ]
    return _parquet(rows, FINDINGS_SCHEMA)


def counts_parquet(judged: JudgedWindow) -> bytes:
    """Makes one row per subscription and class. A class without keys has a row, too."""
    rows = [
        {
            "environment": judged.environment,
            "topic": one.subscription.topic,
            "consumer_group": one.subscription.group,
            "class_number": NUMBERS[name],
            "class": name,
            "violation": BY_NAME[name].violation,
            "keys": one.classes.get(name, 0),
        }
        for one in judged.subscriptions
        for name in NAMES
    ]
    return _parquet(rows, COUNTS_SCHEMA)


def _parquet(rows: list[dict[str, Any]], schema: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(
        pa.Table.from_pylist(rows, schema=schema),
        sink,
        row_group_size=ROWS_A_GROUP,
        version="2.6",
        data_page_version="1.0",
        compression="zstd",
        compression_level=3,
        use_dictionary=True,
        write_statistics=True,
        store_schema=False,
    )
    return sink.getvalue()
