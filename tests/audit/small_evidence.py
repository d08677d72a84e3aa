"""Small evidence folders for tests: rows as dicts with defaults, written as the contract says."""

from __future__ import annotations

import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from reconciler.audit.collect.request import described_files
from reconciler.audit.collect.writer import PrefixWriter, WrittenFile
from reconciler.contract.evidence_layout import EVIDENCE_TABLES, EVIDENCE_VERSION
from reconciler.contract.history_row import prefix_of
from tests.audit.written_history import WrittenHistory

Row = dict[str, Any]

#: 2026-03-01 00:00 UTC; an hour of keys; evidence is collected an hour after.
START_MS = 1_772_323_200_000
END_MS = START_MS + 3_600_000
AS_OF_MS = END_MS + 3_600_000
GRACE_MS = 60_000
LATE_MS = 300_000
SKEW_MS = 10_000

TOPIC, GROUP, PRODUCER = "ORDERS", "billing", "shop"

_TYPES = {"key": pa.binary(), "name": pa.string(), "digest": pa.binary(), "bigint": pa.int64(), "integer": pa.int32()}
_LAYOUTS = {table.name: table for table in EVIDENCE_TABLES}
STREAMS = ("announced", "consumed", "left", "pending", "snapshot", "round", "gate", "verdict", "gap", "reread")

_GROUP = {"topic": TOPIC, "consumer_group": GROUP}
_ROUND = {**_GROUP, "shard": 0, "epoch": "e1", "generation": 1}
#: What a row says unless a test says otherwise.
_DEFAULTS: Mapping[str, Row] = {
    "outbox": {"topic": TOPIC, "producer_group": PRODUCER, "state": "ANNOUNCED", "created_at_ms": START_MS + 1000},
    "inbox": {**_GROUP, "source": "consumer", "applied_at_ms": START_MS + 2000},
    "effects": {**_GROUP, "effects": 1},
    "candidate": {
        **_GROUP,
        "state": "OPEN",
        "verdict": "LOST_CONFIRM",
        "first_seen_ms": START_MS + 5000,
        "updated_at_ms": START_MS + 90_000,
    },
    "repair": {
        "topic": TOPIC,
        "scope": "*",
        "state": "DONE",
        "rung": "end",
        "attempts": 1,
        "created_at_ms": START_MS + 90_000,
        "sent_at_ms": START_MS + 91_000,
    },
    "announced": {**_ROUND, "at_ms": START_MS + 5000},
    "consumed": {**_ROUND, "at_ms": START_MS + 5000},
    "left": {**_GROUP, "shard": 0, "at_ms": START_MS + 5000, "reason": "MATCHED"},
    "pending": {**_GROUP, "shard": 0, "at_ms": AS_OF_MS - 1000, "first_seen_ms": START_MS + 5000},
    "snapshot": {**_ROUND, "generation": 9, "at_ms": AS_OF_MS - 1000, "kind": "SHUTDOWN", "rows": 0},
    "round": {**_ROUND, "at_ms": START_MS + 5000, "announced": 0, "consumed": 0, "left_matched": 0},
    "gate": {
        **_GROUP,
        "at_ms": START_MS + 5000,
        "shards_run": 1,
        "gate": "open",
        "pending": 0,
        "became_due": 0,
        "verified": 0,
        "settled": 0,
    },
    "verdict": {
        **_GROUP,
        "shard": 0,
        "at_ms": START_MS + 9000,
        "verdict": "LOST_CONFIRM",
        "state": "OPEN",
        "first_seen_ms": START_MS + 5000,
        "evidence": "{}",
    },
    "reread": {
        **_GROUP,
        "shard": 0,
        "epoch": "e1",
        "first_generation": 2,
        "last_generation": 3,
        "from_ms": START_MS + 4000,
        "at_ms": START_MS + 20_000,
        "sources": "{}",
    },
    "gap": {**_GROUP, "shard": 0, "from_ms": START_MS, "at_ms": END_MS, "stream": "announced", "reason": "disk full"},
}


def subscription(topic: str = TOPIC, group: str = GROUP, **fields: Any) -> Row:
    """One subscription of evidence.json."""
    return {
        "topic": topic,
        "group": group,
        "tags": None,
        "producer_groups": [PRODUCER],
        "grace_period_seconds": GRACE_MS / 1000,
        "late_after_seconds": LATE_MS / 1000,
        "inbox": True,
        "effects": True,
        **fields,
    }


@dataclass
class SmallEvidence:
    """Rows by table and stream; `add` fills in defaults, `write` makes the folder."""

    subscriptions: list[Row] = field(default_factory=lambda: [subscription()])
    outboxes: list[str] = field(default_factory=lambda: [PRODUCER])
    ledger: bool = True
    #: False: none is written, and evidence.json says that there is none.
    has_history: bool = True
    shards: int = 1
    start_ms: int = START_MS
    end_ms: int = END_MS
    as_of_ms: int = AS_OF_MS
    collected_at_ms: int = AS_OF_MS
    rows: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    #: None: the document says nothing about it, as that of earlier releases.
    lacking_columns: list[Row] | None = field(default_factory=list)

    def add(self, table: str, key: bytes | None = None, **fields: Any) -> None:
        """One row."""
        row = {**_DEFAULTS[table], **fields}
        self.rows[table].append(row if key is None else {**row, "key": key})

    def story(self, key: bytes, **outbox: Any) -> None:
        """A message as it should be: committed, announced, applied, consumed."""
        self.add("outbox", key, **outbox)
        self.add("announced", key)
        self.add("inbox", key)
        self.add("consumed", key)
        self.add("effects", key)

    def rounds(self) -> list[Row]:
        """Those of a test, else for each shard the first one and one at `as_of_ms`."""
        if self.rows["round"]:
            return self.rows["round"]
        return [
            {**_DEFAULTS["round"], "topic": s["topic"], "consumer_group": s["group"], "shard": shard,
             "generation": generation, "at_ms": at_ms}
            for s in self.subscriptions
            for shard in range(self.shards)
            for generation, at_ms in ((1, self.start_ms - 1000), (2, self.as_of_ms))
        ]  # fmt: skip

    def document(self, files: Mapping[str, Row]) -> Row:
        """evidence.json."""
        return {
            "version": 1,
            "environment": "test",
            "window": {"start_ms": self.start_ms, "end_ms": self.end_ms},
            "collected_at_ms": self.collected_at_ms,
            "skew_bound_ms": SKEW_MS,
            "shards": self.shards,
            "subscriptions": self.subscriptions,
            "outboxes": self.outboxes,
            "ledger": self.ledger,
            "history": "history" if self.has_history else None,
            **({} if self.lacking_columns is None else {"lacking_columns": self.lacking_columns}),
            "files": files,
        }

    def write(self, folder: Path, *, seed: int = 0, parts: int = 1, twice: bool = False) -> Path:
        """`seed` shuffles rows, `parts` spreads them over files, `twice` writes every row a second time."""
        chance = random.Random(seed)
        files: dict[str, Row] = {}
        for table in _LAYOUTS:
            rows = self.rows[table] * (2 if twice else 1)
            chance.shuffle(rows)
            for part in range(parts):
                files.update(_write_table(folder, table, rows[part::parts], part))
        if not self.has_history:
            write_document(folder, self.document(files))
            return folder
        history = WrittenHistory(folder / "history")
        streams = {name: list(self.rows[name]) * (2 if twice else 1) for name in STREAMS if self.rows[name]}
        streams["round"] = self.rounds()
        for rows in streams.values():
            chance.shuffle(rows)
        for part in range(parts):
            history.seal({name: rows[part::parts] for name, rows in streams.items() if rows[part::parts]})
        write_document(folder, self.document(files))
        return folder


def write_document(folder: Path, document: Mapping[str, Any]) -> None:
    """evidence.json, canonical."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"
    (folder / "evidence.json").write_text(text, encoding="utf-8")


def read_document(folder: Path) -> Row:
    """evidence.json."""
    document: Row = json.loads((folder / "evidence.json").read_text(encoding="utf-8"))
    return document


def seal_again(folder: Path, path: str, table: pa.Table, *, store_schema: bool = True) -> None:
    """Replaces one file of the evidence, and its digest: what a collector of another version would have written."""
    pq.write_table(table, folder / path, store_schema=store_schema)
    document = read_document(folder)
    document["files"][path] = described(folder / path, table.num_rows)
    write_document(folder, document)


def of_all_prefixes(folder: Path) -> Path:
    """The folder, its evidence written again as today's collector does: a file a table."""
    document = read_document(folder)
    files: dict[str, WrittenFile] = {}
    for table in _LAYOUTS.values():
        paths = sorted(folder.glob(f"{table.name}/*/*.parquet"))
        with PrefixWriter(folder, table, "part") as writer:
            for path in paths:
                writer.add(pq.ParquetFile(path).read())
                path.unlink()
            files.update({file.path: file for file in writer.close()})
    write_document(folder, {**document, "version": EVIDENCE_VERSION, "files": described_files(files)})
    return folder


def described(path: Path, rows: int) -> Row:
    """A file as evidence.json tells of it."""
    return {"rows": rows, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def _write_table(folder: Path, table: str, rows: Sequence[Row], part: int) -> dict[str, Row]:
    by_prefix: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_prefix[prefix_of(row["key"])].append(row)
    schema = pa.schema([pa.field(c.name, _TYPES[c.kind], nullable=c.nullable) for c in _LAYOUTS[table].columns])
    written = {}
    for prefix, of in by_prefix.items():
        path = f"{table}/prefix={prefix:02d}/part-{part}.parquet"
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        filled = [{name: row.get(name) for name in schema.names} for row in of]
        pq.write_table(pa.Table.from_pylist(filled, schema=schema), folder / path)
        written[path] = described(folder / path, len(of))
    return written
