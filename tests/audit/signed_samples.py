"""An audit's output with everything in it: real evidence files, signed statements, a chain."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from reconciler.audit.output.writing import write_output
from reconciler.audit.result.values import InputFile, JudgedWindow, Window
from reconciler.audit.statement.keys import SigningKey, make_keys, read_signing_key
from reconciler.contract.manifest import HistoryFile, ManifestEntry, entry_name
from tests.audit import judged_samples

DAY_MS = 86_400_000
ROWS = 40
MANIFEST = "history/manifest/environment=production"
MANIFEST_ENTRIES = 3


def key_bytes(table: str, number: int) -> bytes:
    return hashlib.sha256(f"{table}{number}".encode()).digest()[: (16, 17, 28, 32)[number % 4]]


def table_rows(table: str) -> list[dict[str, Any]]:
    return [
        {
            "key": key_bytes(table, n),
            "topic": "ORDERS",
            "consumer_group": "billing",
            "content_digest": None if n % 3 else bytes(32),
            "at_ms": judged_samples.START_MS + n,
            "evidence": '{"half":"FOUND"}' * (n % 5),
            "attempts": n % 2,
        }
        for n in range(ROWS)
    ]


SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("topic", pa.string()),
        ("consumer_group", pa.dictionary(pa.int32(), pa.string())),
        ("content_digest", pa.binary()),
        ("at_ms", pa.int64()),
        ("evidence", pa.string()),
        ("attempts", pa.int32()),
    ]
)


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path, row_group_size=16)


def make_evidence(folder: Path) -> tuple[InputFile, ...]:
    """Two tables, two history files with their manifest; returns them as a judgement would list them."""
    folder.mkdir(parents=True)
    (folder / "evidence.json").write_text(json.dumps({"version": 1, "history": "history"}) + "\n")
    stream = "history/announced/environment=production/date=2026-11-20"
    names = ["outbox/prefix=00/part-0.parquet", "inbox/prefix=00/part-0.parquet"]
    names += [f"{stream}/prefix=00/a.parquet", f"{stream}/prefix=01/b.parquet"]
    for name in names:
        write_rows(folder / name, table_rows(name))
    (folder / MANIFEST).mkdir(parents=True)
    for number in range(MANIFEST_ENTRIES):
        add_entry(folder, added=() if number else tuple(history_file(folder, name) for name in names[2:]))
    return listed(folder)


def history_file(folder: Path, name: str) -> HistoryFile:
    """One of its history files as the manifest tells of it."""
    return HistoryFile(
        path=name.removeprefix("history/"),
        stream="announced",
        date="2026-11-20",
        prefix=int(name.split("prefix=")[1][:2]),
        rows=ROWS,
        size_bytes=(folder / name).stat().st_size,
        sha256=_sha256(folder / name),
        first_ms=judged_samples.START_MS,
        last_ms=judged_samples.START_MS + ROWS,
    )


def entries_of(evidence: Path) -> list[Path]:
    """The manifest's entries, the oldest first."""
    return sorted((evidence / MANIFEST).glob("*.json"))


def add_entry(evidence: Path, **fields: Any) -> Path:
    """Adds an entry that follows the newest one, unless `previous` says something else."""
    before = entries_of(evidence)
    entry = ManifestEntry(
        environment="production",
        sequence=len(before) + 1,
        previous=fields.pop("previous", _sha256(before[-1]) if before else ""),
        action=fields.pop("action", "seal"),
        writer="test",
        written_at_ms=len(before),
        **fields,
    )
    path = evidence / MANIFEST / entry_name(entry.sequence)
    path.write_bytes(entry.encoded())
    return path


def is_older_entry(path: Path) -> bool:
    """Of a manifest only the newest entry is an input: it names all those before it."""
    return path.suffix == ".json" and path.stem.isdecimal() and int(path.stem) < MANIFEST_ENTRIES


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def judged_of(evidence: Path, *, day: int = 0) -> JudgedWindow:
    """The judgement of such a folder; `day` moves its window."""
    judged = judged_samples.violations()
    inputs = make_evidence(evidence) if not evidence.exists() else listed(evidence)
    window = Window(start_ms=judged.window.start_ms + day * DAY_MS, end_ms=judged.window.end_ms + day * DAY_MS)
    return replace(judged, inputs=inputs, window=window)


def listed(evidence: Path) -> tuple[InputFile, ...]:
    files = sorted(path for path in evidence.rglob("*") if path.is_file() and not is_older_entry(path))
    return tuple(
        InputFile(
            path=path.relative_to(evidence).as_posix(),
            sha256=_sha256(path),
            rows=ROWS if path.suffix == ".parquet" else -1,
        )
        for path in files
    )


def new_key(folder: Path, name: str = "auditor") -> tuple[SigningKey, Path]:
    """The key, and the file of its public half."""
    secret, public, _ = make_keys(folder / f"{name}.pem")
    return read_signing_key(secret), public


def write_signed(folder: Path, key: SigningKey, *, day: int = 0, previous: Path | None = None) -> tuple[Path, Path]:
    """OUT and its evidence, of one day."""
    evidence = folder / f"evidence-{day}"
    out = folder / "outs" / f"day-{day}"
    judged = judged_of(evidence, day=day)
    write_output(judged, out, signing_key=key, previous=previous, evidence=evidence)
    return out, evidence


def files_of(folder: Path) -> Mapping[str, bytes]:
    """Every file's bytes, by path."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }
