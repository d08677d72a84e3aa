"""Which keys the rest of the evidence holds: a row that is gone from one file is named by the mark of its key.

A mark has 32 bits and a prefix some hundred thousand keys: a wrong key is named once in tens of thousands of lost rows,
and it names, it proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from reconciler.audit.statement.checksums import BATCH_ROWS, is_key, key_marks, opened_parquet
from reconciler.audit.statement.compare import NAMED_BYTES_MAX
from reconciler.audit.statement.inputs import InputFolder

_PREFIX = re.compile(r"/(prefix=\d{2})/")
#: Keys of one mark that are told.
KEYS_A_MARK_MAX = 3


class KnownKeys:
    """Keys of the prefix of one file: a message's rows all lie in files of its key's prefix."""

    def __init__(self, inputs: InputFolder, path: str, listed: Sequence[str]) -> None:
        """`listed`: paths of all inputs of the audit."""
        found = _PREFIX.search(path)
        self._inputs = inputs
        self._paths = sorted(other for other in listed if found and other.endswith(".parquet") and found[0] in other)

    def find(self, marks: frozenset[int]) -> Mapping[int, Sequence[str]]:
        """Mark -> keys in upper-case hex, sorted. Files that cannot be read are told elsewhere."""
        wanted = np.array(sorted(marks), np.uint64)
        found: dict[int, set[str]] = {}
        for path in self._paths:
            try:
                for keys in self._keys(path):
                    of_keys = key_marks(keys)
                    for place in np.flatnonzero(np.isin(of_keys, wanted)).tolist():
                        found.setdefault(int(of_keys[place]), set()).add(keys[place].as_py().hex().upper())
            except (OSError, ValueError, pa.ArrowException):
                continue
        return {mark: sorted(keys)[:KEYS_A_MARK_MAX] for mark, keys in found.items()}

    def _keys(self, path: str) -> Iterator[pa.Array]:
        file = opened_parquet(self._inputs.read(path, NAMED_BYTES_MAX))
        if "key" not in file.schema_arrow.names or not is_key(file.schema_arrow.field("key").type):
            return
        for batch in file.iter_batches(BATCH_ROWS, columns=["key"], use_threads=False):
            yield batch.column(0).drop_null()
