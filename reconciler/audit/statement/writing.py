"""Writes OUT/statement: the list of inputs, a checksum a row, and a statement with its signature a subscription."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from reconciler.audit.errors import AuditError
from reconciler.audit.output.folder import OutputDraft
from reconciler.audit.result.documents import canonical, canonical_lines
from reconciler.audit.statement.checksums import Checksums, rows_of
from reconciler.audit.statement.confined import FILE_BYTES_MAX
from reconciler.audit.statement.document import (
    CHECKSUMS,
    CHECKSUMS_INDEX,
    FOLDER,
    INPUTS,
    canonical_inputs,
    find_previous,
    statement_document,
    statement_name,
)
from reconciler.audit.statement.inputs import InputFolder, digest, judged_inputs
from reconciler.audit.statement.keys import SigningKey

#: Whose checksums are kept: a file of OUT, or one of the evidence.
OUTPUT, INPUT = "output", "input"


def write_statements(
    draft: OutputDraft,
    result: Mapping[str, Any],
    *,
    key: SigningKey | None,
    previous: Path | str | None,
    evidence: str | None,
    history: str | None,
) -> None:
    """Adds statements to a draft whose other files are written. Raises AuditError as write_output does."""
    draft.write(INPUTS, canonical_inputs(result))
    if key is not None:
        inputs = None if evidence is None else judged_inputs(evidence, history)
        _write_checksums(draft, result, inputs)
    outputs = [_described(draft, name) for name in sorted(draft.names)]
    public = None if key is None else key.public
    for subscription in result["subscriptions"]:
        topic, group = subscription["topic"], subscription["group"]
        before = find_previous(
            previous, result["environment"], topic, group, start_ms=result["window"]["start_ms"], key=public
        )
        document = statement_document(
            result,
            subscription,
            outputs=outputs,
            previous=before,
            signed_by=None if public is None else public.fingerprint,
        )
        data = canonical(document)
        name = f"{FOLDER}/{statement_name(topic, group)}"
        draft.write(f"{name}.json", data)
        if key is not None:
            draft.write(f"{name}.sig", key.sign(data))


def _described(draft: OutputDraft, name: str) -> dict[str, Any]:
    size, sha256 = draft.described(name)
    return {"path": name, "bytes": size, "sha256": sha256}


def _write_checksums(draft: OutputDraft, result: Mapping[str, Any], inputs: InputFolder | None) -> None:
    """row-checksums.bin: 8 bytes a row, little-endian, file after file; row-checksums.json: where each file's begin."""
    index: list[dict[str, Any]] = []
    offset = 0
    outputs = [(OUTPUT, name, draft.read(name)) for name in sorted(draft.names)]
    with draft.create(CHECKSUMS) as file:
        for where, path, (checksums, has_marks) in _checksums(chain(outputs, _input_files(result, inputs))):
            file.write(checksums.astype("<u8").tobytes())
            marks = {"marks": True} if has_marks else {}
            index.append({"path": path, "where": where, "offset": offset, "rows": len(checksums), **marks})
            offset += len(checksums)
    draft.write(CHECKSUMS_INDEX, canonical_lines(index))


def _input_files(result: Mapping[str, Any], inputs: InputFolder | None) -> Iterator[tuple[str, str, bytes]]:
    """Every input again, as it was when it was judged: what has changed since must not be signed."""
    if inputs is None:
        return
    for file in result["inputs"]:
        path = file["path"]
        try:
            data = inputs.read(path, FILE_BYTES_MAX)
        except OSError as error:
            raise AuditError(
                "inputs", f"{path}: it was judged and cannot be read any more: {error}; run the audit again"
            ) from error
        if digest(data) != file["sha256"]:
            raise AuditError("inputs", f"{path}: it has changed since it was judged; run the audit again")
        yield INPUT, path, data


def _checksums(files: Iterator[tuple[str, str, bytes]]) -> Iterator[tuple[str, str, tuple[Checksums, bool]]]:
    """In the order of the files, several at once: reading Parquet and hashing let other threads run."""
    workers = min(4, os.cpu_count() or 1)
    with ThreadPoolExecutor(workers) as pool:
        # A few files at a time: all of them would not fit into memory.
        while part := list(islice(files, 2 * workers)):
            found = pool.map(_checksums_of, [(path, data) for _, path, data in part])
            yield from ((where, path, one) for (where, path, _), one in zip(part, found, strict=True))


def _checksums_of(file: tuple[str, bytes]) -> tuple[Checksums, bool]:
    """Of one file, and whether they hold marks of keys."""
    try:
        rows = rows_of(*file)
    except (OSError, ValueError, RecursionError):
        # Readable enough to be judged, but not by rows (an empty file, a suffix that does not fit): as one row.
        return np.zeros(1, dtype=np.uint64), False
    return rows.checksums, rows.has_marks
