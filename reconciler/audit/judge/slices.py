"""Reads the rows of one prefix from all tables as numpy columns.

If there are too many rows for memory, the rows come in slices of keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconciler.audit.errors import AuditError
from reconciler.audit.evidence.files import DIGEST_BYTES, VerifiedFile
from reconciler.audit.evidence.key_columns import contiguous, lengths_seen
from reconciler.audit.evidence.plan import PlannedFile
from reconciler.audit.evidence.tables import READ_TABLES
from reconciler.audit.judge.keys import KeyLayout, Words
from reconciler.audit.judge.rows import Flags, Rows, Vocabulary, longs
from reconciler.audit.judge.scratch import Scratch

_INTEGERS = frozenset({"integer", "bigint"})
#: Column of digests. It is read from these tables only if a repair was sent.
_DIGEST = "content_digest"
_NO_NAMES = np.empty(0, np.int32)
_NO_TIMES = np.empty(0, np.int64)


@dataclass(slots=True, kw_only=True)
class Slice:
    """Slice of a prefix: all rows of some of its keys."""

    layout: KeyLayout
    vocabulary: Vocabulary
    tables: dict[str, Rows]
    #: Table -> number of rows that were read, with doubled rows. Only the first slice has these numbers.
    read: Counter[str] = field(default_factory=Counter)


def slices(files: Sequence[PlannedFile], rows_at_once_max: int) -> Iterator[Slice]:
    """Yields the prefix in one slice or several slices. Each file is read once.

    Raises AuditError("inputs"). Raises AuditError("engine") for a full disk.
    """
    total = sum(file.rows for file in files if file.table in READ_TABLES)
    count = max(1, -(-total // rows_at_once_max))
    read: Counter[str] = Counter()
    batches = _batches(files, read, by_row_group=count > 1)
    if count == 1:
        found: dict[str, list[pa.Table]] = {name: [] for name in READ_TABLES}
        for name, batch in batches:
            found[name].append(batch)
        yield _slice(found, read)
        return
    with Scratch(count) as scratch:
        for name, batch in batches:
            scratch.add(name, batch)
        for number in range(count):
            tables = {name: scratch.of(number, name) for name in READ_TABLES}
            yield _slice(tables, read if number == 0 else Counter())


def _batches(files: Sequence[PlannedFile], read: Counter[str], *, by_row_group: bool) -> Iterator[tuple[str, pa.Table]]:
    """Yields every row with the name of its table. `read` counts the rows.

    Repairs come first, because digests are read only if a repair was sent.
    """
    digests = False
    for file in sorted(files, key=lambda file: (file.table != "repair", file.table, file.shown)):
        table = READ_TABLES.get(file.table)
        verified = VerifiedFile(file, table)
        read[file.table] += file.rows
        if table is None:
            continue
        has_digest = any(column.name == _DIGEST for column in table.columns)
        columns = ["key", *table.used, *([_DIGEST] if has_digest and digests else [])]
        for batch in verified.batches(columns, by_row_group=by_row_group):
            digests = digests or (file.table == "repair" and (pc.max(batch["attempts"]).as_py() or 0) > 0)
            yield file.table, batch


def _slice(found: dict[str, list[pa.Table]], read: Counter[str]) -> Slice:
    keys = {name: _keys(tables) for name, tables in found.items()}
    layout = KeyLayout(lengths_seen(list(keys.values())))
    vocabulary = Vocabulary()
    rows = {}
    for name, tables in found.items():
        try:
            rows[name] = _rows(name, tables, keys[name], layout, vocabulary)
        except UnicodeDecodeError as error:
            raise AuditError("inputs", f"{name}: a name is no UTF-8 ({error}); collect again") from error
        tables.clear()
    return Slice(layout=layout, vocabulary=vocabulary, tables=rows, read=read)


def _keys(tables: Sequence[pa.Table]) -> pa.Array:
    chunks = [chunk for table in tables for chunk in table["key"].chunks]
    if len({chunk.type for chunk in chunks}) > 1:
        chunks = [chunk.cast(pa.large_binary()) for chunk in chunks]
    return contiguous(pa.chunked_array(chunks, type=chunks[0].type if chunks else pa.binary()))


def _rows(name: str, tables: Sequence[pa.Table], keys: pa.Array, layout: KeyLayout, vocabulary: Vocabulary) -> Rows:
    table = READ_TABLES[name]
    kinds = {column.name: column.kind for column in table.columns}
    times = [column for column in table.used if kinds[column] in _INTEGERS]
    names = [column for column in table.used if kinds[column] not in _INTEGERS]
    has_digests = bool(tables) and _DIGEST in tables[0].column_names
    return Rows(
        words=layout.words(keys),
        names={name: np.concatenate([_NO_NAMES, *(vocabulary.codes(t[name]) for t in tables)]) for name in names},
        times={name: np.concatenate([_NO_TIMES, *(longs(t[name]) for t in tables)]) for name in times},
        digests=_digests(tables) if has_digests else None,
    )


def _digests(tables: Sequence[pa.Table]) -> tuple[Words, Flags]:
    """Reads four words per row, and whether the row has a digest. For NULL, the words are zeros."""
    chunks = [chunk for table in tables for chunk in table[_DIGEST].chunks]
    there = [np.empty(0, np.bool_)]
    words = [np.empty((0, DIGEST_BYTES // 8), np.uint64)]
    fixed = KeyLayout((DIGEST_BYTES,))
    for chunk in chunks:
        flags = pc.is_valid(chunk).to_numpy(zero_copy_only=False)
        found = np.zeros((len(chunk), DIGEST_BYTES // 8), np.uint64)
        if flags.any():
            found[flags] = fixed.words(chunk.drop_null().cast(pa.binary()))
        there.append(flags)
        words.append(found)
    return np.concatenate(words), np.concatenate(there)
